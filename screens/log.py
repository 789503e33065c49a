"""The log of a server: followed, searched, filtered, of any size.

`open_log` is the way in for panes and other screens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
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
from backends.servers.logtext import Item
from backends.servers.logtimes import TimeSearch
from backends.servers.prefixes import Level
from screens.base import HubScreen
from screens.log_parts import LogPins, LogStatus
from tui.bindings import bindings
from tui.shell import Shell
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
        "rank of each line. Progress that was rewritten in place is one line. Performance warnings "
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
        self.box = Input(id="log-input")
        self.box.cursor_blink = False
        self.note = ""
        self._mode = ""
        self._typed: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._job: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self.matches = ""

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
            store.state, self.note, self.matches, self.pins.version,
        )  # fmt: skip

    def show_body(self, now_s: float) -> None:
        """The newest lines, where one follows them."""
        self._catch_up()
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

    def _catch_up(self) -> None:
        """Jump to the end instead of reading all that came since the last frame."""
        view, text = self.view, self.store.text
        window = view.window
        if view.follow and not window.query and window.high != text.end:
            window.seek(text.end)
            window.extend_up(max(1, view.size.height) * 2)
        self._wake.set()

    # ---- tasks

    def on_mount(self) -> None:
        """Begin to follow."""
        super().on_mount()
        works = (self.store.run, self._fill, self._pin)
        self._tasks = [asyncio.create_task(self._guard(work)) for work in works]

    async def on_unmount(self) -> None:
        """End everything that was begun."""
        tasks = [*self._tasks, *(t for t in (self._job, self._counting) if t is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except RoomError as error:
            self._fail(error)

    def _fail(self, error: RoomError) -> None:
        self.note = error.title
        self.app.notify(
            "\n".join(part for part in (error.detail, error.hint) if part) or error.title,
            title=error.title, severity="error", timeout=8, markup=False,
        )  # fmt: skip

    async def _fill(self) -> None:
        """Grow the window as far as the view needs it, one slice at a time."""
        while True:
            before, behind = self.view.needs()
            if not before and not behind:
                self._wake.clear()
                await self._wake.wait()
                continue
            window, version = self.view.window, self.view.window.version
            low, high = window.low, window.high
            try:
                # What is looked at first, what comes before it afterwards.
                down = behind and (not before or (not self.view.follow and not window.items))
                missing = window.extend_down(behind) if down else window.extend_up(before)
                if missing is not None:
                    await self.store.fetch(missing)
            except UsageError as error:
                self._fail(error)
                self._set_query(Query())
                continue
            except RoomError:  # the store says which
                await asyncio.sleep(1.0)
                continue
            if window is self.view.window and window.version != version:
                self._fresh()
            if (window.low, window.high) == (low, high) and missing is None:
                # Only an unfinished line is left.
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), 0.25)
            await asyncio.sleep(0)

    def _fresh(self) -> None:
        """Draw at once what one waits for; the rest waits for the next frame."""
        view = self.view
        if len(view.shown()) <= view.size.height * 2 and not (view.follow and view.window.query):
            view.redraw()

    async def _pin(self) -> None:
        """Look through what is near the end, and what comes, for what must stay in view."""
        text, at = self.store.text, -1
        while True:
            if text.segments and at < 0:
                at = await self.store.settle(
                    partial(text.line_start, max(text.start, text.end - PIN_BACK_BYTES))
                )
            if at >= 0:
                if text.end - at > PIN_LAG_BYTES:
                    at = await self.store.settle(
                        partial(text.line_start, text.end - PIN_BACK_BYTES)
                    )
                at = await self._pin_up_to_date(at)
            await asyncio.sleep(0.25)

    async def _pin_up_to_date(self, at: int) -> int:
        text = self.store.text
        until = await self.store.settle(partial(text.line_start, text.end))
        while at < until:
            chunk = await self.store.settle(partial(text.chunk, at, 16384, back=False))
            if chunk is None:
                break
            begin, data = chunk
            data = data[: until - begin]
            self.pins.take(data, begin)
            at = begin + max(1, len(data))
            await asyncio.sleep(0)
        return at

    # ---- jobs: one at a time, Esc ends it

    def _start(self, work: Awaitable[None]) -> None:
        if self._job is not None:
            self._job.cancel()
        self._job = asyncio.create_task(self._run_job(work))

    async def _run_job(self, work: Awaitable[None]) -> None:
        try:
            await work
        except RoomError as error:
            self._fail(error)

    async def _find(self, query: Query, offset: int, what: str, *, back: bool = False) -> None:
        """Go to the first line that a query wants, from a place on."""
        text = self.store.text
        begin, end = offset, text.start if back else text.end

        def progress(at: int) -> None:
            share = abs(at - begin) / max(1, abs(end - begin))
            self.note = f"looking for {what}: {share * 100:.0f} %, Esc ends it"

        def found(item: Item) -> bool:
            if item.line is None:
                return True
            self.view.go(item.offset)
            self._wake.set()
            return False

        missed = await self.store.scan(
            query, offset, back=back, on_item=found, on_progress=progress
        )
        self.note = f"no {what} {'above' if back else 'below'}" if missed else ""

    async def _count(self, pattern: Pattern) -> None:
        """How many lines fit, in the part near the end."""
        text = self.store.text
        low = await self.store.settle(
            partial(text.line_start, max(text.start, text.end - COUNT_BYTES))
        )
        count = 0
        where = "" if low <= text.start else f" in the last {COUNT_BYTES >> 20} MiB"

        def found(item: Item) -> bool:
            nonlocal count
            count += item.line is not None
            return True

        def progress(_: int) -> None:
            self.matches = f"{count:,} match so far"

        try:
            await self.store.scan(
                Query(pattern=pattern), low, back=False, on_item=found, on_progress=progress
            )
            self.matches = f"{count:,} line{' matches' if count == 1 else 's match'}{where}"
        except RoomError as error:
            self.matches = error.title

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
                    self._start(self._go_to_time(text))
                case "save" if text:
                    self._start(self._save(text))
        except UsageError as error:
            self._fail(error)

    def _search_for(self, text: str) -> None:
        if self._counting is not None:
            self._counting.cancel()
        self.view.pattern = Pattern(text) if text else None
        self.matches = ""
        if self.view.pattern is not None:
            self._counting = asyncio.create_task(self._count(self.view.pattern))
            back = self.view.follow
            offset = self.store.text.end if back else self.view.cursor
            self._start(self._find(self._pattern_query(), offset, text, back=back))
        self.view.redraw()

    def _pattern_query(self) -> Query:
        query = self.view.window.query
        if query.pattern is None:
            return query.narrowed(pattern=self.view.pattern)
        return Query(pattern=self.view.pattern)

    def action_search_next(self) -> None:
        """Search on, down."""
        current = self.view.current
        if self.view.pattern is not None and current is not None:
            self._start(self._find(self._pattern_query(), current.end, self.view.pattern.text))

    def action_search_previous(self) -> None:
        """Search on, up."""
        current = self.view.current
        if self.view.pattern is not None and current is not None:
            self._start(
                self._find(self._pattern_query(), current.offset, self.view.pattern.text, back=True)
            )

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
        self._wake.set()
        view.redraw()

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
            self.note = "this line names no rank"

    def action_first_error(self) -> None:
        """From the beginning."""
        self._start(self._find(ERRORS, self.store.text.start, "error"))

    def action_next_error(self) -> None:
        """From here."""
        current = self.view.current
        if current is not None:
            self._start(self._find(ERRORS, current.end, "error"))

    def action_ready_line(self) -> None:
        """From the end, up."""
        query = Query(test=self.pins.says_ready)
        self._start(self._find(query, self.store.text.end, "line that says ready", back=True))

    def action_phase(self) -> None:
        """The phase of this line, or all."""
        query, current = self.view.window.query, self.view.current
        if query.between is not None:
            self._set_query(query.narrowed(between=None))
        elif current is not None:
            self._start(self._show_phase(current))

    async def _show_phase(self, current: Item) -> None:
        """From the line that began the phase of this one to the one that begins the next."""
        found: list[int] = []

        def note(item: Item) -> bool:
            found.append(item.offset)
            return item.line is None

        self.note = "looking for the phase"
        await self.store.scan(self._phases, current.end, back=True, on_item=note)
        begin = found[-1] if found else self.store.text.start
        found.clear()
        await self.store.scan(self._phases, current.end, back=False, on_item=note)
        self.note = ""
        self._set_query(
            self.view.window.query.narrowed(between=(begin, found[-1] if found else None))
        )

    def action_next_phase(self) -> None:
        """From here."""
        current = self.view.current
        if current is not None:
            self._start(self._find(self._phases, current.end, "phase"))

    def action_previous_phase(self) -> None:
        """From here, up."""
        current = self.view.current
        if current is not None:
            self._start(self._find(self._phases, current.offset, "phase", back=True))

    async def _go_to_time(self, text: str) -> None:
        self.note = f"looking for {text}"
        offset = await self.store.find_time(TimeSearch(self.store.text, text))
        self.note = ""
        if offset >= self.store.text.end:
            self.note = f"no line at or after {text}"
        else:
            self.view.go(offset)
            self._wake.set()

    def action_copy(self) -> None:
        """Hand the selection to the terminal's clipboard (OSC 52)."""
        items = self.view.selection()
        text = "\n".join(item.line.text for item in items if item.line is not None)
        self.app.copy_to_clipboard(text[:MAX_COPY_CHARS])
        self.view.chosen_from = None
        self.view.redraw()
        count = len(items)
        self.note = f"copied {count} line{'' if count == 1 else 's'}"

    async def _save(self, name: str) -> None:
        """Write the lines that are shown, from the first to the newest."""
        path = Path(os.path.expanduser(name))  # noqa: ASYNC240 - looks at the environment alone
        text, written, count = self.store.text, 0, 0
        try:
            file = await asyncio.to_thread(path.open, "x", encoding="utf-8")
        except OSError as error:
            raise UsageError("The file can't be written", f"{path}: {error.strerror}") from None
        with file:

            def take(item: Item) -> bool:
                nonlocal written, count
                words = item.line.text if item.line is not None else f"--- {item.mark.strip()}"
                written += file.write(words + "\n")
                count += 1
                return written < MAX_SAVE_BYTES

            def progress(at: int) -> None:
                share = at / max(1, text.end)
                self.note = f"saving to {path}: {share * 100:.0f} %, Esc ends it"

            await self.store.scan(
                self.view.window.query, text.start, back=False, on_item=take, on_progress=progress
            )
        self.note = f"saved {count:,} lines to {path}"

    def back(self) -> bool:
        """Esc: the input, a search that runs, a selection, the filter; then leave."""
        view = self.view
        if self.box.has_class("-open"):
            self._close_box()
        elif self._job is not None and not self._job.done():
            self._job.cancel()
            self.note = "given up"
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

    def on_key(self) -> None:
        """A key may have moved the view."""
        self._wake.set()
        self.call_next(self._after_key)

    def _after_key(self) -> None:
        self._wake.set()
        self.status.show(self)
