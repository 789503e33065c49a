"""The checklist of a host: judged, marked, changed after a look at what exactly, taken back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.errors import RoomError
from backends.session import HostSession
from backends.tuning import unfinished
from backends.tuning.desk import Desk, Judged
from backends.tuning.engine import Options
from backends.tuning.facts import Vantage
from backends.tuning.findings import Finding
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.profiles import NAMES, load
from backends.tuning.report import trial_text
from backends.tuning.settings import options_for, profile_of
from backends.tuning.steps import Form
from screens.detail import Detail
from screens.filtering import FilteringScreen
from screens.tuning_list import NOWHERE, FindingList, cost_of, places_of
from screens.tuning_results import ResultTable, paragraphs_of
from screens.tuning_work import TuningWork
from tui.bindings import bindings
from tui.rows import Line, Span
from tui.shell import Shell
from tui.widgets.row_list import RowList

OF_THE_LIST = frozenset(
    {"mark", "choose", "group", "filter", "waive", "profile", "form", "measure", "try"}
)
"""What keys do on the list alone."""
FORMS = tuple(Form)
FORM_WORDS = {
    Form.RUNTIME: "at once, lost at the next boot",
    Form.PERSISTENT: "from the next boot on",
    Form.BOTH: "at once and after every boot",
}


class TuningScreen(FilteringScreen):
    """See the module.

    Args:
        shell: The room.
        reading: How the host is read.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("tuning")
    AREAS = ("tuning", "nav")
    AUTO_FOCUS = "#findings"
    HINT = "words of a check, its evidence or group, !not"
    ABOUT = (
        "What this host gets wrong for inference, worst first: what was read, what it costs to "
        "mend. Below stands why it matters and what the fix is; Enter shows all of it. Marked "
        "findings, or the one under the cursor, are put right after a look at exactly what will be "
        "written and run, in the form that stands at the head; each is read back, and all of it "
        "can be taken back. UNKNOWN was not readable from here; INCONCLUSIVE needs load. After a "
        "reboot the host is judged by itself, and what fell back is shown. P judges by another "
        "profile; W accepts a finding till a day, with a reason; (own) marks your own checks."
    )

    def __init__(self, shell: Shell, reading: Reading | None = None) -> None:
        super().__init__(shell)
        self.list = FindingList(shell.look)
        self.results = ResultTable(shell.look)
        self.detail = Detail(shell.look)
        self.form = Form.RUNTIME
        self.work = TuningWork(self)
        self.judged: Judged | None = None
        self._reading = reading or Reading()
        self._host = ""
        self._boot = ""
        self._busy = ""

    @property
    def busy(self) -> str:
        """What is at work on the host, one thing at a time; empty for nothing."""
        return self._busy

    def crumbs(self) -> Sequence[str]:
        """Tuning, and what it is at."""
        showing = "results" if self.results.display else self.list.choice
        if self.filter_text:
            showing += f" ({self.filter_text})"
        return ("tuning", self._busy or showing)

    def compose_body(self) -> Sequence[Widget]:
        """List or results, and detail."""
        self.results.display = False
        self.list.form = self.form.value
        return (self.list, self.results, self.detail, self.filter_box)

    @property
    def filtered(self) -> Widget:
        """The list."""
        return self.list

    def apply_filter(self, text: str) -> None:
        """Narrow the list."""
        self.list.narrow(text)

    def show_body(self, now_s: float) -> None:
        """Judge where another host, or another boot of it, is looked at."""
        agent = self.shell.snapshot().agent
        boot = agent.boot_id if agent is not None else ""
        if self.shell.current != self._host:
            self._host, self._boot, self.judged = self.shell.current, "", None
            self.list.message = "waits for the link" if not boot else "is being judged"
            self.list.show([], {})
            self.show_results(False)
        if boot and boot != self._boot and not self._busy:
            self._boot = boot
            self.begin("judging", self.judge)
        self._show_detail()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What belongs to the list is not offered on results."""
        if action in OF_THE_LIST and self.results.display:
            return False
        return super().check_action(action, parameters)

    # -- what keys do

    def action_mark(self) -> None:
        """Mark what is under the cursor, or unmark it."""
        finding = self.list.current()
        if finding is None:
            return
        if finding.fix is None or not finding.fix.applicable:
            self.notify(f"{finding.check} has no fix that can be carried out", markup=False)
            return
        self.list.marked ^= {finding.check}
        self.list.action_down()
        self.list.redraw()

    def action_choose(self) -> None:
        """Show the next kind of verdicts."""
        self.list.next_choice()
        self._first_frame()

    def action_group(self) -> None:
        """Groups one after the other, or all by worth."""
        self.list.grouped = not self.list.grouped
        self.list.lay_out()

    def action_form(self) -> None:
        """Choose the next form in which fixes are carried out."""
        self.form = FORMS[(FORMS.index(self.form) + 1) % len(FORMS)]
        self.list.form = self.form.value
        self.list.redraw()
        self.notify(f"{self.form.value}: {FORM_WORDS[self.form]}", timeout=3, markup=False)

    def action_judge(self) -> None:
        """Read and judge again."""
        self.begin("judging", self.judge)

    def action_as_root(self) -> None:
        """Read what only root may read, too, and judge again."""
        self._reading = replace(self._reading, sudo=True)
        self.begin("judging as root", self.work.judge_as_root)

    def action_fix(self) -> None:
        """Show what would be done for the marked findings, and do it after a yes."""
        if self.results.display:
            self.notify("these are results: Esc leads back to the checklist", timeout=3)
            return
        finding = self.list.current()
        ids = sorted(self.list.marked) or ([finding.check] if finding is not None else [])
        if ids and self.judged is not None:
            self.begin("planning", lambda desk: self.work.fix(desk, ids))

    def action_undo(self) -> None:
        """Take the newest change back after a yes."""
        self.begin("taking back", self.work.undo)

    def action_own(self) -> None:
        """Show what gpuroom made lasting here; remove some of it after a yes."""
        self.begin("looking", self.work.own_files)

    def action_measure(self) -> None:
        """Measure under a short load, and judge with what was measured."""
        if self.judged is not None:
            finding = self.list.current()
            check = finding.rule if finding is not None else ""
            self.begin("measuring", lambda desk: self.work.measure(desk, check))

    def action_profile(self) -> None:
        """Judge what was read by the next profile."""
        config = self.shell.host_config(self.shell.current)
        now = self.shell.profiles.get(config.name) or profile_of(self.shell.config, config)
        chosen = NAMES[(NAMES.index(now) + 1) % len(NAMES)]
        self.shell.profiles[config.name] = chosen
        self.notify(f"{chosen}: {load(chosen).description}", timeout=4, markup=False)
        self.begin("judging", self.work.judge_again)

    def action_waive(self) -> None:
        """Accept what is under the cursor, with a reason and an end."""
        finding = self.list.current()
        if finding is not None and self.judged is not None:
            self.begin("waiving", lambda desk: self.work.waive(desk, finding))

    def action_reboot(self) -> None:
        """Show what a reboot will change."""
        if self.judged is not None:
            self.begin("looking", self.work.preview_reboot)

    def action_try(self) -> None:
        """Measure, apply what is under the cursor, measure again, and take it back."""
        finding = self.list.current()
        if finding is not None and self.judged is not None and not self.results.display:
            self.begin("planning", lambda desk: self.work.try_out(desk, finding.check))

    def back(self) -> bool:
        """Esc leaves the results first, then the filter, then takes the marks away."""
        if self.results.display:
            self.show_results(False)
            return True
        if super().back():
            return True
        if not self.list.marked:
            return False
        self.list.marked.clear()
        self.list.redraw()
        return True

    # -- the host

    def desk(self) -> Desk | None:
        """The checklist of the host looked at; None while it is not there."""
        session = self.shell.session()
        if not isinstance(session, HostSession):
            return None
        below = session.config.hypervisor
        other = self.shell.session(below) if below else None
        hypervisor = other if isinstance(other, HostSession) else None
        password = self.shell.secrets.sudo(session.name)
        reading = replace(self._reading, password=password)
        return Desk(Machines(session, hypervisor), reading=reading)

    def options(self, desk: Desk) -> Options:
        """How the host is judged: as configured and waived now, by the profile chosen here."""
        host = desk.machines.host
        chosen = self.shell.profiles.get(host.name, "")
        return options_for(self.shell.config, host.config, profile=chosen)

    def begin(self, what: str, work: Callable[[Desk], Awaitable[None]]) -> None:
        """One thing at a time; it ends with the screen."""
        desk = self.desk()
        if desk is None or self._busy:
            return
        self._busy = what
        self.run_worker(self._guarded(desk, work), exclusive=True, group="tuning")

    def say(self, what: str) -> None:
        """Say what is at work now."""
        self._busy = what
        self._first_frame()

    async def _guarded(self, desk: Desk, work: Callable[[Desk], Awaitable[None]]) -> None:
        try:
            desk.options = await asyncio.to_thread(self.options, desk)
            self.list.profile = desk.options.profile.name
            await work(desk)
        except RoomError as error:
            self.list.message = str(error)
            self.notify(str(error), title=error.hint, severity="error", markup=False)
        finally:
            self._busy = ""
            if self.is_mounted:
                self.list.redraw()
                self._first_frame()

    async def judge(self, desk: Desk) -> None:
        """Read and judge."""
        began = time.monotonic()
        judged = await desk.judge()
        self.list.message = f"judged in {time.monotonic() - began:.1f} s"
        self.take(desk, judged)
        cut = await desk.cut()
        if cut is not None:
            words = unfinished.say(cut, "u takes it back")
            self.notify(words, severity="warning", timeout=15, markup=False)

    def take(self, desk: Desk, judged: Judged) -> None:
        """Show a run, where its host is still looked at."""
        if desk.machines.host.name != self.shell.current:
            return
        self.judged = self.shell.judged[self.shell.current] = judged
        worse = judged.fell_back or []
        self.list.places = places_of(judged, desk.machines.host.config)
        self.list.show(judged.findings, {one.check: one.before for one in worse})
        if judged.fell_back is not None:
            names = ", ".join(one.check for one in worse) or "nothing"
            self.notify(f"booted since the last run; fell back: {names}", timeout=15, markup=False)
        elif judged.gathered.notes:
            self.notify("\n".join(judged.gathered.notes), timeout=8, markup=False)

    # -- drawing

    def show_results(self, shown: bool) -> None:
        """Show the results of a change in the place of the list, or the list again."""
        self.results.display = shown
        self.list.display = not shown
        self.set_focus(self.results if shown else self.list)
        self.refresh_bindings()
        self._first_frame()

    def _show_detail(self) -> None:
        if self.results.display:
            result = self.results.current()
            self.detail.show([] if result is None else paragraphs_of(result, self.results.back))
            return
        finding = self.list.current()
        self.detail.show([] if finding is None else paragraphs(finding, self.list.places))

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """A finding in full; a group is folded."""
        finding = self.list.of(message.key)
        if finding is None:
            self.list.fold(message.key)
        elif self.judged is not None:
            from screens.finding import FindingScreen

            self.app.push_screen(FindingScreen(self.shell, self.judged, finding, self._fix_one))

    def _fix_one(self, check: str) -> None:
        self.begin("planning", lambda desk: self.work.fix(desk, [check]))


def paragraphs(finding: Finding, places: Mapping[Vantage, str] = NOWHERE) -> list[Sequence[Span]]:
    """What matters most of one finding: title, evidence, fix and cost, why with its source."""
    seen = places.get(Vantage(finding.vantage), f"the {finding.vantage}")
    lines: list[Sequence[Span]] = [
        Line().add(finding.title, "strong").add(f"  (seen on {seen})", "dim").spans,
        Line().add(finding.evidence).spans,
    ]
    if finding.trial:
        lines.append(Line().add(trial_text(finding), "accent").spans)
    elif finding.fix_text:
        cost = cost_of(finding, places)
        lines.append(
            Line().add(f"fix: {finding.fix_text}" + (f" [{cost}]" if cost else ""), "accent").spans
        )
    if finding.hint:
        lines.append(Line().add(finding.hint, "info").spans)
    if finding.why:
        source = f" ({finding.sources[0]})" if finding.sources else ""
        lines.append(Line().add(f"why: {finding.why}{source}", "dim").spans)
    return lines
