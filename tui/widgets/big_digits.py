"""Figures three or five lines high, to be read from a chair. Pure functions."""

from __future__ import annotations

from typing import Final

HEIGHT: Final = 3
TALL: Final = 5
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
_PIXELS: Final = {
    "0": ("###", "# #", "# #", "# #", "###"),
    "1": (" # ", "## ", " # ", " # ", "###"),
    "2": ("###", "  #", "###", "#  ", "###"),
    "3": ("###", "  #", "###", "  #", "###"),
    "4": ("# #", "# #", "###", "  #", "  #"),
    "5": ("###", "#  ", "###", "  #", "###"),
    "6": ("###", "#  ", "###", "# #", "###"),
    "7": ("###", "  #", "  #", "  #", "  #"),
    "8": ("###", "# #", "###", "# #", "###"),
    "9": ("###", "# #", "###", "  #", "###"),
    ",": (" ", " ", " ", "#", "#"),
    ".": (" ", " ", " ", " ", "#"),
    "–": ("   ", "   ", "###", "   ", "   "),
}


def big(text: str, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Three lines for a figure; without line characters the figure itself stands in the middle."""
    if ascii_only or any(character not in _SHAPES for character in text):
        return ("", text, "")
    shapes = [_SHAPES[character] for character in text]
    return tuple("".join(shape[line] for shape in shapes) for line in range(HEIGHT))


def tall(text: str, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Five lines for a figure, of blocks; text that is no figure stands in the middle."""
    if any(character not in _PIXELS for character in text):
        return ("", "", text, "", "")
    block = "##" if ascii_only else "██"
    shapes = [_PIXELS[character] for character in text]
    return tuple(
        " ".join(
            "".join(block if pixel == "#" else "  " for pixel in shape[line]) for shape in shapes
        )
        for line in range(TALL)
    )
