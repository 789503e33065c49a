"""How prompts get exactly the length that the plan asks for, on the server at hand.

Best first: token ids, which need no tokenizer; words that the server's own tokenizer, or a local
one, turns into one token each; words whose number is fitted to the `usage` of two probes.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from backends.bench.endpoint import Fetch, Reply
from backends.bench.identify import CONTINUOUS_USAGE, IGNORES_EOS, NATIVE, TAKES_IDS, Server
from backends.bench.plan import Plan
from backends.bench.results import PromptSource
from backends.bench.steps import read_dataset
from backends.errors import RoomError, UsageError

# Common and short, so that most tokenizers have each as one token behind a blank.
_COMMON: Final = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl
guy moment air teacher force education foot boy age policy process music market sense nation
plan college interest death experience effect use class control field development role effort
rate heart drug show leader light voice wife police mind price report decision son view
relationship town road arm difference value building action season society tax director position
player record paper space ground form event official matter center couple site project activity
star table need court oil situation cost industry figure street image phone data picture
practice piece land product doctor wall news test movie north love support technology
"""
WORDS: Final = tuple(_COMMON.split())
_GROUP: Final = 16
PROBE_WORDS: Final = (64, 320)
SAFE_IDS: Final = (1000, 30_000)
"""Ids of ordinary text in practically every vocabulary; special tokens lie outside."""

Tokenize = Callable[[str], Awaitable[int]]
"""Number of tokens of a text, special ones included."""


@dataclass(frozen=True, slots=True)
class Requests:
    """How requests are made for this server.

    Attributes:
        route: The generator's name of the route.
        prompt: How the generator makes prompts.
        source: Where their lengths come from.
        ignore_eos: Whether the engine can be made to answer at full length.
        continuous_usage: Whether each event can carry a running count.
        notes: What to know about it, in sentences.
        digest: SHA-256 of what prompts are made from.
    """

    route: str
    prompt: dict[str, object]
    source: PromptSource
    ignore_eos: bool
    continuous_usage: bool
    notes: tuple[str, ...] = ()
    digest: str = field(default="")


def choose_route(plan: Plan, server: Server) -> str:
    """The route for a plan on a server. Raises UsageError if they don't fit."""
    if plan.route == "chat":
        return "chat"
    if plan.route == "completions":
        return "completions"
    native = NATIVE.get(server.engine)
    ids = TAKES_IDS.get(server.engine)
    if plan.route == "native":
        route = native or ids
        if route is None:
            raise UsageError(
                f"no native route is known for {server.engine}",
                hint="route = 'chat' or 'completions' in the plan, or --route",
            )
        if route == "tgi" and not plan.streaming:
            raise UsageError(
                "the native route of tgi is used for streams only", hint="route = 'chat'"
            )
        return route
    if plan.prompts in ("auto", "ids") and ids is not None:
        return ids
    return "chat"


async def prepare(plan: Plan, server: Server, fetch: Fetch) -> Requests:
    """Settle how prompts are made, asking and probing the server where that is needed.

    Raises:
        UsageError: What the plan wants, this server can't.
        RoomError: The server refuses probes.
    """
    route = choose_route(plan, server)
    ignore_eos = plan.ignore_eos and server.engine in IGNORES_EOS
    notes: list[str] = []
    if plan.ignore_eos and not ignore_eos:
        notes.append(
            f"{server.engine} is not known to ignore the end of a sequence: answers may be shorter "
            "than asked for, and what came is what is counted"
        )
    continuous = plan.continuous_usage == "on" or (
        plan.continuous_usage == "auto"
        and server.engine in CONTINUOUS_USAGE
        and route in ("chat", "completions")
    )
    prompt, source = await _prompt(plan, server, route, fetch, notes)
    stable = json.dumps([prompt, plan.seed, _parts_key(plan)], sort_keys=True)
    return Requests(
        route=route,
        prompt=prompt,
        source=source,
        ignore_eos=ignore_eos,
        continuous_usage=continuous,
        notes=tuple(notes),
        digest=hashlib.sha256(stable.encode()).hexdigest(),
    )


async def _prompt(
    plan: Plan, server: Server, route: str, fetch: Fetch, notes: list[str]
) -> tuple[dict[str, object], PromptSource]:
    if plan.prompts == "dataset":
        assert plan.dataset is not None
        return {"kind": "dataset", "items": read_dataset(plan.dataset)}, PromptSource.DATASET
    takes_ids = route == "completions" or route in TAKES_IDS.values()
    if plan.prompts == "ids" and not takes_ids:
        raise UsageError(
            f"the {route} route takes no token ids",
            hint="route = 'completions' or 'native' in the plan, or prompts = 'text'",
        )
    wants_ids = plan.prompts == "ids" or (
        plan.prompts == "auto" and takes_ids and server.engine in TAKES_IDS
    )
    if wants_ids:
        low, high = await _id_band(server, route, fetch)
        return {"kind": "ids", "low": low, "high": high}, PromptSource.IDS
    return await _words(plan, server, route, fetch, notes)


async def _id_band(server: Server, route: str, fetch: Fetch) -> tuple[int, int]:
    """A band of ids that the server takes: the safe one, or a lower one found by halving."""
    low, high = SAFE_IDS
    if server.vocabulary is not None:
        # The upper end of a vocabulary is where added special tokens are.
        high = min(high, max(2, server.vocabulary * 9 // 10))
        return min(low, high // 4), high
    while high > 16:
        reply = await _probe(server, route, [high - 1, high - 2], fetch)
        if reply.ok:
            return min(low, high // 4), high
        if reply.status not in (400, 422, 500):
            raise RoomError(
                f"the server refuses a probe with {reply.status}", reply.words(), _key_hint(reply)
            )
        high //= 2
    raise RoomError(
        "the server refuses prompts of token ids", hint="prompts = 'text' in the plan, or --prompts"
    )


async def _words(
    plan: Plan, server: Server, route: str, fetch: Fetch, notes: list[str]
) -> tuple[dict[str, object], PromptSource]:
    counted: tuple[Tokenize, PromptSource] | None = None
    remote = _server_tokenizer(server, fetch)
    if plan.tokenizer is not None:
        counted = _local_tokenizer(Path(plan.tokenizer)), PromptSource.LOCAL_TOKENIZER
    else:
        try:
            await remote("time")
            counted = remote, PromptSource.SERVER_TOKENIZER
        except RoomError:
            pass
    words: Sequence[str] = WORDS
    per_item = 1.0
    if counted is not None:
        words, per_item = await single_tokens(counted[0])
        if per_item != 1.0:
            notes.append(f"a word is {per_item:.2f} tokens in the mean: lengths are approximate")
    # What a template adds, and, with no tokenizer, what a word is: from the server's own count.
    counts = []
    for number in PROBE_WORDS:
        text = " ".join(words[i % len(words)] for i in range(number))
        reply = await _probe(server, route, text, fetch)
        tokens = _prompt_tokens(reply)
        if not reply.ok:
            raise RoomError(
                f"the server refuses a probe with {reply.status}", reply.words(), _key_hint(reply)
            )
        if tokens is None:
            break
        counts.append(tokens)
    if len(counts) < len(PROBE_WORDS):
        notes.append("the server reports no usage: the overhead of its template is not known")
        overhead = 0.0
    elif counted is None:
        per_item = (counts[1] - counts[0]) / (PROBE_WORDS[1] - PROBE_WORDS[0])
        overhead = counts[0] - per_item * PROBE_WORDS[0]
    else:
        overhead = counts[0] - per_item * PROBE_WORDS[0]
    prompt: dict[str, object] = {
        "kind": "words",
        "words": list(words),
        "per_item": round(per_item, 4) or 1.0,
        "overhead": max(0, round(overhead)),
    }
    return prompt, counted[1] if counted is not None else PromptSource.CALIBRATED


async def single_tokens(count: Tokenize) -> tuple[list[str], float]:
    """The words that are one token each behind a blank; else all, with their mean.

    Words are counted in groups behind a first one, so that special tokens and the odd first
    word cancel out.
    """
    base = await count("time")
    groups = [WORDS[i : i + _GROUP] for i in range(0, len(WORDS), _GROUP)]
    kept: list[str] = []
    tokens = 0
    for group in groups:
        more = await count(" ".join(("time", *group))) - base
        tokens += more
        if more == len(group):
            kept.extend(group)
    if len(kept) >= 2 * _GROUP:
        return kept, 1.0
    return list(WORDS), max(0.01, tokens / len(WORDS))


def _server_tokenizer(server: Server, fetch: Fetch) -> Tokenize:
    async def count(text: str) -> int:
        if server.engine == "llamacpp":
            body: dict[str, object] = {"content": text}
        elif server.engine == "tgi":
            body = {"inputs": text}
        else:
            body = {"prompt": text}
            if server.model:
                body["model"] = server.model
        reply = await fetch("POST", "/tokenize", body)
        value = reply.json()
        if reply.ok:
            if isinstance(value, list):
                return len(value)
            if isinstance(value, dict):
                if isinstance(value.get("count"), int):
                    return int(value["count"])
                if isinstance(value.get("tokens"), list):
                    return len(value["tokens"])
        raise RoomError("the server has no tokenizer route", f"/tokenize answers {reply.status}")

    return count


def _local_tokenizer(path: Path) -> Tokenize:
    """A `tokenizer.json`, read by the `tokenizers` package. Raises UsageError without either."""
    if not path.is_file():
        raise UsageError(f"there is no tokenizer at {path}", hint="give a tokenizer.json")
    try:
        library = importlib.import_module("tokenizers")
    except ImportError as error:
        raise UsageError(
            "a local tokenizer needs the package `tokenizers`",
            hint="pip install tokenizers, or let the server count: leave `tokenizer` out",
        ) from error
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises bare exceptions of its own making.
        raise UsageError(f"the tokenizer cannot be read: {path}", str(error)) from error

    async def count(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    return count


async def _probe(server: Server, route: str, prompt: object, fetch: Fetch) -> Reply:
    """A request for one token, not streamed."""
    ids = not isinstance(prompt, str)
    if route == "sglang":
        body: dict[str, object] = {
            "input_ids" if ids else "text": prompt,
            "sampling_params": {"max_new_tokens": 1},
        }
        path = "/generate"
    elif route == "llamacpp":
        body, path = {"prompt": prompt, "n_predict": 1, "cache_prompt": False}, "/completion"
    elif route == "tgi":
        body = {"inputs": prompt, "parameters": {"max_new_tokens": 1, "details": True}}
        path = "/generate"
    elif route == "chat":
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
        path = "/v1/chat/completions"
    else:
        body, path = {"prompt": prompt, "max_tokens": 1}, "/v1/completions"
    if path.startswith("/v1") and server.model:
        body["model"] = server.model
    return await fetch("POST", path, body, timeout_s=120.0)


def _prompt_tokens(reply: Reply) -> int | None:
    fields = reply.fields()
    for holder, name in (
        (fields.get("usage"), "prompt_tokens"),
        (fields.get("meta_info"), "prompt_tokens"),
        (fields, "tokens_evaluated"),
    ):
        if isinstance(holder, dict) and isinstance(holder.get(name), int):
            return int(holder[name])
    return None


def _key_hint(reply: Reply) -> str:
    return "a key is needed: --api-key-env NAME" if reply.status in (401, 403) else ""


def _parts_key(plan: Plan) -> object:
    return msgspec.to_builtins(plan.parts)
