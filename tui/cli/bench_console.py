"""How `gpuroom bench` speaks: progress on stderr, the table on stdout."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from backends.bench.results import RunResult
from backends.bench.run_events import ToolSaid
from backends.bench.runner import Event, Noticed, Progress, StepEnded
from tui.cli import bench_table

PROGRESS_S: Final = 5.0


class Console:
    """Progress on stderr, the table on stdout."""

    def __init__(self, *, quiet: bool, table: bool) -> None:
        self._quiet = quiet
        self._table = table
        self._live = not quiet and sys.stderr.isatty()
        self._drawn = False
        self._next_s = 0.0
        self._begun = False

    def say(self, text: str) -> None:
        """A line on stderr."""
        self._clear()
        print(text, file=sys.stderr)

    def event(self, event: Event) -> None:
        """What the run says."""
        if isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, ToolSaid):
            if not self._quiet:
                self.say(f"  {event.text}")
        elif isinstance(event, Noticed):
            self.say(bench_table.finding_line(event.finding))
        elif isinstance(event, StepEnded) and self._table:
            self._clear()
            if not self._begun:
                self._begun = True
                print(bench_table.HEADER)
                print(bench_table.UNITS)
            print(bench_table.step_line(event.result), flush=True)

    def end(self, result: RunResult) -> None:
        """What stands below the table."""
        self._clear()
        print()
        for line in bench_table.footer(result):
            print(line)
        if result.error:
            print(f"{result.status}: {result.error}")
        print(f"run {result.run_id}; gpuroom bench show, compare, export have it")

    def _progress(self, progress: Progress) -> None:
        if self._quiet:
            return
        line = bench_table.progress_line(progress)
        if self._live:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            sys.stderr.write("\r\x1b[K" + line[: max(1, width - 1)])
            sys.stderr.flush()
            self._drawn = True
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PROGRESS_S
            print(line, file=sys.stderr)

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False
