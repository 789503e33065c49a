"""The log of a server that has only a screen: which lines of a captured pane are new. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ANCHOR_LINES: Final = 60
"""How many of the last lines are looked for again, at most."""


def new_lines(told: Sequence[str], captured: Sequence[str]) -> list[str]:
    """The lines of a capture that follow those told already.

    The scrollback loses its oldest lines and may be cleared, so the place is found by the longest
    run of told lines that stands in the capture; nothing found: everything there is new.

    Args:
        told: The last lines told before, oldest first.
        captured: Scrollback and screen now, without the line that is still being written.
    """
    for count in range(min(len(told), ANCHOR_LINES), 0, -1):
        anchor = list(told[-count:])
        for end in range(len(captured), count - 1, -1):
            if captured[end - 1] == anchor[-1] and list(captured[end - count : end]) == anchor:
                return list(captured[end:])
    return list(captured)


def finished(text: str, before: str | None) -> list[str]:
    """The lines of a capture; the last one only when it stands still since the capture before.

    Args:
        text: What `tmux capture-pane -p -J` printed.
        before: The last line of the capture before.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if lines and lines[-1] != before:
        lines.pop()
    return lines


def last_line(text: str) -> str | None:
    """The last line that is not empty."""
    return next((line.rstrip() for line in reversed(text.split("\n")) if line.strip()), None)
