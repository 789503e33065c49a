"""What the terminal shows is the same as with Textual's own compositor, for fewer bytes."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from tui.compositor import TightUpdate

WIDTH, HEIGHT = 30, 4
STYLES = [
    Style.parse(text)
    for text in (
        "", "red", "bold red", "#aabbcc on #112233", "on #112233", "reverse", "dim italic",
        "bold #ffffff on #000000", "underline default on default",
    )
]  # fmt: skip
CONSOLE = Console(color_system="truecolor", force_terminal=True, legacy_windows=False)

_SEQUENCE = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|([^\x1b])")


class Cells:
    """A terminal that understands just what is printed here."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, frozenset[str]]] = {}

    def feed(self, text: str) -> None:
        x = y = 0
        style: dict[str, str] = {}
        for row, column, codes, character in _SEQUENCE.findall(text):
            if row:
                x, y = int(column) - 1, int(row) - 1
            elif character == "\n":
                y += 1
            elif character:
                self.cells[x, y] = (character, frozenset(style.values()))
                x += 2 if ord(character) > 0x2E80 else 1
            else:
                self._style(style, codes.split(";") if codes else ["0"])

    def _style(self, style: dict[str, str], codes: list[str]) -> None:
        rest = list(codes)
        while rest:
            code = rest.pop(0)
            if code == "0":
                style.clear()
            elif code in ("38", "48"):
                kind = rest.pop(0)
                count = 3 if kind == "2" else 1
                value = ";".join(rest.pop(0) for _ in range(count))
                style[code] = f"{code}:{value}"
            elif code in ("39", "49"):
                style.pop("38" if code == "39" else "48", None)
            elif 30 <= int(code) <= 37 or 90 <= int(code) <= 97:
                style["38"] = f"fg:{code}"
            elif 40 <= int(code) <= 47 or 100 <= int(code) <= 107:
                style["48"] = f"bg:{code}"
            else:
                style[code] = code


@st.composite
def lines(draw: st.DrawFn) -> Strip:
    segments, width = [], 0
    while width < WIDTH:
        text = draw(st.text("ab é漢1", min_size=1, max_size=8))
        segment = Segment(text, draw(st.sampled_from(STYLES)))
        segments.append(segment)
        width += segment.cell_length
    return Strip(segments).crop(0, WIDTH)


@st.composite
def updates(draw: st.DrawFn) -> tuple[list[Strip], list[tuple[int, int, int]]]:
    spans = []
    for y in range(HEIGHT):
        edges = sorted(draw(st.sets(st.integers(0, WIDTH), max_size=4)))
        spans += [(y, a, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    return [draw(lines()) for _ in range(HEIGHT)], spans or [(0, 0, WIDTH)]


def shown(update: ChopsUpdate) -> dict[tuple[int, int], tuple[str, frozenset[str]]]:
    terminal = Cells()
    terminal.feed(update.render_segments(CONSOLE))
    return terminal.cells


@settings(max_examples=150, deadline=None)
@given(updates())
def test_every_dirty_cell_is_as_with_textual_and_no_other_is_touched(
    update: tuple[list[Strip], list[tuple[int, int, int]]],
) -> None:
    strips, spans = update
    chops = [{0: strip} for strip in strips]
    ends = [[WIDTH]] * HEIGHT
    whole = shown(ChopsUpdate(chops, [(y, 0, WIDTH) for y in range(HEIGHT)], ends))
    tight = shown(TightUpdate(chops, spans, ends))
    dirty = {(x, y) for y, x1, x2 in spans for x in range(x1, x2)}
    assert set(tight) <= dirty
    for place in dirty & set(whole):
        character, style = tight.get(place, (" ", whole[place][1]))
        # A wide character that is cut in half leaves blanks.
        assert character in (whole[place][0], " ")
        assert style == whole[place][1]


def test_a_changed_number_costs_a_few_bytes() -> None:
    strip = Strip([Segment("power ", STYLES[3]), Segment("598 W", STYLES[7]), Segment("x" * 19)])
    update = TightUpdate([{0: strip}], [(0, 7, 9)], [[WIDTH]])
    assert len(update.render_segments(CONSOLE)) < 60
    assert "98" in update.render_segments(CONSOLE)
    assert "power" not in update.render_segments(CONSOLE)


def test_without_colours_only_text_is_sent() -> None:
    console = Console(color_system=None, force_terminal=True, legacy_windows=False)
    update = TightUpdate([{0: Strip([Segment("abc", STYLES[1])])}], [(0, 0, 3)], [[3]])
    assert update.render_segments(console) == "\x1b[1;1Habc"
