"""Requests: lengths by distribution, prompts that share a prefix on purpose or not at all.

Everything is drawn from the seed and the request's number, so any worker makes the same request.
Prompts are slices of one long random text, each behind a leading block of its own: no two share
a prefix, so a prefix cache helps none of them, and making one costs a copy.
"""

from __future__ import annotations

import array
import json
import math
import random

LEAD = 16
"""Items in the leading block that makes a prompt unique."""
_POOL_ITEMS = 32768
_MAX_IDS = 8192
_PROMPT = "@@prompt@@"
_LIMIT = 987654321987

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "sglang": "/generate",
    "llamacpp": "/completion",
    "tgi": "/generate_stream",
}


class Request:
    """One request to be sent.

    Attributes:
        body: The JSON body.
        asked_input: Prompt tokens meant, or None where nobody knows.
        asked_output: Most tokens asked for.
        kind: Which part of a mix it is.
    """

    __slots__ = ("asked_input", "asked_output", "body", "kind")

    def __init__(
        self, body: bytes, asked_input: int | None, asked_output: int, kind: str | None
    ) -> None:
        self.body = body
        self.asked_input = asked_input
        self.asked_output = asked_output
        self.kind = kind


def draw(length: dict[str, object], rng: random.Random) -> int:
    """A length from its distribution; at least 1.

    `fixed` (value), `uniform` (low, high), `normal` (mean, stdev), `lognormal` (mean, stdev, of
    the lengths themselves), `choice` (values, weights); all but the first two may be bounded by
    `low` and `high`.
    """
    kind = length["kind"]
    if kind == "fixed":
        return int(length["value"])  # type: ignore[call-overload, no-any-return]
    if kind == "uniform":
        return rng.randint(length["low"], length["high"])  # type: ignore[arg-type]
    if kind == "choice":
        return int(rng.choices(length["values"], length.get("weights"))[0])  # type: ignore[arg-type]
    mean = float(length["mean"])  # type: ignore[arg-type]
    stdev = float(length["stdev"])  # type: ignore[arg-type]
    if kind == "lognormal":
        variance = math.log(1.0 + (stdev / mean) ** 2)
        value = rng.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
    else:
        value = rng.gauss(mean, stdev)
    low, high = length.get("low") or 1, length.get("high") or 1 << 30
    return max(1, low, min(high, round(value)))  # type: ignore[call-overload, no-any-return]


class Pool:
    """A long random sequence of items, ready-made as text, to cut prompts from."""

    def __init__(self, items: list[bytes], glue: bytes, seed: str, size: int) -> None:
        rng = random.Random(seed)
        chosen = rng.choices(items, k=size)
        self._items = items
        self._glue = glue
        self._size = size
        self._text = glue.join(chosen) + glue
        offsets = array.array("I", [0])
        width = len(glue)
        for item in chosen:
            offsets.append(offsets[-1] + len(item) + width)
        self._offsets = offsets

    def cut(self, key: str, length: int, unique: bool) -> bytes:
        """`length` items glued together, chosen by `key`; behind a block of their own if `unique`.

        Two keys give the same leading block with a probability of about (number of items)^-16.
        """
        rng = random.Random(key)
        parts = []
        if unique:
            lead = min(length, LEAD)
            parts.append(self._glue.join(rng.choices(self._items, k=lead)))
            length -= lead
        start = rng.randrange(self._size)
        while length > 0:
            count = min(length, self._size - start)
            parts.append(
                self._text[self._offsets[start] : self._offsets[start + count] - len(self._glue)]
            )
            length -= count
            start = 0
        return self._glue.join(parts)


class Workload:
    """Makes the requests of a job.

    `job` has `route`, `model`, `stream`, `seed`, `nonce`, `ignore_eos`, `extra` (body fields as
    they are), `usage` (ask for it), `continuous_usage`, `prompt` (how prompts are made) and
    `parts` (the mix). The prompt is of kind `ids` (from `low` up to `high`), `words` (each
    `per_item` tokens; `overhead` tokens are the chat template's) or `dataset` (`items`).
    """

    def __init__(self, job: dict[str, object]) -> None:
        self._route = str(job["route"])
        self._seed = str(job["seed"])
        self._nonce = str(job["nonce"])
        prompt = job["prompt"]
        assert isinstance(prompt, dict)
        self._kind = prompt["kind"]
        self._overhead = int(prompt.get("overhead") or 0)
        self._per_item = float(prompt.get("per_item") or 1.0)
        self._parts: list[dict[str, object]] = job["parts"]  # type: ignore[assignment]
        self._weights = [float(part.get("weight") or 1.0) for part in self._parts]  # type: ignore[arg-type]
        self._items: list[dict[str, object]] = []
        self._pool: Pool | None = None
        if self._kind == "ids":
            band = range(prompt["low"], prompt["high"])
            if len(band) > _MAX_IDS:
                band = random.Random(self._seed).sample(band, _MAX_IDS)  # type: ignore[assignment]
            tokens = [b"%d" % number for number in band]
            self._pool = Pool(tokens, b",", self._seed, _POOL_ITEMS)
        elif self._kind == "words":
            words = [json.dumps(word)[1:-1].encode() for word in prompt["words"]]
            self._pool = Pool(words, b" ", self._seed, _POOL_ITEMS)
        else:
            self._items = prompt["items"]
        self._template = self._make_template(job)

    def _make_template(self, job: dict[str, object]) -> tuple[bytes, bytes, bytes]:
        stream = bool(job["stream"])
        extra = dict(job.get("extra") or {})  # type: ignore[call-overload]
        ignore = bool(job["ignore_eos"])
        body: dict[str, object] = {}
        if self._route == "chat":
            body = {"messages": _PROMPT, "max_tokens": _LIMIT}
        elif self._route == "completions":
            body = {"prompt": _PROMPT, "max_tokens": _LIMIT}
        elif self._route == "sglang":
            parameters = {"max_new_tokens": _LIMIT, "ignore_eos": ignore}
            parameters.update(extra.pop("sampling_params", {}))
            name = "input_ids" if self._kind == "ids" else "text"
            body = {name: _PROMPT, "sampling_params": parameters}
        elif self._route == "llamacpp":
            body = {"prompt": _PROMPT, "n_predict": _LIMIT, "return_tokens": True}
        else:
            parameters = {"max_new_tokens": _LIMIT, "details": True}
            parameters.update(extra.pop("parameters", {}))
            body = {"inputs": _PROMPT, "parameters": parameters}
        if self._route in ("chat", "completions", "llamacpp") and ignore:
            body["ignore_eos"] = True
        if self._route in ("chat", "completions"):
            if job.get("model"):
                body["model"] = job["model"]
            if stream and job.get("usage", True):
                body["stream_options"] = {"include_usage": True}
                if job.get("continuous_usage"):
                    body["stream_options"]["continuous_usage_stats"] = True  # type: ignore[index]
        if self._route != "tgi":
            body["stream"] = stream
        body.update(extra)
        text = json.dumps(body)
        before, after = text.split(json.dumps(_PROMPT))
        middle, end = after.split(str(_LIMIT))
        return before.encode(), middle.encode(), end.encode()

    def request(self, step: dict[str, object], number: int, entry: list[object] | None) -> Request:
        """Request `number` of a step; `entry` is its line of a trace, if it is replayed from one.

        Lengths depend on the step's `index`, prompts on its `repetition` too: a repeated step has
        the same lengths in the same order, and new prompts.
        """
        key = "%s/%s/%d" % (self._seed, step["index"], number)
        rng = random.Random(key)
        part = self._parts[0]
        if len(self._parts) > 1:
            part = rng.choices(self._parts, self._weights)[0]
        kind = str(part["name"]) if part.get("name") and len(self._parts) > 1 else None
        if self._items:
            return self._from_dataset(step, number, part, rng, kind)
        if entry is not None:
            asked_input, asked_output = int(entry[1]), int(entry[2])  # type: ignore[call-overload]
        else:
            asked_input = draw(part["input"], rng)  # type: ignore[arg-type]
            asked_output = draw(part["output"], rng)  # type: ignore[arg-type]
        pool = self._pool
        assert pool is not None
        left = max(1, round((asked_input - self._overhead) / self._per_item))
        pieces = []
        if entry is not None and len(entry) > 3:
            # A trace names the blocks of its prompts: equal names, equal tokens.
            size = max(1, left // max(1, len(entry[3])))  # type: ignore[arg-type]
            for block in entry[3]:  # type: ignore[attr-defined]
                take = min(size, left)
                if take:
                    pieces.append(pool.cut("%s/%s" % (self._nonce, block), take, True))
                    left -= take
        else:
            prefix = part.get("prefix")
            if prefix:
                group = rng.randrange(int(prefix.get("groups") or 1))  # type: ignore[attr-defined]
                take = min(int(prefix["tokens"]), left - 1)  # type: ignore[index]
                if take > 0:
                    name = "%s/%s/prefix/%s/%d" % (self._nonce, step["index"], kind, group)
                    pieces.append(pool.cut(name, take, True))
                    left -= take
        if left:
            name = "%s/%s/%s/%d" % (self._nonce, step["index"], step["repetition"], number)
            pieces.append(pool.cut(name, left, True))
        if self._kind == "ids":
            prompt = b"[" + b",".join(pieces) + b"]"
        else:
            prompt = b'"' + b" ".join(pieces) + b'"'
        if self._route == "chat":
            prompt = b'[{"role": "user", "content": ' + prompt + b"}]"
        return self._fill(prompt, asked_input, asked_output, kind)

    def _from_dataset(
        self,
        step: dict[str, object],
        number: int,
        part: dict[str, object],
        rng: random.Random,
        kind: str | None,
    ) -> Request:
        item = self._items[number % len(self._items)]
        prompt = item.get("messages") or item["prompt"]
        if self._route == "chat" and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        asked_output = item.get("output_tokens")
        if asked_output is None:
            asked_output = draw(part["output"], rng)  # type: ignore[arg-type]
        asked_input = item.get("input_tokens")
        return self._fill(json.dumps(prompt).encode(), asked_input, asked_output, kind)  # type: ignore[arg-type]

    def _fill(
        self, prompt: bytes, asked_input: int | None, asked_output: int, kind: str | None
    ) -> Request:
        before, middle, end = self._template
        body = b"".join((before, prompt, middle, b"%d" % asked_output, end))
        return Request(body, asked_input, asked_output, kind)
