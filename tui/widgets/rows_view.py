"""The base of everything that is drawn here: rows of spans, of which only changed cells repaint.

A widget that derives from it turns what it is shown into rows; this class compares them with the
rows on screen, marks the cells that differ, and makes strips. Every segment has a style: without
one, a terminal without colours would crash the drawing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.events import Resize
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from backends.text import clean
from tui.format import width_of
from tui.glyphs import ascii_only
from tui.rows import Row, blank_row, changes, fit_row
from tui.themes import Look


class RowsView(Widget):
    """Draws rows. Subclasses give `rows_for`, and call `redraw` when what they show changed."""

    DEFAULT_CSS = """
    RowsView { width: 1fr; height: 1fr; }
    """

    def __init__(
        self,
        look: Look,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.look = look
        self._rows: list[Row] = []
        self._strips: dict[int, Strip] = {}
        self._drawn_for: tuple[Size, int] = (Size(0, 0), -1)

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The rows to show in a space of that size; at most `height` are used."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Make the rows anew and repaint the cells that differ."""
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        rows = [
            row if row.cells == width else fit_row(row, width)
            for row in self.rows_for(width, height)[:height]
        ]
        rows.extend([blank_row(width)] * (height - len(rows)))
        drawn_for = (self.size, self.look.version)
        if drawn_for != self._drawn_for or len(rows) != len(self._rows):
            self._drawn_for = drawn_for
            self._rows = rows
            self._strips.clear()
            self.refresh()
            return
        regions = []
        for y, (old, new) in enumerate(zip(self._rows, rows, strict=True)):
            if old is new or old == new:
                continue
            self._strips.pop(y, None)
            regions += [Region(start, y, end - start, 1) for start, end in changes(old, new)]
        if regions:
            self._rows = rows
            self.refresh(*regions)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a part of the widget.

        Straight from the rows: these widgets have no border, padding or tint for Textual's style
        cache to add (it takes half the time of a frame), and their palette is what the terminal
        can show, so no filter has colours to change.
        """
        strips = [self.render_line(y) for y in crop.line_range]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        """The strip of one row."""
        strip = self._strips.get(y)
        if strip is None:
            row = self._rows[y] if y < len(self._rows) else blank_row(self.size.width)
            strip = self._strips[y] = self._strip(row)
        return strip

    def _strip(self, row: Row) -> Strip:
        style = self.look.palette.style
        spans, base, _ = row
        if not all(text.isprintable() for text, _ in spans):
            # Strings from hosts were cleaned when they were decoded; this is the last gate.
            safe = Row(tuple((clean(text), token) for text, token in spans), base)
            spans = fit_row(safe, row.width).spans
        if self.look.glyphs.is_ascii:
            spans = tuple((ascii_only(fit_ascii(text)), token) for text, token in spans)
        return Strip([Segment(text, style(base, token)) for text, token in spans], row.width)

    def on_resize(self, event: Resize) -> None:
        """Fit the rows to the new size."""
        self.redraw()

    def on_mount(self) -> None:
        """Draw what there is."""
        self.redraw()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Show that the keys come here, or go elsewhere.

        A handler of the event would come too early: Textual sets the attribute after it.
        """
        super().watch_has_focus(_has_focus)
        self.redraw()


def fit_ascii(text: str) -> str:
    """Give wide characters as many question marks as they have cells."""
    if text.isascii():
        return text
    return "".join(c if width_of(c) == 1 else "?" * width_of(c) for c in text)
