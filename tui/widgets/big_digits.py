"""Figures three lines high, to be read from a chair. Pure functions."""

from __future__ import annotations

from typing import Final

HEIGHT: Final = 3
_SHAPES: Final = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": (" ┓ ", " ┃ ", " ┻ "),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", " ━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    ",": (" ", " ", "╹"),
    ".": (" ", " ", "▪"),
    "–": ("   ", "━━━", "   "),
}


def big(text: str, *, ascii_only: bool = False) -> tuple[str, str, str]:
    """Three lines for a figure; without line characters the figure itself stands in the middle."""
    if ascii_only or any(character not in _SHAPES for character in text):
        return ("", text, "")
    shapes = [_SHAPES[character] for character in text]
    return (
        "".join(shape[0] for shape in shapes),
        "".join(shape[1] for shape in shapes),
        "".join(shape[2] for shape in shapes),
    )
