"""The log of a server: followed, searched, filtered, of any size.

`open_log` is the way in for panes and other screens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input

from backends.errors import LinkError, RoomError, UsageError
from backends.servers.host import Host
from backends.servers.launchers.base import LogPlace
from backends.servers.logpins import Pins
from backends.servers.logquery import ERRORS, Pattern, Query
from backends.servers.logstore import LogStore
from backends.servers.prefixes import Level
from screens.base import HubScreen
from screens.log_filler import LogFiller
from screens.log_jobs import LogJobs
from screens.log_parts import LogPins, LogStatus
from tui.bindings import bindings
from tui.shell import Shell
from tui.widgets.edit_line import EditLine
from tui.widgets.log_view import LogView

PIN_BACK_BYTES = 4 * 1024 * 1024
PIN_LAG_BYTES = 16 * 1024 * 1024
COUNT_BYTES = 16 * 1024 * 1024
MAX_COPY_CHARS = 200_000
MAX_SAVE_BYTES = 1 << 30
LEVEL_STEPS = (None, Level.WARNING, Level.ERROR)
PROMPTS = {
    "search": "regular expression; small letters fit any case",
    "filter": "show only lines that fit; !word: that do not",
    "time": "09:26, 2026-03-14 09:26:53, or 10m before the newest line",
    "save": "local file to write the shown lines to",
}


def open_log(
    app: App[object], shell: Shell, host: str, place: LogPlace | str, title: str = ""
) -> None:
    """Show the log of a server.

    Args:
        app: The application.
        shell: What screens share.
        host: Name of a host of the room.
        place: The log, wherever it is kept; a path stands for the file on that host.
        title: What stands above it; else the place in words.

    Raises:
        LinkError: The host is not there yet, or can't be asked for files.
    """
    store = LogStore(host_of(shell, host), place, asked_by="log")
    app.push_screen(LogScreen(shell, store, title or store.place.words))


def host_of(shell: Shell, name: str) -> Host:
    """A host of the room that can be asked for files.

    Raises:
        LinkError: It is not there yet.
    """
    session: object = shell.session(name)
    if not isinstance(session, Host):
        raise LinkError(f"{name} is not there yet", hint="wait until it is connected")
    return session


class LogScreen(HubScreen):
    """One log."""

    CSS_PATH = "log.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "log.search", "log.next", "log.previous", "log.filter", "log.level", "log.rank",
        "log.first-error", "log.next-error", "log.ready", "log.phase", "log.next-phase",
        "log.previous-phase", "log.time", "log.copy", "log.save",
    )  # fmt: skip
    AREAS = ("log", "nav")
    AUTO_FOCUS = "LogView"
    ABOUT = (
        "The log of a server, from its end. The column on the left has the level (W, E, C) and the "
        "rank of each line. Progress that was rewritten in place, or printed a line a step, is one "
        "line; z opens it. Performance warnings "
        "and the newest errors stay above the log. The position is that of the line under the "
        "cursor; of a large log the number of lines is estimated. Esc ends a search that runs, "
        "then the filter, then leaves."
    )

    def __init__(self, shell: Shell, store: LogStore, title: str) -> None:
        super().__init__(shell)
        self.store = store
        self.log_title = title
        self.view = LogView(shell.look, store.text)
        self.status = LogStatus(shell.look)
        self.pins = Pins()
        self._phases = Query(test=self.pins.begins_phase)
        self.pinned = LogPins(shell.look, self.pins)
        self.filler = LogFiller(store, self.view, self.pins, self._refused)
        self.jobs = LogJobs(store, self._fail, self._changed)
        self.box = EditLine(id="log-input")
        self.box.cursor_blink = False
        self._mode = ""
        self._typed: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # ---- what HubScreen wants

    def crumbs(self) -> Sequence[str]:
        """Log, of what."""
        return ("log", self.log_title)

    def compose_body(self) -> Sequence[Widget]:
        """Pins, log, status, and the input while something is typed."""
        return (self.pinned, self.view, self.status, self.box)

    def feed_version(self) -> object:
        """Also what came, and what a search says."""
        store = self.store
        return (
            super().feed_version(), store.text.version, self.view.window.version, store.error,
            store.state, self.jobs.note, self.jobs.matches, self.pins.version,
        )  # fmt: skip

    def show_body(self, now_s: float) -> None:
        """The newest lines, where one follows them."""
        self.filler.catch_up()
        self.pinned.show()
        self.view.empty = self._why_empty()
        self.view.redraw()
        self.status.show(self)

    def _why_empty(self) -> str:
        store = self.store
        if store.error:
            return store.error
        if store.state == "missing":
            return f"not there yet, waited for: {store.place.words}"
        if store.state == "opening" and not store.text.segments:
            return f"opening {store.place.words}; nothing has come yet"
        if self.view.window.query:
            return "no line fits; Esc shows all" if self.view.window.at_start else "looking ..."
        return "the log is empty"

    # ---- tasks

    def on_mount(self) -> None:
        """Begin to follow."""
        super().on_mount()
        works = (self.store.run, self.filler.fill, self.filler.pin)
        self._tasks = [asyncio.create_task(self._guard(work)) for work in works]

    async def on_unmount(self) -> None:
        """End everything that was begun."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.jobs.close()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except RoomError as error:
            self._fail(error)

    def _fail(self, error: RoomError) -> None:
        self.jobs.note = error.title
        self.app.notify(
            "\n".join(part for part in (error.detail, error.hint) if part) or error.title,
            title=error.title, severity="error", timeout=8, markup=False,
        )  # fmt: skip

    def _changed(self) -> None:
        """What stands in the status line has changed: it is drawn with the key that changed it."""
        self.filler.wake()
        if self.is_attached:
            self.status.show(self)

    def on_log_view_moved(self) -> None:
        """The cursor is elsewhere."""
        self._changed()

    def _refused(self, error: UsageError) -> None:
        """The filter can't be carried out: show all."""
        self._fail(error)
        self._set_query(Query())

    # ---- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is typed into the input is text."""
        if action in PROMPTS and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def _ask(self, mode: str) -> None:
        self._mode = mode
        self.box.placeholder = PROMPTS[mode]
        self.box.value = self._typed.get(mode, "")
        self.box.add_class("-open")
        self.set_focus(self.box)

    def _close_box(self) -> None:
        self.box.remove_class("-open")
        self.set_focus(self.view)

    def action_search(self) -> None:
        """Ask for a pattern."""
        self._ask("search")

    def action_filter(self) -> None:
        """Ask for a filter."""
        self._ask("filter")

    def action_time(self) -> None:
        """Ask for a time."""
        self._ask("time")

    def action_save(self) -> None:
        """Ask for a file."""
        self._ask("save")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what was typed."""
        mode, text = self._mode, event.value
        if mode not in ("search", "filter") or not text.strip():
            text = text.strip()
        self._typed[mode] = text
        self._close_box()
        try:
            match mode:
                case "search":
                    self._search_for(text)
                case "filter":
                    self._filter_by(text)
                case "time" if text:
                    self.jobs.start(self.jobs.find_time(text, self._go))
                case "save" if text:
                    self.jobs.start(self.jobs.save(text, self.view.window.query))
        except UsageError as error:
            self._fail(error)

    def _find(self, query: Query, offset: int, what: str, *, back: bool = False) -> None:
        """Begin to look for a line."""
        self.jobs.start(self.jobs.find(query, offset, what, self._go, back=back))

    def _go(self, offset: int) -> None:
        """Put the cursor on a line that was found."""
        self.view.open_at(offset)
        self.view.go(offset)

    def _search_for(self, text: str) -> None:
        self.view.pattern = Pattern(text) if text else None
        self.jobs.count(self.view.pattern)
        if self.view.pattern is not None:
            back = self.view.follow
            offset = self.store.text.end if back else self.view.cursor
            self._find(self._pattern_query(), offset, text, back=back)
        self.view.redraw()
        self._changed()

    def _pattern_query(self) -> Query:
        query = self.view.window.query
        if query.pattern is None:
            return query.narrowed(pattern=self.view.pattern)
        return Query(pattern=self.view.pattern)

    def action_search_next(self) -> None:
        """Search on, down."""
        current = self.view.current
        if self.view.pattern is not None and current is not None:
            self._find(self._pattern_query(), current.end, self.view.pattern.text)

    def action_search_previous(self) -> None:
        """Search on, up."""
        current = self.view.current
        if self.view.pattern is not None and current is not None:
            self._find(self._pattern_query(), current.offset, self.view.pattern.text, back=True)

    def _filter_by(self, text: str) -> None:
        without = text.startswith("!")
        pattern = Pattern(text.removeprefix("!")) if text.removeprefix("!") else None
        self._set_query(self.view.window.query.narrowed(pattern=pattern, without=without))

    def _set_query(self, query: Query) -> None:
        """Show other lines, around the same place."""
        view = self.view
        view.window.query = query
        view.window.seek(self.store.text.end if view.follow else view.cursor)
        view.chosen_from = None
        view.redraw()
        self._changed()

    def action_level(self) -> None:
        """Warnings and worse, errors, all."""
        query = self.view.window.query
        here = LEVEL_STEPS.index(query.level) if query.level in LEVEL_STEPS else 0
        self._set_query(query.narrowed(level=LEVEL_STEPS[(here + 1) % len(LEVEL_STEPS)]))

    def action_rank(self) -> None:
        """The rank of this line, or all."""
        query, current = self.view.window.query, self.view.current
        if query.rank is not None:
            self._set_query(query.narrowed(rank=None))
        elif current is not None and current.line is not None and current.line.rank is not None:
            self._set_query(query.narrowed(rank=current.line.rank))
        else:
            self.jobs.note = "this line names no rank"
            self._changed()

    def action_first_error(self) -> None:
        """From the beginning."""
        self._find(ERRORS, self.store.text.start, "error")

    def action_next_error(self) -> None:
        """From here."""
        current = self.view.current
        if current is not None:
            self._find(ERRORS, current.end, "error")

    def action_ready_line(self) -> None:
        """From the end, up."""
        query = Query(test=self.pins.says_ready)
        self._find(query, self.store.text.end, "line that says ready", back=True)

    def action_phase(self) -> None:
        """The phase of this line, or all."""
        query, current = self.view.window.query, self.view.current
        if query.between is not None:
            self._set_query(query.narrowed(between=None))
        elif current is not None:
            self.jobs.start(self.jobs.find_phase(self._phases, current, self._show_stretch))

    def _show_stretch(self, begin: int, end: int | None) -> None:
        self._set_query(self.view.window.query.narrowed(between=(begin, end)))

    def action_next_phase(self) -> None:
        """From here."""
        current = self.view.current
        if current is not None:
            self._find(self._phases, current.end, "phase")

    def action_previous_phase(self) -> None:
        """From here, up."""
        current = self.view.current
        if current is not None:
            self._find(self._phases, current.offset, "phase", back=True)

    def action_copy(self) -> None:
        """Hand the selection to the terminal's clipboard (OSC 52)."""
        items = self.view.selection()
        text = "\n".join(item.line.text for item in items if item.line is not None)
        self.app.copy_to_clipboard(text[:MAX_COPY_CHARS])
        self.view.chosen_from = None
        self.view.redraw()
        count = len(items)
        self.jobs.note = f"copied {count} line{'' if count == 1 else 's'}"
        self._changed()

    def back(self) -> bool:
        """Esc: the input, a search that runs, a selection, the filter; then leave."""
        view = self.view
        if self.box.has_class("-open"):
            self._close_box()
        elif self.jobs.give_up():
            self.status.show(self)
        elif view.chosen_from is not None:
            view.chosen_from = None
            view.redraw()
        elif view.window.query:
            self._set_query(Query())
        elif view.pattern is not None:
            self._search_for("")
        else:
            return False
        return True
