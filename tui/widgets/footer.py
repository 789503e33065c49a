"""The last line: keys that do something here, the most useful ones as far as there is room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tui.actions import find, key_text
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.rows_view import RowsView


class Footer(RowsView):
    """One line of hints, made from the bindings that are active on the screen."""

    DEFAULT_CSS = "Footer { height: 1; dock: bottom; }"

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self._hints: tuple[tuple[str, str, int], ...] = ()
        self._about = ""

    def show(self, active: Iterable[str], keymap: Mapping[str, str]) -> None:
        """Take the active bindings.

        Args:
            active: Their ids.
            keymap: The user's own keys.
        """
        hints = {}
        for action_id in dict.fromkeys(active):
            action = find(action_id)
            if action is not None and action.hint:
                key = keymap.get(action.id, action.keys).split(",")[0]
                hints[action.id] = (key_text(key), action.label, action.hint)
        self._take(tuple(sorted(hints.values(), key=lambda hint: hint[2])), "")

    def show_input(self, about: str, *, narrows: bool) -> None:
        """Something is typed.

        Args:
            about: What it is; said here because text that is in the input hides its placeholder.
            narrows: Whether the text narrows a list at once (Esc clears it), or is taken by Enter.
        """
        words = ("keep", "clear") if narrows else ("take it", "leave it")
        self._take((("Enter", words[0], 1), ("Esc", words[1], 2)), about)

    def _take(self, hints: tuple[tuple[str, str, int], ...], about: str) -> None:
        if (hints, about) != (self._hints, self._about):
            self._hints, self._about = hints, about
            self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Hints from the left; help and quit keep their place."""
        line = Line().add(" ")
        last = [hint for hint in self._hints if hint[2] >= 90]
        reserved = sum(len(key) + len(label) + 3 for key, label, _ in last)
        for key, label, _ in (hint for hint in self._hints if hint[2] < 90):
            if line.width + len(key) + len(label) + 3 + reserved > width:
                break
            line.add(key, "key").add(f" {label}  ", "dim")
        for key, label, _ in last:
            line.add(key, "key").add(f" {label}  ", "dim")
        return [line.add(self._about, "dim").row(width, "bar-row")]
