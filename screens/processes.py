"""What runs on the GPUs of a host: who, what, how much memory on which card."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.model import GpuProcess, HostSnapshot
from screens.detail import Detail
from screens.filtering import FilteringScreen
from tui import filters
from tui import format as fmt
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell
from tui.themes import Look
from tui.widgets.gpu_items import program_name
from tui.widgets.row_list import RowList

SORTS = ("memory", "gpu", "cpu", "pid", "user")


def total_bytes(process: GpuProcess) -> int | None:
    """GPU memory over all cards; None where the driver tells of none."""
    known = [count for count in process.memory_bytes.values() if count is not None]
    return sum(known) if known else None


class ProcessList(RowList):
    """Processes; the cursor stays on a process, known by pid and start time."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.sort = "memory"
        self.filter = filters.Filter()
        self._indices: dict[str, int] = {}
        self._processes: dict[Hashable, GpuProcess] = {}
        self.note = ""

    def show(self, snapshot: HostSnapshot, only_uuid: str | None) -> None:
        """Draw; the one call a frame."""
        self._indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
        chosen = [
            process
            for process in snapshot.processes
            if (only_uuid is None or only_uuid in process.memory_bytes) and self._fits(process)
        ]
        self._processes = {
            (p.pid, p.start_ticks): p for p in sorted(chosen, key=lambda p: self._order(p))
        }
        self.note = next((note for note in snapshot.notes if "process" in note.lower()), "")
        self.redraw()

    def _fits(self, process: GpuProcess) -> bool:
        held = total_bytes(process)
        numbers = {
            "pid": process.pid,
            "cpu": process.cpu_pct,
            "mem": None if held is None else held / 2**30,
        }
        words = (process.user, process.model, process.container, process.command, process.pid)
        return self.filter.fits(" ".join(str(word) for word in words if word), numbers)

    def _order(self, process: GpuProcess) -> tuple[bool, float | str]:
        match self.sort:
            case "gpu":
                indices = self._gpus(process)
                return (not indices, indices[0] if indices else 0)
            case "cpu":
                return (process.cpu_pct is None, -(process.cpu_pct or 0))
            case "pid":
                return (False, process.pid)
            case "user":
                return (process.user is None, process.user or "")
            case _:
                total = total_bytes(process)
                return (total is None, -(total or 0))

    def _gpus(self, process: GpuProcess) -> list[int]:
        return sorted(self._indices[uuid] for uuid in process.memory_bytes if uuid in self._indices)

    def keys(self) -> Sequence[Hashable]:
        """Identities in the order shown."""
        return tuple(self._processes)

    def of(self, key: Hashable) -> GpuProcess:
        """The process of a key."""
        return self._processes[key]

    def empty_text(self) -> str:
        """Why there is none, where that is known."""
        if self.filter:
            return "no process fits the filter; / changes it"
        return self.note or "no process holds a GPU"

    def head_rows(self, width: int) -> list[Row]:
        """Column titles with the arrow of the order."""
        arrow = self.look.glyphs.descending
        line = Line().add("  ")
        for key, title, cells, align in (
            ("gpu", "gpu", 9, "<"), ("pid", "pid", 8, ">"), ("user", "user", 10, "<"),
            ("memory", "memory", 8, ">"), ("cpu", "cpu", 6, ">"),
        ):  # fmt: skip
            mine = key == self.sort
            line.cell(title + (arrow if mine else ""), cells, "accent" if mine else "dim", align)
            line.add(" ")
        return [line.add("what", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One process."""
        process = self._processes[key]
        line = Line().add((self.look.glyphs.cursor if current else " ") + " ", "accent")
        line.cell(ranges(self._gpus(process)), 9, "accent").add(" ")
        line.cell(str(process.pid), 8, "text", ">").add(" ")
        line.cell(process.user or fmt.ABSENT, 10, "text").add(" ")
        line.cell(fmt.size(total_bytes(process)), 8, "strong", ">").add(" ")
        line.cell(fmt.percent(process.cpu_pct), 6, "dim", ">").add(" ")
        if process.visible:
            line.add(program_name(process), "strong").add(" ")
            if process.container:
                line.add(f"[{process.container}] ", "info")
            line.add(process.command, "dim")
        else:
            line.add("not visible from here (another pid namespace)", "warning")
        return line.row(width, "cursor-row" if current else "text")


def ranges(numbers: Sequence[int]) -> str:
    """`0-7`, `1,3-5`."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if start is None:
            start = previous = number
        elif number is None or previous is None or number != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = previous = number
        else:
            previous = number
    return ",".join(parts)


class ProcessScreen(FilteringScreen):
    """Processes of a host, or of one of its GPUs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("processes")
    AREAS = ("processes", "nav")
    HINT = "words, !not, mem>1 (GiB), cpu>100, pid=4242"
    ABOUT = (
        "Every process that the driver reports on a GPU. One that is `not visible` runs in "
        "another pid namespace: the driver names it, this host's /proc does not. The lines below "
        "have the whole command of the one under the cursor."
    )

    def __init__(self, shell: Shell, only_uuid: str | None = None) -> None:
        super().__init__(shell)
        self.only_uuid = only_uuid
        self.list = ProcessList(shell.look)
        self.detail = Detail(shell.look)

    def crumbs(self) -> Sequence[str]:
        """Processes, of which GPU."""
        if self.only_uuid is not None:
            gpu = self.shell.snapshot().gpu(self.only_uuid)
            if gpu is not None:
                return (f"GPU {gpu.index}", "processes")
        return ("processes", self.filter_text) if self.filter_text else ("processes",)

    def compose_body(self) -> Sequence[Widget]:
        """List and detail."""
        return (self.list, self.detail, self.filter_box)

    @property
    def filtered(self) -> Widget:
        """The processes."""
        return self.list

    def apply_filter(self, text: str) -> None:
        """Show only the processes that fit."""
        self.list.filter = filters.parse(text)
        self.show_body(self.shell.clock.monotonic_s())

    def show_body(self, now_s: float) -> None:
        """The newest."""
        snapshot = self.shell.snapshot()
        if self.only_uuid is not None and snapshot.gpu(self.only_uuid) is None:
            self.only_uuid = None
        self.list.show(snapshot, self.only_uuid)
        self._show_detail()

    def _show_detail(self) -> None:
        keys = self.list.keys()
        if not keys:
            self.detail.show([])
            return
        process = self.list.of(keys[self.list.cursor_index(keys)])
        about = Line().add(f"pid {process.pid}", "strong").add(f"  {process.kind}", "dim")
        if process.user:
            about.add(f"  user {process.user}", "dim")
        if process.container:
            about.add(f"  container {process.container}", "info")
        if process.started is not None:
            about.add(f"  since {fmt.clock_time(process.started)}", "dim")
        if process.model:
            about.add(f"  model {process.model}", "accent")
        self.detail.show([about.spans, Line().add(process.command, "text").spans])

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()

    def action_sort(self) -> None:
        """Order by the next column."""
        self.list.sort = SORTS[(SORTS.index(self.list.sort) + 1) % len(SORTS)]
        self._first_frame()

    def action_log(self) -> None:
        """Open the log of the process: a file, a journal, a container's, a tmux pane."""
        keys = self.list.keys()
        if keys:
            process = self.list.of(keys[self.list.cursor_index(keys)])
            self.run_worker(self._open_log(process), name="processes.log", exit_on_error=False)

    async def _open_log(self, process: GpuProcess) -> None:
        from backends.servers.logplaces import log_of_process
        from screens.log import host_of, open_log

        name = self.shell.current
        place = await log_of_process(host_of(self.shell, name), process.pid)
        open_log(self.app, self.shell, name, place, program_name(process))
