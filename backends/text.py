"""The one cleaner of strings that come from a host.

Control sequences in a process name or a log line reach the terminal raw through every widget, so
every remote string passes here once, where it is decoded.
"""

from __future__ import annotations

import re
from typing import Final

MAX_CHARS: Final = 4096
"""Longest remote string kept, unless the caller says otherwise."""

_UNSAFE: Final = re.compile(
    "["
    "\x00-\x1f\x7f"  # C0 controls and DEL
    "\x80-\x9f"  # C1 controls
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u200b\u2028\u2029\ufeff"  # invisible, or line breaks to some terminals
    "\ud800-\udfff"  # lone surrogates, which no terminal can encode
    "]"
)
_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    r"|[ -/]*[0-~])"  # two-byte and charset sequences
)
_TAB: Final = "    "


def clean(text: str, limit: int = MAX_CHARS) -> str:
    """Give `text` with nothing left in it that a terminal would obey.

    Whole escape sequences are dropped, tabs become four spaces, every other control character
    becomes U+FFFD, and the result is cut to `limit` characters with an ellipsis.
    """
    if len(text) > limit * 4:
        text = text[: limit * 4]
    if not text.isprintable():
        text = _ESCAPE_SEQUENCE.sub("", text).replace("\t", _TAB)
        text = _UNSAFE.sub("\ufffd", text)
    if len(text) > limit:
        text = text[: limit - 1] + "\u2026"
    return text


def clean_lines(text: str, *, max_lines: int = 200, limit: int = MAX_CHARS) -> list[str]:
    """Split `text` at line feeds and clean each line; the last `max_lines` are kept."""
    lines = text.split("\n")
    return [clean(line.rstrip("\r"), limit) for line in lines[-max_lines:]]
