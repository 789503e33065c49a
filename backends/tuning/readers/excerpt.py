"""A file's lines with their numbers, cut where it says that what follows is of another machine."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from backends.text import clean
from backends.tuning.facts import Fact, Value, Vantage, clean_fact

MAX_CHARS: Final = 16 << 20
MAX_LINES: Final = 200_000
MAX_LINE_CHARS: Final = 4096
MAX_QUOTES: Final = 4
"""How often a mail may have been answered."""

_HEADING: Final = re.compile(
    r"^\s*(?:#+|=+|-{2,}|\[|\*+|@+)\s*(?:(?:on|in|inside|from|as seen (?:from|by))\s+)?(?:the\s+)?"
    r"(?P<who>host|hypervisor|pve|proxmox|bare[- ]?metal|node|"
    r"container|guest|lxc|ct|vm|pod|docker|inside)\b(?!\s*[=:]\s*\S+=)",
    re.IGNORECASE,
)
PROMPT: Final = re.compile(r"^(?:(?:\([\w.-]+\) )?\[?[\w.-]+@[\w.-]+[^$#]{0,80}[$#%]|[$#])(?: |$)")
"""A shell's prompt, with or without a command behind it."""
_COLOUR_LEFT: Final = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m|\[m(?![\w ])")
"""What a paste without escape characters leaves of colours: `[4mGPU0` of `topo -m`."""
_GUESTS: Final = frozenset({"container", "guest", "lxc", "ct", "vm", "pod", "docker", "inside"})
_KINDS: Final = {
    "lxc": "lxc",
    "ct": "lxc",
    "vm": "kvm",
    "docker": "docker",
    "pod": "pod",
    "container": "container",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One cleaned line; tabs have become four spaces."""

    text: str
    number: int


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of one file seen from one vantage."""

    name: str
    vantage: Vantage
    lines: tuple[Line, ...]
    heading: str = ""

    def fact(
        self, key: str, value: Value | None, line: Line | None = None, error: str | None = None
    ) -> Fact:
        """A fact read from `line` of this file."""
        where = f"{self.name}:{line.number}" if line else self.name
        return clean_fact(
            Fact(key, value, where, error, vantage=self.vantage, seen=line.text if line else "")
        )

    @property
    def text(self) -> str:
        """All lines joined."""
        return "\n".join(line.text for line in self.lines)


def split(name: str, text: str) -> Iterator[Excerpt]:
    """The excerpts of a file: one, unless headings such as `# host` and `# container` part it."""
    name = clean(name.rpartition("/")[2], 200)
    vantage, heading = Vantage.HOST, ""
    lines: list[Line] = []
    for number, raw in _rejoined(_unwrapped(text[:MAX_CHARS])[:MAX_LINES]):
        cleaned = clean(raw, MAX_LINE_CHARS)
        if "m" in cleaned and "[" in cleaned:
            cleaned = _COLOUR_LEFT.sub("", cleaned)
        line = Line(cleaned.rstrip(), number)
        if match := _HEADING.match(line.text):
            if lines:
                yield Excerpt(name, vantage, tuple(lines), heading)
            lines = []
            heading = match["who"].lower()
            vantage = Vantage.GUEST if heading in _GUESTS else Vantage.HOST
        lines.append(line)
    if lines:
        yield Excerpt(name, vantage, tuple(lines), heading)


_TOP: Final = re.compile(
    r"\+[-=]{5}|\|[ =]|GPU [0-9A-Fa-f]{8}:|(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z3]|"
    r"\[|[A-Z][a-z]{2} +\d+ \d\d:|\d{4}-\d\d-\d\dT|[^\w\s] ?[\w@.-]+\.service |"
    r"={5,}NVSMI|(?:Attached GPUs|Driver Version|Architecture|CPU\(s\)|arch|available|analyzing CPU"
    r"|BOOT_IMAGE|Character devices|GPU0|GPU \d+) *[:=(]|(?:\[\S*)?GPU0\b"
)
"""What stands at the left edge where a tool prints it."""
_ENTITIES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&"))


def _unwrapped(text: str) -> list[str]:
    """Lines without what an editor, a quoting mail, a list or a page put before all of them."""
    text = text.removeprefix("\ufeff").replace("\u00a0", " ")
    if "&lt;" in text or "&gt;" in text:
        for entity, sign in _ENTITIES:
            text = text.replace(entity, sign)
    lines = text.split("\n")
    for _ in range(MAX_QUOTES):
        if not any(map(_quoted, lines)):
            break
        lines = [line for run in _runs(lines, _quoted) for line in _unquoted(run)]
    inset = [line for line in lines if line.strip()]
    if inset and all(_is_inset(line) for line in inset):
        return textwrap.dedent("\n".join(lines)).split("\n")
    return [line for run in _runs(lines, _is_inset) for line in _moved(run)]


def _runs(lines: list[str], key: Callable[[str], bool]) -> Iterator[list[str]]:
    return (list(run) for _, run in groupby(lines, key))


def _quoted(line: str) -> bool:
    return line.startswith(">")


def _unquoted(run: list[str]) -> list[str]:
    """Quoted lines without their marks."""
    if not _quoted(run[0]):
        return run
    return [line[1:].removeprefix(" ") for line in run]


def _is_inset(line: str) -> bool:
    return not line or line[0].isspace()


def _moved(run: list[str]) -> list[str]:
    """A block that was set in as a whole, at the left edge; others as they are."""
    if not _is_inset(run[0]):
        return run
    moved = textwrap.dedent("\n".join(run)).split("\n")
    return moved if any(_TOP.match(line) for line in moved) else run


TERMINAL_WIDTHS: Final = frozenset({80, 100, 120, 132, 140, 150, 160, 180, 200})
_RECORD: Final = re.compile(
    r"\||\+[-=]|\s{8}|\t|\[ *\d|GPU|[0-9a-f:]{2,7}:[0-9a-f]{2}\.\d |\S*[$#] "
)
"""What begins a line of its own, whatever stands before it."""


def _rejoined(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; those that a terminal broke at its edge are one again."""
    lines = [line.rstrip("\r") for line in lines]
    widest = max(map(len, lines), default=0)
    full = sum(len(line) == widest for line in lines)
    if widest not in TERMINAL_WIDTHS or full < 2:
        yield from enumerate(lines, 1)
        return
    held, first = "", 0
    for number, line in enumerate(lines, 1):
        if first and len(held) < MAX_LINE_CHARS and not _RECORD.match(line):
            held += line
        else:
            if first:
                yield first, held
            held, first = line, number
        if len(line) < widest:
            yield first, held
            held, first = "", 0
    if first:
        yield first, held


MIN_WIDTH: Final = 58
"""Nothing breaks lines at fewer characters: a word that had fitted was not put on a new one."""
MAX_WRAPPED: Final = 4
_NEW: Final = re.compile(r"```|[#=|*-]{2}|\||\+[-=]|.{0,60}:$")


def continued(lines: Iterable[Line], is_record: Callable[[str], object]) -> Iterator[Line]:
    """Lines with what was broken at words put together again.

    A line that begins no record, right behind a long one that does, is its rest. Where the first
    ends at a terminal's edge nothing was lost between the two, else a blank.
    """
    held: Line | None = None
    last = pieces = 0
    for line in lines:
        text = line.text
        record = bool(is_record(text))
        if held is not None:
            if (
                not record
                and text.strip()
                and last + len(text.split(None, 1)[0]) >= MIN_WIDTH
                and pieces < MAX_WRAPPED
                and not PROMPT.match(text)
                and not _NEW.match(text)
            ):
                between = "" if last in TERMINAL_WIDTHS else " "
                held = Line(held.text + between + text.lstrip(), held.number)
                last, pieces = len(text), pieces + 1
                continue
            yield held
            held = None
        if record:
            held, last, pieces = line, len(text), 0
        else:
            yield line
    if held is not None:
        yield held


def kind_of(heading: str) -> str:
    """The sort of guest that a heading names; empty when it does not say."""
    return _KINDS.get(heading, "")
