"""A filter that narrows a list while it is typed; shared by the screens that have one."""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Input

from screens.base import HubScreen
from tui.widgets.edit_line import EditLine


class FilteringScreen(HubScreen):
    """Subclasses yield `filter_box`, give `filtered` and `apply_filter`.

    Attributes:
        filter_text: What was typed.
    """

    DEFAULT_CSS = """
    FilteringScreen #filter {
        dock: bottom; height: 1; border: none; padding: 0 1; display: none; margin-bottom: 1;
    }
    FilteringScreen #filter.-open { display: block; }
    """
    HINT = "words, !not"
    filter_text = ""
    _box: Input | None = None

    @property
    def filter_box(self) -> Input:
        """The input, hidden until it is asked for."""
        if self._box is None:
            self._box = EditLine(id="filter", placeholder=self.HINT)
            self._box.cursor_blink = False
        return self._box

    @property
    def filtered(self) -> Widget:
        """What is narrowed, and gets the keys back."""
        raise NotImplementedError

    def apply_filter(self, text: str) -> None:
        """Show only what fits."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash that is typed into the filter is a slash."""
        if action == "filter" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Open the filter with what it was."""
        box = self.filter_box
        box.add_class("-open")
        box.value = self.filter_text
        self.set_focus(box)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if event.input is self._box:
            self._filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, close the input."""
        if event.input is self._box:
            self._close_filter()

    def _filter(self, text: str) -> None:
        self.filter_text = text.strip()
        self.apply_filter(self.filter_text)

    def _close_filter(self) -> None:
        self.filter_box.remove_class("-open")
        self.set_focus(self.filtered)

    def back(self) -> bool:
        """Close and clear the filter."""
        box = self.filter_box
        if box.has_class("-open"):
            box.value = ""
            self._filter("")
            self._close_filter()
        elif self.filter_text:
            self._filter("")
        else:
            return super().back()
        return True
