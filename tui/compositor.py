"""Textual's compositor, but a changed piece of a line costs only its own cells.

Textual 8.2.8 prints a dirty span from the start of its widget (`_compositor.ChopsUpdate` has a
"TODO: crop to x extents" there), so that a changed number at the end of a line repaints the whole
line. Over a slow link that is most of what is sent. The versions are pinned exactly; a test
checks that a screen drawn with this one ends up the same.
"""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor


class TightUpdate(ChopsUpdate):
    """Prints each dirty span, and nothing to the left or right of it."""

    def render_segments(self, console: Console) -> str:
        """The bytes for the terminal."""
        parts: list[str] = []
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                left = max(x, x1)
                if left > x or end > x2:
                    strip = strip.crop(left - x, min(end, x2) - x)
                parts.append(Control.move_to(left, y).segment.text)
                parts.append(strip.render(console))
        return "".join(parts)


class TightCompositor(Compositor):
    """Gives `TightUpdate` for partial updates."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed, as spans."""
        update = super().render_partial_update()
        if update is None:
            return None
        return TightUpdate(update.chops, update.spans, update.chop_ends)
