"""Has a host measured: the agent's lines and its tools' output become `bench/...` facts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.errors import AgentError, ReadOnlyError
from backends.session import HostSession
from backends.text import clean
from backends.tuning.facts import Fact, FactsDocument, Value, Vantage, clean_fact
from backends.tuning.measurements.parts import BUSY_S, LOAD_S, Part
from backends.tuning.readers import nccl_tests, nvbandwidth
from backends.tuning.readers.excerpt import Excerpt, split

LIMIT_S: Final = 300.0
GRACE_S: Final = 60.0
BUSY: Final = 16
MAX_RESULTS: Final = 10_000
MAX_NOTES: Final = 100
MAX_OUTPUTS: Final = 16
MAX_OUTPUT_CHARS: Final = 256 * 1024
READERS: Final = {"nvbandwidth": nvbandwidth.read, "all_reduce_perf": nccl_tests.read}
"""By tool of the host: what reads its output."""


class Message(msgspec.Struct):
    """One piece of the agent's answer; see `backends.agent.remote.measure`."""

    key: str = ""
    value: Value | None = None
    error: str = ""
    said: str = ""
    tool: str = ""
    output: str = ""
    part: str = ""
    status: int | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured.

    Attributes:
        facts: `bench/...`, each with its source.
        failed: By part or tool, why it could not be measured.
    """

    facts: FactsDocument
    failed: dict[str, str]


async def measure(
    session: HostSession,
    parts: Sequence[Part],
    *,
    vantage: Vantage = Vantage.HOST,
    path: str = "",
    python: str = "",
    root: str = "",
    beside: bool = False,
    load_s: float = LOAD_S,
    busy_s: float = BUSY_S,
    limit_s: float = LIMIT_S,
    told: Callable[[str], None] = lambda said: None,
) -> Measured:
    """Measure on a host; the GPUs are busy meanwhile. Cancelled, it ends there too.

    Args:
        session: The host.
        parts: What.
        vantage: From where it is seen.
        path: A model on the host, whose largest file is read.
        python: The python there that has torch; looked for when left out.
        root: A folder that stands for `/` on the host; for trials.
        beside: Also where processes hold the GPUs: it was confirmed.
        load_s: How long the load of the part `link` lasts.
        busy_s: How long that of the part `busy` lasts.
        limit_s: What takes longer is ended.
        told: Is called with what it is at.

    Raises:
        ReadOnlyError: Processes hold the GPUs, and it was not confirmed.
        AgentError: Nothing was measured.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    params: dict[str, object] = {
        "parts": [part.name for part in parts],
        "path": path,
        "python": python,
        "root": root,
        "beside": beside,
        "load_s": load_s,
        "busy_s": busy_s,
        "limit_s": limit_s,
    }
    stream = session.stream(
        "measure.run", params, asked_by="tuning", what="measure", timeout_s=60.0
    )
    answer = _Answer(vantage, now, told)
    try:
        # The agent ends what it runs by itself; this is for one that hangs.
        async with asyncio.timeout(limit_s + GRACE_S), contextlib.aclosing(stream):
            async for piece in stream:
                answer.take(piece)
    except TimeoutError:
        why = f"no answer within {limit_s + GRACE_S:.0f} s: its driver may hang"
        raise AgentError(f"nothing was measured on {session.name}", why) from None
    facts, failed, end = answer.facts, answer.failed, answer.end
    if end is not None and end.status == BUSY:
        raise ReadOnlyError("nothing was measured", clean(end.words, 300), "add --yes")
    for tool, said in answer.printed.items():
        facts += tool_facts(tool, said, vantage, now)[:MAX_RESULTS]
    if end is None or not any(fact.value is not None for fact in facts):
        words = "; ".join(f"{part}: {why}" for part, why in failed.items())
        raise AgentError(
            f"nothing was measured on {session.name}",
            words or ("it ended early" if end is None else "there was nothing to measure"),
            "name the python that has torch with --python" if "torch" in words else "",
        )
    for part, why in failed.items():
        facts.append(clean_fact(Fact(f"bench/failed/{part}", why, "measured", None, now, vantage)))
    return Measured(FactsDocument(_once(facts), session.name), failed)


class _Answer:
    """The agent's pieces, put in order; never more of them than there is room for."""

    def __init__(self, vantage: Vantage, now: str, told: Callable[[str], None]) -> None:
        self._vantage = vantage
        self._now = now
        self._told = told
        self.facts: list[Fact] = []
        self.printed: dict[str, list[str]] = {}
        self.failed: dict[str, str] = {}
        self.end: Message | None = None

    def take(self, piece: object) -> None:
        """Take one in; what is none is left out."""
        message = parse(piece)
        if message is None:
            return
        if message.said:
            self._told(clean(message.said, 200))
        elif message.tool in READERS:
            outputs = self.printed.setdefault(message.tool, [])
            if len(outputs) < MAX_OUTPUTS:
                outputs.append(message.output[:MAX_OUTPUT_CHARS])
        elif message.part:
            if len(self.failed) < MAX_NOTES:
                words = clean(message.words, 300) or f"it ended with status {message.status}"
                self.failed[clean(message.part, 40)] = words
        elif message.status is not None:
            self.end = message
        elif message.key.startswith("bench/") and len(self.facts) < MAX_RESULTS:
            error = None if message.value is not None else message.error or "not known"
            fact = Fact(message.key, message.value, "measured", error, self._now, self._vantage)
            self.facts.append(clean_fact(fact))


def _once(facts: Sequence[Fact]) -> list[Fact]:
    """Of one key the last value: a tool of the host is believed over our own program.

    GPUs that a tool knows by index get the address that our program gave them in the same order.
    """
    places = [f.key.rpartition("/")[2] for f in facts if f.key.startswith("bench/name/")]
    places = sorted(dict.fromkeys(places))

    def addressed(key: str) -> str:
        return re.sub(
            r"(?<=/)index-(\d{1,3})(?=/)",
            lambda m: places[int(m[1])] if int(m[1]) < len(places) else m[0],
            key,
        )

    named = (msgspec.structs.replace(fact, key=addressed(fact.key)) for fact in facts)
    return list({fact.key: fact for fact in named}.values())


def parse(piece: object) -> Message | None:
    """One piece of the answer; None where it is none."""
    try:
        return msgspec.convert(piece, Message)
    except msgspec.ValidationError:
        return None


def tool_facts(tool: str, outputs: Sequence[str], vantage: Vantage, now: str = "") -> list[Fact]:
    """Facts of what a tool printed, once or several times: then the median, and how many runs."""
    reader = READERS.get(tool)
    values: dict[str, list[Fact]] = {}
    for output in outputs if reader is not None else ():
        lines = tuple(line for excerpt in split(tool, output) for line in excerpt.lines)
        for fact in reader(Excerpt(tool, vantage, lines)) if reader is not None else ():
            values.setdefault(fact.key, []).append(fact)
    result: list[Fact] = []
    for key, found in values.items():
        numbers = [f.value for f in found if isinstance(f.value, int | float)]
        middle = statistics.median(numbers) if numbers else found[-1].value
        result.append(Fact(key, middle, tool, None, now, vantage))
        if key.startswith("bench/allreduce/") and key.endswith("/value"):
            runs = key.removesuffix("value") + "runs"
            result.append(Fact(runs, len(found), tool, None, now, vantage))
    return result
