"""Rows as an SVG picture, without a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tui.rows import Row, fit_row
from tui.themes import Look


def picture(rows: Sequence[Row], width: int, look: Look, title: str) -> str:
    """Rows of one width as SVG."""
    console = Console(
        width=width, record=True, file=io.StringIO(), color_system="truecolor",
        force_terminal=True, legacy_windows=False, emoji=False, markup=False, highlight=False,
    )  # fmt: skip
    for row in rows:
        text = Text(no_wrap=True, end="\n")
        for piece, token in fit_row(row, width).spans:
            text.append(piece, look.palette.style(row.base, token))
        console.print(text)
    return neater(console.export_svg(title=title, theme=_theme(look), unique_id="gpuroom"))


def _theme(look: Look) -> TerminalTheme:
    dark = look.palette.name != "light"
    back, front = ((15, 18, 24), (213, 219, 230)) if dark else ((255, 255, 255), (37, 48, 61))
    return TerminalTheme(back, front, [front] * 8, [front] * 8)


_CELL: Final = 12.2
"""Width of a cell in Rich's SVG."""
_SPACE: Final = "&#160;"


def neater(svg_text: str) -> str:
    """Spaces at the start of a text become an offset: not every viewer keeps them."""

    def move(match: re.Match[str]) -> str:
        attributes, text = match[1], match[2]
        stripped = text
        while stripped.startswith(_SPACE):
            stripped = stripped.removeprefix(_SPACE)
        count = (len(text) - len(stripped)) // len(_SPACE)
        if not count or not stripped:
            return match[0]

        def shift(name: str, by: float, attributes: str) -> str:
            return re.sub(
                rf'\b{name}="([\d.]+)"',
                lambda m: f'{name}="{round(float(m[1]) + by, 1)}"',
                attributes,
                count=1,
            )

        attributes = shift("x", _CELL * count, attributes)
        attributes = shift("textLength", -_CELL * count, attributes)
        return f"<text{attributes}>{stripped}</text>"

    return re.sub(r"<text([^>]*)>([^<]*)</text>", move, svg_text)
