"""Progress as servers print it: tqdm bars, percentages, rows of dots.

A bar is rewritten in place with carriage returns, or printed a line a step when the output is no
terminal; other text is often glued to its end, since a bar writes no line feed of its own.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec


class Progress(msgspec.Struct, frozen=True, gc=False):
    """One state of one bar."""

    label: str
    """What is counted, in the server's words; empty when the bar has no label."""
    done: float
    total: float | None
    elapsed_s: float | None = None
    """Time since the bar began, by its own clock."""

    @property
    def fraction(self) -> float | None:
        """Share that is done, 0 to 1; None where the total is not known."""
        if not self.total:
            return None
        return min(1.0, self.done / self.total)


_BAR: Final = re.compile(
    r"(?P<label>[^|\r\n]{0,160}?):?\s*"
    r"(?P<percent>\d{1,3})%(?:\s+Completed)?\s*\|(?:[^|\r\n]{0,200}\|)?\s*"
    r"(?P<done>\d[\d.]*)(?P<done_unit>[kKMGTP]?)i?B?/(?P<total>\d[\d.]*|\?)(?P<total_unit>[kKMGTP]?)i?B?"
    r"\s*\[(?P<elapsed>[\d:]+)(?:<[^\]]{0,60})?\]?"
)
_COUNTER: Final = re.compile(
    r"(?P<label>[^|\r\n]{0,160}?):?\s*(?P<done>\d+)(?:it|B)? "
    r"\[(?P<elapsed>\d\d:\d\d(?::\d\d)?), [^\]]{0,40}\]"
)
_DOTS: Final = re.compile(r"^\.{4,}(?=$|[^.])")
_DOTS_OF_A_MODEL: Final = 100
_UNIT: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def parse_progress(text: str) -> tuple[Progress, str] | None:
    """Read a bar at the start of `text`.

    Returns:
        The state of the bar and whatever was glued behind it (mostly empty), or None where
        `text` does not begin with a bar.
    """
    if "[" in text and ("%" in text or "it" in text):
        found = _BAR.match(text)
        if found is not None:
            total = found["total"]
            progress = Progress(
                label=found["label"].strip(),
                done=_number(found["done"], found["done_unit"]),
                total=None if total == "?" else _number(total, found["total_unit"]),
                elapsed_s=_clock(found["elapsed"]),
            )
            return progress, text[found.end() :]
        found = _COUNTER.match(text)
        if found is not None:
            progress = Progress(
                label=found["label"].strip(),
                done=float(found["done"]),
                total=None,
                elapsed_s=_clock(found["elapsed"]),
            )
            return progress, text[found.end() :]
    if text.startswith("...."):
        found = _DOTS.match(text)
        if found is not None:
            dots = min(found.end(), _DOTS_OF_A_MODEL)
            return Progress("model", float(dots), float(_DOTS_OF_A_MODEL)), text[found.end() :]
    return None


def _number(digits: str, unit: str) -> float:
    try:
        return float(digits) * _UNIT[unit]
    except ValueError:
        return 0.0


def _clock(text: str) -> float:
    seconds = 0
    for part in text.split(":")[:4]:
        seconds = seconds * 60 + (int(part[:6]) if part.isdigit() else 0)
    return float(seconds)
