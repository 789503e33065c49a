"""Bytes to messages: a bounded line splitter and the parsing of one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

MAX_LINE: Final = 1024 * 1024
"""Longest line taken, in bytes; a longer one is dropped whole."""
MAX_NOISE: Final = 8192
"""What is kept of what came before the marker, for error messages."""

Message = dict[str, object]


class LineSplitter:
    """Cuts a byte stream into lines, with a bound on what it holds.

    Attributes:
        dropped: Lines that were longer than `MAX_LINE`.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without their line feeds."""
        lines = data.split(b"\n")
        for position, piece in enumerate(lines):
            complete = position < len(lines) - 1
            if not self._skipping:
                self._parts.append(piece)
                self._size += len(piece)
                if self._size > MAX_LINE:
                    self._parts.clear()
                    self._size = 0
                    self._skipping = True
                    self.dropped += 1
            if complete:
                if not self._skipping:
                    line = b"".join(self._parts)
                    self._parts.clear()
                    self._size = 0
                    yield line
                self._skipping = False


class MarkerFinder:
    """Drops what a login shell prints before the marker, and keeps its tail to show."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker + b"\n"
        self._tail = b""
        self.found = False

    def feed(self, data: bytes) -> bytes:
        """What of `data` comes after the marker; empty until it was seen."""
        if self.found:
            return data
        data = self._tail + data
        _, marker, rest = data.partition(self._marker)
        if marker:
            self.found = True
            self._tail = b""
            return rest
        self._tail = data[-max(MAX_NOISE, len(self._marker)) :]
        return b""

    @property
    def noise(self) -> str:
        """The end of what came instead of the marker."""
        return self._tail.decode("utf-8", "replace").strip()


def parse(line: bytes) -> Message | None:
    """One message, or None where the line is none."""
    if not line.startswith(b"{"):
        return None
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return message if isinstance(message, dict) else None
