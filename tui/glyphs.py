"""The characters that screens are drawn with, in two sets of the same widths.

Every character is one cell wide in every terminal. What is drawn with the ASCII set passes
`ascii_only` last, so that nothing else can slip through, whoever wrote the text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set.

    Attributes:
        bar_full: A cell of a bar that is filled.
        bar_half: A cell that is filled by half.
        bar_empty: A cell that is not.
        levels: Eight heights of a one-cell column, lowest first (sparklines, heat).
        braille: Whether charts may use the braille block.
    """

    bar_full: str
    bar_half: str
    bar_empty: str
    levels: str
    braille: bool
    ok: str
    info: str
    warning: str
    critical: str
    lost: str
    waiting: str
    stale: str
    cursor: str
    marked: str
    descending: str
    ascending: str
    rule: str
    separator: str
    crumb: str
    more: str
    is_ascii: bool = False


UNICODE = Glyphs(
    bar_full="━",
    bar_half="╸",
    bar_empty="─",
    levels="▁▂▃▄▅▆▇█",
    braille=True,
    ok="●",
    info="◆",
    warning="▲",
    critical="✖",
    lost="✖",
    waiting="◌",
    stale="◍",
    cursor="▌",
    marked="◉",
    descending="▾",
    ascending="▴",
    rule="─",
    separator="│",
    crumb="›",
    more="…",
)

ASCII = Glyphs(
    bar_full="=",
    bar_half="-",
    bar_empty=".",
    levels="_.:-=+*#",
    braille=False,
    ok="o",
    info="i",
    warning="!",
    critical="x",
    lost="x",
    waiting="~",
    stale="?",
    cursor=">",
    marked="*",
    descending="v",
    ascending="^",
    rule="-",
    separator="|",
    crumb=">",
    more="~",
    is_ascii=True,
)

_REPLACEMENTS = str.maketrans(
    {"–": "-", "—": "-", "°": "'", "·": ".", "…": "~", "×": "x", "µ": "u", "→": ">", "←": "<"}
    | {"≤": "<", "≥": ">", "±": "~", "↑": "^", "↓": "v", "“": '"', "”": '"', "’": "'"}
)


def ascii_only(text: str) -> str:
    """Give `text` in ASCII, character for character, with `?` for what has no counterpart."""
    if text.isascii():
        return text
    return text.translate(_REPLACEMENTS).encode("ascii", "replace").decode("ascii")
