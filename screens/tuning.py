"""The checklist of a host: judged, marked, changed after a look at what exactly, taken back."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.errors import RoomError
from backends.session import HostSession
from backends.tuning.desk import Desk, Judged, newest
from backends.tuning.findings import Finding
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines, needs_name
from backends.tuning.report import counts
from backends.tuning.snapshot import Outcome, Result, decode_snapshot
from backends.tuning.steps import Plan
from screens.base import HubScreen
from screens.confirm import ConfirmScreen
from screens.detail import Detail
from screens.tuning_list import SHOWN, FindingList, cost_of
from tui.bindings import bindings
from tui.rows import Line, Span
from tui.shell import Shell
from tui.widgets.row_list import RowList

MAX_LINES = 30
"""Of a dialog; what is longer is said to be."""


class TuningScreen(HubScreen):
    """See the module.

    Args:
        shell: The room.
        reading: How the host is read.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("tuning")
    AREAS = ("tuning", "nav")
    ABOUT = (
        "What this host gets wrong for inference, worst first: what was read, what it costs to "
        "mend. Below stands why it matters and what the fix is. Marked findings, or the one under "
        "the cursor, are put right after a look at exactly what will be written and run; each is "
        "read back, and all of it can be taken back. UNKNOWN was not readable from here; "
        "INCONCLUSIVE needs load. After a reboot the host is judged by itself, and what fell back "
        "is said."
    )

    def __init__(self, shell: Shell, reading: Reading | None = None) -> None:
        super().__init__(shell)
        self.list = FindingList(shell.look)
        self.detail = Detail(shell.look)
        self._reading = reading or Reading()
        self._host = ""
        self._boot = ""
        self._busy = ""
        self.judged: Judged | None = None

    def crumbs(self) -> Sequence[str]:
        """Tuning, and what it is at."""
        return ("tuning", self._busy or self.list.choice)

    def compose_body(self) -> Sequence[Widget]:
        """List and detail."""
        return (self.list, self.detail)

    def show_body(self, now_s: float) -> None:
        """Judge where another host, or another boot of it, is looked at."""
        agent = self.shell.snapshot().agent
        boot = agent.boot_id if agent is not None else ""
        if self.shell.current != self._host:
            self._host, self._boot, self.judged = self.shell.current, "", None
            self.list.results.clear()
            self.list.message = "waits for the link" if not boot else "is being judged"
            self.list.show([])
        if boot and boot != self._boot and not self._busy:
            self._boot = boot
            self._begin("judging", self._judge)
        self._show_detail()

    # -- what keys do

    def action_mark(self) -> None:
        """Mark what is under the cursor, or unmark it."""
        finding = self.list.current()
        if finding is not None:
            if finding.fix is None or not finding.fix.applicable:
                self.notify(f"{finding.check} has no fix that can be carried out", markup=False)
                return
            self.list.marked ^= {finding.check}
            self.list.action_down()
            self.list.redraw()

    def action_choose(self) -> None:
        """Show the next kind of verdicts."""
        names = list(SHOWN)
        self.list.choose(names[(names.index(self.list.choice) + 1) % len(names)])
        self._first_frame()

    def action_judge(self) -> None:
        """Read and judge again."""
        self._begin("judging", self._judge)

    def action_fix(self) -> None:
        """Show what would be done for the marked findings, and do it after a yes."""
        finding = self.list.current()
        ids = sorted(self.list.marked) or ([finding.check] if finding is not None else [])
        if ids and self.judged is not None:
            self._begin("planning", lambda desk: self._fix(desk, ids))

    def action_undo(self) -> None:
        """Take the newest change back after a yes."""
        self._begin("taking back", self._undo)

    def back(self) -> bool:
        """Esc takes the marks away first."""
        if not self.list.marked:
            return False
        self.list.marked.clear()
        self.list.redraw()
        return True

    # -- work

    def _desk(self) -> Desk | None:
        session = self.shell.session()
        if not isinstance(session, HostSession):
            return None
        below = session.config.hypervisor
        other = self.shell.session(below) if below else None
        hypervisor = other if isinstance(other, HostSession) else None
        return Desk(Machines(session, hypervisor), reading=self._reading)

    def _begin(self, what: str, work: Callable[[Desk], Awaitable[None]]) -> None:
        """One thing at a time; it ends with the screen."""
        desk = self._desk()
        if desk is None or self._busy:
            return
        self._busy = what
        self.run_worker(self._guarded(desk, work), exclusive=True, group="tuning")

    async def _guarded(self, desk: Desk, work: Callable[[Desk], Awaitable[None]]) -> None:
        try:
            await work(desk)
        except RoomError as error:
            self.list.message = str(error)
            self.notify(str(error), title=error.hint, severity="error", markup=False)
        finally:
            self._busy = ""
            if self.is_mounted:
                self.list.redraw()
                self._first_frame()

    async def _judge(self, desk: Desk) -> None:
        began = time.monotonic()
        self._take(desk, await desk.judge())
        self.list.message = f"judged in {time.monotonic() - began:.1f} s"

    def _take(self, desk: Desk, judged: Judged) -> None:
        if desk.machines.host.name != self.shell.current:
            return  # another host is looked at by now
        self.judged = self.shell.judged[self.shell.current] = judged
        self.list.show(judged.findings)
        if judged.fell_back is not None:
            names = ", ".join(one.check for one in judged.fell_back) or "nothing"
            self.notify(f"booted since the last run; fell back: {names}", timeout=15, markup=False)

    async def _fix(self, desk: Desk, ids: Sequence[str]) -> None:
        assert self.judged is not None
        planned = await desk.plan(self.judged, ids)
        name = planned.hosts[0] if planned.hosts else desk.machines.host.name
        careful = needs_name(desk.machines)
        yes = await self.app.push_screen_wait(
            ConfirmScreen(
                self.shell.look,
                title=f"Change settings on {' and '.join(planned.hosts) or name}",
                text=careful,
                runs=shown(planned),
                type_this=name if careful else "",
            )
        )
        if not yes:
            return
        self._busy = "changing"
        await desk.keep_snapshot(planned)
        results, judged = await desk.apply(planned, self._told)
        for result in results:
            self._told(result)
        self.list.marked.clear()
        if judged is not None:
            self._take(desk, judged)

    def _told(self, result: Result) -> None:
        rule = result.check.partition("[")[0]
        known = self.list.results.get(rule)
        good = (Outcome.APPLIED, Outcome.ALREADY_SO)
        if known is None or known.check == result.check or result.outcome not in good:
            self.list.results[rule] = result
        self.list.redraw()

    async def _undo(self, desk: Desk) -> None:
        stored = newest(await desk.snapshots())
        if stored is None:
            self.notify("there is no change to take back", markup=False)
            return
        snapshot = decode_snapshot(stored.body)
        careful = needs_name(desk.machines)
        paths = [saved.path for saved in reversed(snapshot.saved) if saved.path]
        name = desk.machines.host.name
        yes = await self.app.push_screen_wait(
            ConfirmScreen(
                self.shell.look,
                title=f"Take back the change of {stored.at_utc[:19]} on {name}",
                text=careful or "Everything goes back to what it was, and is read again.",
                runs=_cut([f"put back {path}" for path in paths]),
                type_this=name if careful else "",
            )
        )
        if not yes:
            return
        self._busy = "taking back"
        self.list.results.clear()
        for result in await desk.roll_back(stored):
            self._told(result)
        self._take(desk, await desk.judge())

    # -- drawing

    def _show_detail(self) -> None:
        finding = self.list.current()
        paragraphs: list[Sequence[Span]] = []
        if self.judged is not None:
            told = counts(self.judged.findings)
            line = Line()
            for verdict, count in told.most_common():
                line.add(f"{count} {verdict.value}  ", "dim")
            paragraphs.append(line.spans)
        if finding is not None:
            paragraphs += paragraphs_of(finding, self.list.results.get(finding.check))
        self.detail.show(paragraphs)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()


def paragraphs_of(finding: Finding, result: Result | None) -> list[Sequence[Span]]:
    """Everything about one finding: title, evidence, why with its source, fix and cost."""
    lines: list[Sequence[Span]] = [
        Line().add(finding.title, "strong").add(f"  ({finding.vantage})", "dim").spans,
        Line().add(finding.evidence).spans,
    ]
    if result is not None and result.kernel:
        lines += [Line().add(f"kernel: {text}", "critical").spans for text in result.kernel[-3:]]
    if finding.fix_text:
        cost = cost_of(finding)
        lines.append(
            Line().add(f"fix: {finding.fix_text}" + (f" [{cost}]" if cost else ""), "accent").spans
        )
    if finding.hint:
        lines.append(Line().add(finding.hint, "info").spans)
    if finding.why:
        source = f" ({finding.sources[0]})" if finding.sources else ""
        lines.append(Line().add(f"why: {finding.why}{source}", "dim").spans)
    return lines


def shown(planned: Plan) -> list[str]:
    """Exactly what would be written and run."""
    return _cut(planned.lines())


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_LINES:
        return lines
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"... and {more} more lines: mark fewer to see all"]
