"""Textual's compositor, but a changed piece of a line costs only its own cells.

Textual 8.2.8 prints a dirty span from the start of its widget (`_compositor.ChopsUpdate` has a
"TODO: crop to x extents" there), so that a changed number at the end of a line repaints the whole
line, and it says every colour anew for every segment. Over a slow link that is most of what is
sent. The versions are pinned exactly; a test checks that a terminal shows the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip

_ATTRIBUTES = (
    ("bold", "1"),
    ("dim", "2"),
    ("italic", "3"),
    ("underline", "4"),
    ("blink", "5"),
    ("reverse", "7"),
    ("strike", "9"),
)
RESET = "\x1b[0m"


@lru_cache(4096)
def sgr_of(style: Style, system: ColorSystem) -> tuple[str, str, str]:
    """Attributes, foreground and background of a style as SGR parameters."""
    attributes = ";".join(code for name, code in _ATTRIBUTES if getattr(style, name))
    colors = []
    for color, default, foreground in ((style.color, "39", True), (style.bgcolor, "49", False)):
        if color is None:
            colors.append(default)
        else:
            colors.append(";".join(color.downgrade(system).get_ansi_codes(foreground)))
    return attributes, colors[0], colors[1]


class _Pen:
    """Writes text with the fewest SGR sequences: what has not changed is not said again."""

    def __init__(self, console: Console) -> None:
        name = console.color_system
        self._system = None if name is None else COLOR_SYSTEMS[name]
        self._now = ("", "39", "49")
        self.parts: list[str] = []

    def move_to(self, x: int, y: int) -> None:
        self.parts.append(f"\x1b[{y + 1};{x + 1}H")

    def write(self, segment: Segment) -> None:
        text, style, control = segment
        if control:
            self.parts.append(text)
            return
        if self._system is not None:
            wanted = ("", "39", "49") if style is None else sgr_of(style, self._system)
            if wanted != self._now:
                self._change_to(wanted)
        self.parts.append(text)

    def _change_to(self, wanted: tuple[str, str, str]) -> None:
        attributes, foreground, background = wanted
        codes = []
        if attributes != self._now[0]:
            # Attributes can't be taken away one by one on every terminal: start anew.
            codes.append("0")
            codes += [attributes] if attributes else []
            codes += [foreground] if foreground != "39" else []
            codes += [background] if background != "49" else []
        else:
            codes += [foreground] if foreground != self._now[1] else []
            codes += [background] if background != self._now[2] else []
        self.parts.append(f"\x1b[{';'.join(codes)}m")
        self._now = wanted

    def done(self) -> str:
        if self._now != ("", "39", "49"):
            self.parts.append(RESET)
        return "".join(self.parts)


def _between(strip: Strip, start: int, end: int) -> Iterable[Segment]:
    """The segments of the cells from `start` up to `end`, without making new strips of them."""
    x = 0
    for segment in strip:
        text = segment.text
        length = len(text) if text.isascii() else cell_len(text)
        if length != len(text):
            # Wide characters can lie across an edge: leave that to what knows how.
            yield from strip.crop(start, end)
            return
        x += length
    x = 0
    for segment in strip:
        text = segment.text
        after = x + len(text)
        if after > start and x < end:
            if x < start or after > end:
                yield Segment(text[max(0, start - x) : end - x], segment.style)
            else:
                yield segment
        x = after


class TightUpdate(ChopsUpdate):
    """Prints each dirty span, and nothing to the left or right of it."""

    def render_segments(self, console: Console) -> str:
        """The bytes for the terminal."""
        pen = _Pen(console)
        write = pen.write
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                pen.move_to(max(x, x1), y)
                if x >= x1 and end <= x2:
                    for segment in strip:
                        write(segment)
                else:
                    for segment in _between(strip, max(x1 - x, 0), min(end, x2) - x):
                        write(segment)
        return pen.done()


class TightCompositor(Compositor):
    """Gives `TightUpdate` for partial updates."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed, as spans."""
        update = super().render_partial_update()
        if update is None:
            return None
        return TightUpdate(update.chops, update.spans, update.chop_ends)
