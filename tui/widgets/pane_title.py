"""What stands at the head of a pane: its number and title, and whether the keys go there."""

from __future__ import annotations

from tui.glyphs import Glyphs
from tui.rows import Line


def pane_title(number: int, title: str, glyphs: Glyphs, *, focused: bool) -> Line:
    """Number and title. The pane that has the keys has a sign between them, and stands out.

    Both ways take the same cells, so nothing moves when the keys go elsewhere.
    """
    if focused:
        return Line().add(f"{number}{glyphs.cursor}{title}", "focus").add(" ")
    return Line().add(f"{number} ", "key").add(title + " ", "title")
