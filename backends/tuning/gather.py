"""Asks hosts for their facts: a machine, or a guest and its hypervisor as one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.clock import SYSTEM_CLOCK
from backends.errors import AgentError, LinkError, RoomError
from backends.model import LinkState
from backends.session import HostSession
from backends.text import clean
from backends.tuning.facts import (
    MAX_VALUE_CHARS,
    Fact,
    FactsDocument,
    Value,
    Vantage,
    clean_fact,
    merge,
)
from backends.tuning.normalise import normalise
from backends.tuning.posix import NOTE, gather_posix
from backends.tuning.probes import Probe, ProbeKind, probes_for

DEADLINE_S: Final = 8.0
MAX_PACKED_CHARS: Final = 32 << 20
MAX_UNPACKED_BYTES: Final = 96 << 20
POLL_S: Final = 0.02
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Reading:
    """How facts are read.

    Attributes:
        sudo: Try `sudo -n` for what only root may read.
        password: For sudo, given once; never stored or written down.
        root: A folder that stands for `/` on the host; for trials.
        below: The same on the hypervisor below it, where it is another.
        deadline_s: What hangs is left behind after that.
    """

    sudo: bool = False
    password: str | None = None
    root: str = "/"
    below: str = ""
    deadline_s: float = DEADLINE_S

    def roots(self, vantages: Iterable[Vantage]) -> dict[Vantage, str]:
        """The folder by vantage; a host alone is seen from `HOST`."""
        both = Vantage.GUEST in vantages
        result = {Vantage.HOST: (self.below or self.root) if both else self.root}
        return {**result, Vantage.GUEST: self.root} if both else result


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was read.

    Attributes:
        document: All facts, normalised.
        boot_ids: By vantage: the boot that they are of.
        took_s: By vantage: seconds on the host itself.
        notes: What could not be read, and why, in words.
    """

    document: FactsDocument
    boot_ids: dict[Vantage, str]
    took_s: dict[Vantage, float]
    notes: tuple[str, ...] = ()


class _Answer(msgspec.Struct):
    facts: list[tuple[str, Value | None, str | None, str, int, bool]]
    at: float = 0.0
    host: str = ""
    boot_id: str = ""
    took_s: float = 0.0
    denied: int = 0
    note: str = ""


_DECODER: Final = msgspec.json.Decoder(_Answer)


async def reached(session: HostSession, timeout_s: float) -> None:
    """Wait until a host answers.

    Raises:
        LinkError: It was not reached in time, or refused; in the words of the link.
    """
    until_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while session.snapshot.link.state is not LinkState.LIVE:
        link = session.snapshot.link
        refused = link.state is LinkState.REFUSED or (
            link.state is LinkState.LOST and bool(link.error)
        )
        if refused or SYSTEM_CLOCK.monotonic_s() >= until_s:
            raise LinkError(
                f"cannot reach {session.name}",
                link.error or f"the link is {link.state.value} after {timeout_s:g} s",
                link.hint or f"`gpuroom doctor {session.name}` says where it hangs",
            )
        await asyncio.sleep(POLL_S)


async def gather(
    session: HostSession,
    *,
    hypervisor: HostSession | None = None,
    reading: Reading | None = None,
    timeout_s: float = 30.0,
    asked_by: str = "tuning",
    probes: Sequence[Probe] | None = None,
    also: Sequence[Probe] = (),
) -> Gathered:
    """The facts of a host, and of the hypervisor below it at the same time.

    A hypervisor that cannot be asked is a note, not an error: the guest is judged without it.
    `probes` takes the place of the table; what the operator's own checks read comes in `also`.

    Raises:
        LinkError: The host is out of reach.
        AgentError: It gave no facts: no python3 there, or the agent failed.
    """
    reading = reading or Reading()
    own = Vantage.HOST if hypervisor is None else Vantage.GUEST
    asked = [(session, own)]
    if hypervisor is not None:
        asked.append((hypervisor, Vantage.HOST))
    roots = reading.roots([where for _, where in asked])
    results = await asyncio.gather(
        *(
            _one(
                one,
                where,
                replace(reading, root=roots[where]),
                timeout_s,
                asked_by,
                (*(probes_for(where) if probes is None else probes), *also),
            )
            for one, where in asked
        ),
        return_exceptions=True,
    )
    documents: list[FactsDocument] = []
    boot_ids: dict[Vantage, str] = {}
    took_s: dict[Vantage, float] = {}
    notes: list[str] = []
    for (one, where), result in zip(asked, results, strict=True):
        if isinstance(result, RoomError) and one is not session:
            notes.append(f"{one.name} below was not read: {result}")
            continue
        if isinstance(result, BaseException):
            raise result
        document, answer = result
        documents.append(document)
        boot_ids[where] = document.boot_id
        took_s[where] = answer.took_s
        if answer.note:
            notes.append(f"{one.name}: {clean(answer.note, 300)}")
        elif answer.denied:
            notes.append(f"{one.name}: {answer.denied} readings need root")
    whole = merge(documents) if len(documents) > 1 else documents[0]
    whole = msgspec.structs.replace(whole, host=session.name, derived=True)
    return Gathered(whole, boot_ids, took_s, tuple(notes))


async def _one(
    session: HostSession,
    vantage: Vantage,
    reading: Reading,
    timeout_s: float,
    asked_by: str,
    wanted: Sequence[Probe],
) -> tuple[FactsDocument, _Answer]:
    await reached(session, timeout_s)
    if session.snapshot.link.via in ("nvidia-smi", "tools"):
        return await _without_python(session, vantage, reading, wanted)
    rows = [
        (probe.kind.value, probe.target, list(probe.argv), probe.limit_bytes, probe.root)
        for probe in wanted
    ]
    params: dict[str, object] = {
        "probes": rows,
        "root": reading.root,
        "deadline_s": reading.deadline_s,
        "sudo": reading.sudo,
    }
    if reading.password is not None:
        params["password"] = reading.password
    pieces: list[str] = []
    size = 0
    try:
        async with asyncio.timeout(reading.deadline_s * 2 + timeout_s):
            stream = session.stream(
                "facts.gather", params, asked_by=asked_by, what="read the facts", timeout_s=20.0
            )
            async with contextlib.aclosing(stream):
                async for piece in stream:
                    if not isinstance(piece, str) or size + len(piece) > MAX_PACKED_CHARS:
                        raise AgentError(f"{session.name} gave facts that cannot be read")
                    size += len(piece)
                    pieces.append(piece)
    except TimeoutError:
        raise AgentError(f"{session.name} gave no facts in time") from None
    return await asyncio.to_thread(_document, "".join(pieces), vantage, session.name)


async def _without_python(
    session: HostSession, vantage: Vantage, reading: Reading, wanted: Sequence[Probe]
) -> tuple[FactsDocument, _Answer]:
    """The same by programs that every host has."""
    began_s = SYSTEM_CLOCK.monotonic_s()
    try:
        async with asyncio.timeout(reading.deadline_s * 4):
            boot = Probe(ProbeKind.FILE, BOOT_ID)
            facts = await gather_posix(session, (*wanted, boot), vantage, reading.root)
    except TimeoutError:
        raise AgentError(f"{session.name} gave no facts in time") from None
    found = next((str(f.value) for f in facts if f.key == BOOT_ID and f.value), "")
    took_s = SYSTEM_CLOCK.monotonic_s() - began_s
    answer = _Answer(facts=[], boot_id=found.strip(), took_s=took_s, note=NOTE)
    return await asyncio.to_thread(_normalised, facts, answer), answer


def _document(packed: str, vantage: Vantage, name: str) -> tuple[FactsDocument, _Answer]:
    """Unpack, normalise at full length, then clean and bound."""
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
        if not inflate.eof:
            raise ValueError("too long, or cut")
        answer = _DECODER.decode(data)
    except (ValueError, zlib.error, msgspec.DecodeError) as error:
        raise AgentError(f"{name} gave facts that cannot be read", clean(str(error))) from error
    stamps = {ms: _stamp(answer.at + ms / 1e3) for ms in {row[4] for row in answer.facts}}
    facts = [
        Fact(key, value, source or key, error, stamps[ms], vantage, needs_root)
        for key, value, error, source, ms, needs_root in answer.facts
    ]
    return _normalised(facts, answer), answer


def _normalised(facts: list[Fact], answer: _Answer) -> FactsDocument:
    """Named facts too, then all of them cleaned and bounded."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    raw = FactsDocument(facts, answer.host, answer.boot_id, now)
    document = normalise(raw)
    kept = [
        clean_fact(fact)
        for fact in document.facts
        # What long output says is in the named facts by now; cut, it would say it wrongly.
        if not (isinstance(fact.value, str) and len(fact.value) > MAX_VALUE_CHARS)
    ]
    return msgspec.structs.replace(
        document,
        facts=kept,
        host=clean(answer.host, 255),
        boot_id=clean(answer.boot_id, 64),
    )


def _stamp(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return ""
