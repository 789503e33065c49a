"""A file's lines with their numbers, cut where it says that what follows is of another machine."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backends.text import clean
from backends.tuning.facts import Fact, Value, Vantage, clean_fact

MAX_CHARS: Final = 16 << 20
MAX_LINES: Final = 200_000
MAX_LINE_CHARS: Final = 4096

_HEADING: Final = re.compile(
    r"^\s*(?:#+|=+|-{2,}|\[|\*+|@+)\s*(?:(?:on|in|inside|from|as seen (?:from|by))\s+)?(?:the\s+)?"
    r"(?P<who>host|hypervisor|pve|proxmox|bare[- ]?metal|node|"
    r"container|guest|lxc|ct|vm|pod|docker|inside)\b(?!\s*[=:]\s*\S+=)",
    re.IGNORECASE,
)
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
    for number, raw in enumerate(_unwrapped(text[:MAX_CHARS])[:MAX_LINES], 1):
        cleaned = clean(raw.rstrip("\r"), MAX_LINE_CHARS)
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


def _unwrapped(text: str) -> list[str]:
    """Lines without what an editor, a quoting mail or a code block put before all of them."""
    lines = text.removeprefix("\ufeff").split("\n")
    filled = [line for line in lines if line.strip()]
    if filled and all(line.startswith(">") for line in filled):
        lines = [line.removeprefix(">").removeprefix(" ") for line in lines]
        filled = [line for line in lines if line.strip()]
    if filled and all(line[0].isspace() for line in filled):
        lines = textwrap.dedent("\n".join(lines)).split("\n")
    return lines


def kind_of(heading: str) -> str:
    """The sort of guest that a heading names; empty when it does not say."""
    return _KINDS.get(heading, "")
