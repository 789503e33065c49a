"""How `gpuroom bench` speaks: progress on stderr, results on stdout as they come."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from backends.bench.compare_steps import StepWord
from backends.bench.results import Finding, RunResult, StepResult, to_json
from backends.bench.run_events import ToolSaid
from backends.bench.runner import Event, Noticed, Progress, StepEnded
from tui.cli import bench_table
from tui.cli.fit import width_of, wrapped

PROGRESS_S: Final = 5.0


class Form(StrEnum):
    """What stdout gets.

    TABLE has a line a step as it ends, JSON the whole document at the end, LINES one JSON object
    a line as things come: `{"finding": ...}`, `{"step": ...}`, `{"word": ...}`, and at last
    `{"result": ...}`.
    """

    TABLE = "table"
    JSON = "json"
    LINES = "lines"


class Console:
    """Progress on stderr, results on stdout.

    Attributes:
        labels: What each step of the run is called, by its place.
    """

    def __init__(self, *, quiet: bool, form: Form) -> None:
        self._quiet = quiet
        self._form = form
        self._live = not quiet and sys.stderr.isatty()
        self._drawn = False
        self._next_s = 0.0
        self._begun = False
        self._noted: set[str] = set()
        self._width = width_of(sys.stdout)
        self._table = bench_table.StepTable(self._width)
        self.labels: dict[int, str] = {}

    def say(self, text: str) -> None:
        """A line on stderr."""
        self._clear()
        for line in wrapped(text, width_of(sys.stderr)):
            print(line, file=sys.stderr)

    def print(self, text: str = "") -> None:
        """A line on stdout."""
        for line in wrapped(text, self._width):
            print(line)

    def found(self, finding: Finding) -> None:
        """What was found out, before the run or while it goes on."""
        self.say(bench_table.finding_line(finding, self.labels))
        self._line(finding=finding)

    def event(self, event: Event) -> None:
        """What the run says."""
        if isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, ToolSaid):
            if not self._quiet:
                self.say(f"  {event.text}")
        elif isinstance(event, Noticed):
            self.found(event.finding)
        elif isinstance(event, StepEnded):
            self._step(event.result)

    def words(self, step: StepResult, words: Mapping[str, StepWord]) -> None:
        """What the comparison with the baseline says about a step that has just ended."""
        word = words.get(step.label)
        if word is None:
            return
        if self._form is Form.TABLE:
            self._clear()
            self.print(f"  against the baseline: {word.text}")
            sys.stdout.flush()
        self._line(
            word={
                "step": word.step, "repetition": step.repetition, "word": word.word.value,
                "metric": word.metric, "change": word.change, "change_low": word.low,
                "change_high": word.high, "why": word.why,
            }
        )  # fmt: skip

    def end(self, result: RunResult) -> None:
        """The whole of it: below the table, or the document."""
        self._clear()
        if self._form is not Form.TABLE:
            if self._form is Form.JSON:
                sys.stdout.write(to_json(result).decode() + "\n")
            self._line(result=result)
            return
        # What the end of the run added: a bound by the theoretical maximum.
        late = [note for step in result.steps for note in bench_table.step_notes(step)]
        self.print()
        for line in (*bench_table.footer(result), *(n for n in late if n not in self._noted)):
            self.print(line)
        if result.error:
            self.print(f"{result.status}: {result.error}")
        self.print(f"run {result.run_id}; gpuroom bench show, compare, export have it")

    def _step(self, step: StepResult) -> None:
        if self._form is Form.TABLE:
            self._clear()
            if not self._begun:
                self._begun = True
                print("\n".join(self._table.header()))
            print("\n".join(self._table.lines(step)))
            for note in bench_table.step_notes(step):
                self._noted.add(note)
                self.print(f"  {note}")
            sys.stdout.flush()
        self._line(step=step)

    def _line(self, **fields: object) -> None:
        if self._form is Form.LINES:
            sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
            sys.stdout.flush()

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
