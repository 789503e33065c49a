"""The top line: every host with its state, and what holds for the whole room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.model import HostSnapshot
from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.host_state import host_glyph, host_word
from tui.widgets.rows_view import RowsView


@dataclass(frozen=True, slots=True)
class HostTab:
    """One host of the bar."""

    snapshot: HostSnapshot
    production: bool = False
    locked: bool = False


class HostBar(RowsView):
    """One line."""

    DEFAULT_CSS = "HostBar { height: 1; }"

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self._tabs: Sequence[HostTab] = ()
        self._current = ""
        self._badges: Sequence[Span] = ()
        self._now_s = 0.0
        self._crumbs: Sequence[str] = ()

    def show(
        self,
        tabs: Sequence[HostTab],
        current: str,
        badges: Sequence[Span],
        now_s: float,
        crumbs: Sequence[str] = (),
    ) -> None:
        """Draw; the one call a frame.

        Args:
            tabs: Hosts in order.
            current: The one looked at.
            badges: What stands at the right (`PAUSED`, `RO`, `1/s`).
            now_s: Monotonic seconds.
            crumbs: Where in the host one is (`GPU 3`, `processes`).
        """
        self._tabs, self._current, self._badges = tabs, current, badges
        self._now_s, self._crumbs = now_s, crumbs
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The current host always; its neighbours as far as there is room."""
        right = Line()
        for text, token in self._badges:
            right.add(" ").add(text, token)
        room = width - right.width - 1
        pieces = [self._tab(tab) for tab in self._tabs]
        here = next(
            (n for n, tab in enumerate(self._tabs) if tab.snapshot.host == self._current), 0
        )
        first, last = _around(
            [sum(len(text) for text, _ in piece) + 1 for piece in pieces], here, room - 8
        )
        line = Line()
        if first > 0:
            line.add(f" +{first} ", "dim")
        for piece in pieces[first : last + 1]:
            line.extend(piece).add(" ")
        if last + 1 < len(pieces):
            line.add(f"+{len(pieces) - last - 1} ", "dim")
        return [line.right(right.spans, width).row(width, "bar-row")]

    def _tab(self, tab: HostTab) -> list[Span]:
        glyphs, snapshot = self.look.glyphs, tab.snapshot
        glyph, glyph_token = host_glyph(snapshot, glyphs)
        word, token = host_word(snapshot, self._now_s)
        current = snapshot.host == self._current
        spans: list[Span] = [
            (" ", "text"),
            (glyph + " ", glyph_token),
            (snapshot.host, "active-tab" if current else "text"),
        ]
        if tab.production:
            spans += [(" ", "text"), ("PROD", "production")]
        if current and self._crumbs:
            for crumb in self._crumbs:
                spans += [(f" {glyphs.crumb} ", "dim"), (crumb, "strong")]
        if current or token != "good":
            spans.append((f" {word}", token if token != "good" else "dim"))
        return spans


def _around(widths: Sequence[int], here: int, room: int) -> tuple[int, int]:
    """The widest run of tabs around `here` that fits."""
    if not widths:
        return 0, -1
    first = last = here
    used = widths[here]
    grown = True
    while grown:
        grown = False
        if last + 1 < len(widths) and used + widths[last + 1] <= room:
            last += 1
            used += widths[last]
            grown = True
        if first > 0 and used + widths[first - 1] <= room:
            first -= 1
            used += widths[first]
            grown = True
    return first, last
