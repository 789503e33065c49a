"""Tags, notes and baselines of runs, by keyboard; shared by the screens that show runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.widgets import Input

from backends.storage.history import History
from screens.base import HubScreen
from tui.widgets.edit_line import EditLine

if TYPE_CHECKING:
    from tui.app import RoomApp

Change = Callable[[History], None]
HINTS = {
    "tag": "tags, separated by spaces; -tag takes one away",
    "note": "a note about this run",
    "save": "file: .svg, .json, .csv or .md",
}


class RunEditingScreen(HubScreen):
    """Subclasses yield `edit_box`, give `chosen_runs` and `changed`."""

    DEFAULT_CSS = """
    RunEditingScreen #edit {
        dock: bottom; height: 1; border: none; padding: 0 1; display: none; margin-bottom: 1;
    }
    RunEditingScreen #edit.-open { display: block; }
    """
    _edit: Input | None = None
    _editing = ""

    @property
    def edit_box(self) -> Input:
        """The input, hidden until it is asked for."""
        if self._edit is None:
            self._edit = EditLine(id="edit")
            self._edit.cursor_blink = False
        return self._edit

    def chosen_runs(self) -> Sequence[str]:
        """Ids of the runs that an edit is about."""
        raise NotImplementedError

    def changed(self) -> None:
        """The history was written: read it again."""
        raise NotImplementedError

    def keys_back(self) -> None:
        """Give the keys back to what had them."""
        raise NotImplementedError

    def save(self, name: str) -> None:
        """Write what is shown to a file; only where that is offered."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A letter that is typed into an input is a letter."""
        own = ("tag", "note", "pin", "save", "filter", "compare", "mark")
        if action in own and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_tag(self) -> None:
        """Ask for tags."""
        self._open_box("tag")

    def action_note(self) -> None:
        """Ask for a note."""
        self._open_box("note")

    def action_save(self) -> None:
        """Ask for a file."""
        self._open_box("save")

    def action_pin(self) -> None:
        """Make the run the baseline of its profile and plan; a baseline is let go."""
        ids = list(self.chosen_runs())[:1]
        doubtful: list[str] = []

        def pin(history: History) -> None:
            for run_id in ids:
                if not history.unpin(run_id):
                    history.pin(run_id)
                    if not history.row(run_id).valid:
                        doubtful.append(run_id)

        def say() -> None:
            for run_id in doubtful:
                self.notify(
                    f"the client was the limit in {run_id}: nothing can be compared with it",
                    severity="warning",
                    timeout=8,
                    markup=False,
                )

        self.change(pin, say)

    def _open_box(self, what: str) -> None:
        if not self.chosen_runs():
            return
        self._editing = what
        box = self.edit_box
        box.placeholder = HINTS[what]
        box.value = ""
        box.add_class("-open")
        self.set_focus(box)

    def close_box(self) -> bool:
        """Close the input; gives whether it was open."""
        if not self.edit_box.has_class("-open"):
            return False
        self.edit_box.remove_class("-open")
        self.keys_back()
        return True

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write what was typed."""
        if event.input is not self.edit_box:
            return
        text, what = event.value.strip(), self._editing
        self.close_box()
        if not text:
            return
        if what == "save":
            self.save(text)
            return
        ids = list(self.chosen_runs())

        def write(history: History) -> None:
            for run_id in ids:
                if what == "note":
                    history.note(run_id, text)
                    continue
                words = text.replace(",", " ").split()
                history.tag(run_id, [word for word in words if not word.startswith("-")])
                gone = [word[1:] for word in words if word.startswith("-") and word[1:]]
                history.tag(run_id, gone, remove=True)

        self.change(write)

    def change(self, work: Change, then: Callable[[], None] | None = None) -> None:
        """Write to the history in a thread, then read it again; failures are shown."""

        def written() -> None:
            with History.at_home() as history:
                work(history)

        async def carry_out() -> None:
            await asyncio.to_thread(written)
            if self.is_attached:
                self.changed()
                if then is not None:
                    then()

        app: RoomApp = self.app  # type: ignore[assignment]
        app.controller.background(carry_out, "runs.edit")

    def back(self) -> bool:
        """Close the input."""
        return self.close_box() or super().back()
