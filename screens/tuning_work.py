"""What the checklist does with a host: plan, ask, change, verify, take back, remove, measure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from backends.errors import ReadOnlyError, UsageError
from backends.link.base import SecretKind, SecretQuestion
from backends.tuning import rollback, waivers
from backends.tuning.changed import RootNeeded
from backends.tuning.desk import Desk, newest
from backends.tuning.facts import Vantage
from backends.tuning.findings import Finding
from backends.tuning.machines import holders, needs_name
from backends.tuning.measurements import experiment, verdict
from backends.tuning.measurements.desk import Wishes, measure_host
from backends.tuning.measurements.parts import PARTS, settling
from backends.tuning.reboot import preview
from backends.tuning.report import WRONG
from backends.tuning.snapshot import decode_results, decode_snapshot
from backends.tuning.steps import Plan
from screens.auth import AuthScreen
from screens.confirm import ConfirmScreen
from screens.own_files import OwnFilesScreen
from screens.waiver import WaiverScreen

if TYPE_CHECKING:
    from screens.tuning import TuningScreen

T = TypeVar("T")
TRIES = 3
"""How often a password is asked for."""


class TuningWork:
    """The work of one checklist; each piece of it runs in the screen's only worker."""

    def __init__(self, screen: TuningScreen) -> None:
        self._screen = screen

    async def judge_as_root(self, desk: Desk) -> None:
        """Judge with what only root may read; the password is asked for where sudo wants one."""
        judged = await desk.judge()
        for attempt in range(1, TRIES + 1):
            if not any("password" in note for note in judged.gathered.notes):
                break
            if not await self._ask_password(desk, attempt):
                break
            judged = await desk.judge()
        self._screen.take(desk, judged)

    async def judge_again(self, desk: Desk) -> None:
        """Judge the same readings by what holds now: another profile, another waiver."""
        judged = self._screen.judged
        if judged is not None:
            self._screen.take(desk, await desk.again(judged))

    async def waive(self, desk: Desk, finding: Finding) -> None:
        """Accept a finding till a day, or change or take away what was accepted."""
        screen, name = self._screen, desk.machines.host.name
        kept = await asyncio.to_thread(waivers.of, name, finding.check, finding.rule)
        if kept is None and finding.waived:
            where = "it is waived in a file of your checks, and changed there"
            screen.notify(f"{finding.check}: {where}", markup=False)
            return
        if kept is None and finding.verdict not in WRONG:
            screen.notify(f"{finding.check} is {finding.verdict.value}: nothing to accept")
            return
        answer = await screen.app.push_screen_wait(WaiverScreen(name, finding, kept))
        if answer is None:
            return
        if kept is not None:
            await asyncio.to_thread(waivers.drop, kept.host, kept.check)
        if answer.reason:
            made = await asyncio.to_thread(
                waivers.accept, name, finding.check, answer.reason, answer.until
            )
            said = f"accepted until {made.until}; the key o shows what is waived"
        else:
            said = "the waiver is taken away"
        screen.notify(f"{finding.check}: {said}", timeout=5, markup=False)
        desk.options = await asyncio.to_thread(screen.options, desk)
        await self.judge_again(desk)

    async def preview_reboot(self, desk: Desk) -> None:
        """Show what a reboot of the host, or of the hypervisor below it, will change."""
        screen, judged = self._screen, self._screen.judged
        assert judged is not None
        changes = await asyncio.to_thread(preview, judged.gathered.document)
        below = desk.machines.vantages[Vantage.HOST]
        await screen.app.push_screen_wait(
            ConfirmScreen(
                screen.shell.look,
                title=f"What a reboot of {below} will change",
                text="Made of what was read last; (may) is what nobody can know before.",
                runs=[change.line for change in changes] or ["nothing that these facts know of"],
                locked="Nothing is rebooted here.",
            )
        )

    async def fix(self, desk: Desk, ids: Sequence[str]) -> None:
        """Plan, show, and carry out after a yes."""
        judged, form = self._screen.judged, self._screen.form
        assert judged is not None
        planned = await self._as_root(desk, lambda: desk.plan(judged, ids, form=form))
        where = " and ".join(planned.hosts) or desk.machines.host.name
        if await self._change(desk, planned, f"Change settings on {where} ({form.value})"):
            self._screen.list.marked.clear()

    async def own_files(self, desk: Desk) -> None:
        """List what is ours, and remove what is chosen after a yes."""
        screen = self._screen
        found = await self._as_root(desk, desk.own_files)
        chosen = await screen.app.push_screen_wait(
            OwnFilesScreen(screen.shell.look, found, self._locked())
        )
        if chosen:
            screen.say("planning")
            planned = await desk.plan_removal(found, chosen)
            where = " and ".join(planned.hosts) or desk.machines.host.name
            await self._change(desk, planned, f"Remove settings of gpuroom's on {where}")

    async def undo(self, desk: Desk) -> None:
        """Take the newest change back after a yes."""
        screen = self._screen
        stored = newest(await desk.snapshots())
        if stored is None:
            screen.notify("there is no change to take back", markup=False)
            return
        snapshot = decode_snapshot(stored.body)
        runs = rollback.lines(snapshot, decode_results(stored.results))
        made = datetime.fromisoformat(stored.at_utc).astimezone()
        careful = needs_name(desk.machines)
        name = desk.machines.host.name
        yes = await screen.app.push_screen_wait(
            ConfirmScreen(
                screen.shell.look,
                title=f"Take back the change of {made:%Y-%m-%d %H:%M} on {name}",
                text=careful or "Everything goes back to what it was, and is read again.",
                runs=runs or ["nothing: no fix of it was carried out"],
                type_this=name if careful else "",
                locked=self._locked(desk.machines.vantages.values()),
            )
        )
        if not yes:
            return
        screen.say("taking back")
        screen.results.begin(f"taken back on {name}", back=True)
        screen.show_results(True)
        results = await self._as_root(desk, lambda: desk.roll_back(stored, told=screen.results.put))
        screen.results.finish(results)
        screen.take(desk, await desk.judge())

    async def measure(self, desk: Desk, check: str) -> None:
        """Measure what settles the inconclusive, else the finding under the cursor.

        Beside processes that hold the GPUs only after the host's name was typed.
        """
        screen, judged = self._screen, self._screen.judged
        assert judged is not None
        parts = settling(judged.findings) or tuple(p for p in PARTS if check in p.answers)
        if not parts:
            screen.notify("nothing is inconclusive that a measurement settles", markup=False)
            return
        host = desk.machines.host
        holding = holders(host) if any(part.gpu for part in parts) else []
        runs = [f"{part.name}: {part.what}" for part in parts]
        runs += [f"holds a GPU: {one.pid} {one.command[:80]}" for one in holding[:8]]
        careful = f"{host.name} is marked production. " if host.config.production else ""
        if holding:
            careful += f"{len(holding)} processes hold its GPUs: they get slower, "
            careful += "and the figures are of a busy host."

        async def agreed(careful: str) -> bool:
            yes = await screen.app.push_screen_wait(
                ConfirmScreen(
                    screen.shell.look,
                    title=f"Measure on {host.name}; nothing is changed",
                    text=careful,
                    runs=runs,
                    type_this=host.name if careful else "",
                )
            )
            return bool(yes)

        if not await agreed(careful):
            return
        screen.say("measuring")
        try:
            wishes = Wishes(beside=bool(careful))
            done = await measure_host(desk, judged, parts, wishes, screen.say)
        except ReadOnlyError as refused:
            # The agent looks itself: at memory, too, whose process is not visible from there.
            if careful or not await agreed(refused.detail):
                raise
            done = await measure_host(desk, judged, parts, Wishes(beside=True), screen.say)
        screen.take(desk, done.judged)
        settled = [f"{f.check}: {f.verdict.value}" for f in done.settled(judged.findings)]
        failed = [f"{part}: {why}" for part, why in done.measured.failed.items()]
        words = "\n".join([*settled, *failed]) or "no finding has another verdict"
        screen.notify(words, title="measured", timeout=15, markup=False)

    async def try_out(self, desk: Desk, check: str) -> None:
        """An experiment with one fix: shown, confirmed, measured on both sides, taken back."""
        screen, judged = self._screen, self._screen.judged
        assert judged is not None
        trial = await self._as_root(desk, lambda: experiment.prepare(desk, judged, check))
        name = desk.machines.host.name
        careful = needs_name(desk.machines)
        yes = await screen.app.push_screen_wait(
            ConfirmScreen(
                screen.shell.look,
                title=f"Try {check} on {name}: {experiment.RUNS} runs before, as many after",
                text=careful or "It is taken back afterwards, whatever it shows.",
                runs=trial.lines(),
                type_this=name if careful else "",
                locked="" if trial.planned.changes else "It is so already.",
            )
        )
        if not yes:
            return
        tried = await experiment.carry_out(desk, trial, told=screen.say)
        said = [f"{tried.fix}: {tried.summary}", "", *verdict.table(tried.lines).splitlines()]
        back = ", ".join(dict.fromkeys(tried.restored)) or "nothing was applied"
        await screen.app.push_screen_wait(
            ConfirmScreen(
                screen.shell.look,
                title=f"What {check} did on {name}",
                text=tried.note,
                runs=said,
                locked=f"Taken back: {back}.",
            )
        )
        await screen.judge(desk)

    # -- the steps they share

    async def _change(self, desk: Desk, planned: Plan, title: str) -> bool:
        """Ask, keep the snapshot, carry out, verify; gives whether it was confirmed."""
        screen = self._screen
        name = planned.hosts[0] if planned.hosts else desk.machines.host.name
        careful = needs_name(desk.machines)
        locked = self._locked(planned.hosts)
        if not planned.changes:
            locked = locked or "Nothing would change."
        yes = await screen.app.push_screen_wait(
            ConfirmScreen(
                screen.shell.look,
                title=title,
                text=careful,
                runs=planned.lines(),
                type_this=name if careful else "",
                locked=locked,
            )
        )
        if not yes:
            return False
        screen.say("changing")
        await desk.keep_snapshot(planned)
        screen.results.begin(f"{planned.snapshot.snapshot_id} on {' and '.join(planned.hosts)}")
        screen.show_results(True)
        results, judged = await desk.apply(planned, screen.results.put)
        screen.results.finish(results)
        if judged is None:
            screen.notify(
                "the host could not be judged again: nothing is verified",
                severity="warning",
                markup=False,
            )
        else:
            screen.take(desk, judged)
        return True

    def _locked(self, hosts: Iterable[str] = ()) -> str:
        """Why nothing may be changed on these hosts, or on the one that is looked at."""
        shell = self._screen.shell
        for host in (shell.current, *hosts):
            if shell.host_read_only(host):
                way = "" if host == shell.current else " once it is looked at ([ and ])"
                return f"{host} is read-only: U unlocks it{way}."
        return ""

    async def _as_root(self, desk: Desk, work: Callable[[], Awaitable[T]]) -> T:
        """Do it; where sudo wants a password, ask for it and do it again.

        Raises:
            RootNeeded: It was not given, or not accepted.
        """
        for attempt in range(1, TRIES + 1):
            try:
                return await work()
            except RootNeeded as error:
                if not error.wants_password or not await self._ask_password(desk, attempt):
                    raise
        raise UsageError("the password was not accepted")

    async def _ask_password(self, desk: Desk, attempt: int) -> bool:
        """Ask once, and hold it in memory till the room ends; gives whether there is one now."""
        screen = self._screen
        host = desk.machines.host.name
        prompt = f"sudo on {host} wants your password. It is held in memory till the room ends."
        question = SecretQuestion(host, SecretKind.PASSWORD, prompt, attempt=attempt)
        given = await screen.app.push_screen_wait(AuthScreen(question))
        screen.shell.secrets.forget_sudo(host)
        if given is None:
            return False
        screen.shell.secrets.keep_sudo(host, given)
        desk.reading = replace(desk.reading, password=given)
        return True
