"""The few lines under a list that have the item under the cursor in full."""

from __future__ import annotations

from collections.abc import Sequence

from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.host_state import wrap
from tui.widgets.rows_view import RowsView


class Detail(RowsView):
    """Text at the foot of a screen, wrapped."""

    DEFAULT_CSS = "Detail { height: 6; }"

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self._paragraphs: Sequence[Sequence[Span]] = ()

    def show(self, paragraphs: Sequence[Sequence[Span]]) -> None:
        """Draw paragraphs; those of one span are wrapped."""
        self._paragraphs = paragraphs
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """A rule, then the paragraphs."""
        rows = [Line().add(self.look.glyphs.rule * width, "faint").row(width)]
        for spans in self._paragraphs:
            if len(spans) != 1:
                rows.append(Line().add(" ").extend(spans).row(width))
                continue
            text, token = spans[0]
            for piece in wrap(text, width - 2):
                rows.append(Line().add(" ").add(piece, token).row(width))
        return rows
