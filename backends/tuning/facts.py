"""The facts document: what was read on a host, value or error, with source, time and vantage.

A fact's key is the path of the file it was read from (`/proc/sys/vm/swappiness`), or a name with
slashes for what has no path: `gpu/0000:06:00.0/power_limit_w`, `pci/0000:06:00.0/width`,
`cuda/init`. What an agent gathers, what a colleague pasted and what a saved file holds are the
same document, so the same rules judge all three.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from backends.errors import RoomError
from backends.text import clean

FORMAT: Final = 1
MAX_FACTS: Final = 200_000
MAX_VALUE_CHARS: Final = 65_536
MAX_LIST_ITEMS: Final = 20_000
MAX_SEEN_CHARS: Final = 400

Value: TypeAlias = str | int | float | bool | list[str]


class Vantage(StrEnum):
    """From where a fact was seen."""

    HOST = "host"
    """Bare metal, or the hypervisor of a guest."""
    GUEST = "guest"
    """Inside a container or a virtual machine."""


class FactsError(RoomError):
    """A facts document cannot be used."""

    exit_code = 2


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that was read.

    Attributes:
        key: Path or name; see the module's description.
        value: What was read, or None with `error` saying why not.
        source: The path, command or file and line it came from.
        error: errno name or message where reading failed.
        time: When it was read, ISO 8601 in UTC; empty when the text does not say.
        vantage: Host or guest.
        needs_root: Whether reading it takes privileges that were not at hand, or may not be.
        seen: The raw words it was read from, cut to 400 characters.
    """

    key: str
    value: Value | None = None
    source: str = ""
    error: str | None = None
    time: str = ""
    vantage: Vantage = Vantage.HOST
    needs_root: bool = False
    seen: str = ""


class FactsDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """All facts of one host, and of its hypervisor where that was asked too.

    Attributes:
        facts: In the order they were read.
        host: Name of the host, empty when unknown.
        boot_id: Kernel's boot id; a fix is never applied under another one.
        gathered_at: ISO 8601 in UTC.
        format: Version of this document's form.
        derived: Whether `backends.tuning.normalise` has been over it.
    """

    facts: list[Fact] = []
    host: str = ""
    boot_id: str = ""
    gathered_at: str = ""
    format: int = FORMAT
    derived: bool = False


_DECODER: Final = msgspec.json.Decoder(FactsDocument)


def decode(data: bytes | str) -> FactsDocument:
    """Read a saved facts document, with every string cleaned.

    Raises:
        FactsError: Not JSON, not of this form, of a newer format, or too large.
    """
    try:
        document = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise FactsError(
            "not a facts document",
            clean(str(error), 300),
            "expected what `gpuroom facts HOST` prints",
        ) from error
    if document.format > FORMAT:
        raise FactsError(
            f"facts document of format {document.format}",
            f"this version reads formats up to {FORMAT}",
            "update gpuroom",
        )
    if len(document.facts) > MAX_FACTS:
        raise FactsError(
            "facts document too large", f"{len(document.facts)} facts, at most {MAX_FACTS}"
        )
    return msgspec.structs.replace(
        document,
        facts=[clean_fact(fact) for fact in document.facts],
        host=clean(document.host, 255),
        boot_id=clean(document.boot_id, 64),
        gathered_at=clean(document.gathered_at, 64),
    )


def encode(document: FactsDocument) -> bytes:
    """The document as JSON, two spaces of indent, one line feed at the end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def clean_fact(fact: Fact) -> Fact:
    """`fact` with its strings made safe for a terminal and bounded; itself, where they are."""
    if not isinstance(fact.value, list) and len(fact.time) <= 64:
        words = f"{fact.key}{fact.source}{fact.error}{fact.seen}{fact.value}{fact.time}"
        if len(words) <= MAX_SEEN_CHARS and words.isprintable():
            return fact
    return Fact(
        key=clean(fact.key, 512),
        value=clean_value(fact.value),
        source=clean(fact.source, 512),
        error=None if fact.error is None else clean(fact.error, 512),
        time=clean(fact.time, 64),
        vantage=fact.vantage,
        needs_root=fact.needs_root,
        seen=clean(fact.seen, MAX_SEEN_CHARS),
    )


def clean_value(value: Value | None) -> Value | None:
    """A value with its text cleaned line by line; numbers pass as they are."""
    if isinstance(value, str):
        if "\n" not in value:
            return clean(value, MAX_VALUE_CHARS)
        lines = value[:MAX_VALUE_CHARS].split("\n")
        return "\n".join(clean(line.rstrip("\r")) for line in lines)
    if isinstance(value, list):
        return [clean(item) for item in value[:MAX_LIST_ITEMS]]
    return value


def merge(documents: Iterable[FactsDocument]) -> FactsDocument:
    """Several documents of one machine as one; of two values for one key, the later stays."""
    merged: dict[tuple[Vantage, str], Fact] = {}
    host = boot_id = gathered_at = ""
    for document in documents:
        host = host or document.host
        boot_id = boot_id or document.boot_id
        gathered_at = max(gathered_at, document.gathered_at)
        for fact in document.facts:
            place = (fact.vantage, fact.key)
            known = merged.get(place)
            # A reading that failed never displaces one that worked.
            if known is None or fact.value is not None or known.value is None:
                merged[place] = fact
    return FactsDocument(list(merged.values()), host, boot_id, gathered_at)
