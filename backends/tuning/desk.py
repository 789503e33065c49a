"""The checklist of one host from end to end: judged, changed, taken back, and kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from backends.errors import RoomError
from backends.storage.failure import StorageError
from backends.storage.tuning_tables import StoredSnapshot, TuningHistory
from backends.tuning import apply as applying
from backends.tuning import prepare, rollback
from backends.tuning.custom import custom_probes
from backends.tuning.engine import Options, evaluate
from backends.tuning.findings import Finding
from backends.tuning.gather import Gathered, Reading, gather
from backends.tuning.machines import Machines
from backends.tuning.own_edits import Edit, edits
from backends.tuning.own_files import OwnFiles, look, removal
from backends.tuning.runs import FellBack, fell_back, keep
from backends.tuning.snapshot import (
    Outcome,
    Result,
    decode_results,
    decode_snapshot,
    encode,
    write_script,
)
from backends.tuning.steps import Form, Plan
from backends.tuning.unfinished import left_in_the_middle

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Judged:
    """One run of the checklist.

    Attributes:
        fell_back: What is worse than before the last boot; None where there was no boot since.
    """

    gathered: Gathered
    findings: list[Finding]
    fell_back: list[FellBack] | None = None


class Desk:
    """One host, and the hypervisor below it."""

    def __init__(
        self,
        machines: Machines,
        options: Options | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.machines = machines
        self.options = options or Options()
        self.reading = reading or Reading()

    async def judge(self, timeout_s: float = 30.0) -> Judged:
        """Read and judge; the run is kept, or a note says why not.

        Raises:
            LinkError: The host is out of reach.
            AgentError: It gave no facts.
        """
        gathered = await gather(
            self.machines.host,
            hypervisor=self.machines.hypervisor,
            reading=self.reading,
            timeout_s=timeout_s,
            also=custom_probes(self.options.checks),
        )
        findings = await asyncio.to_thread(evaluate, gathered.document, self.options)

        def kept(history: TuningHistory) -> list[FellBack] | None:
            worse = fell_back(history.runs(gathered.document.host), gathered, findings)
            keep(history, gathered, findings)
            return worse

        try:
            return Judged(gathered, findings, await _stored(kept))
        except StorageError as error:  # a history that can't be written hides no finding
            notes = (*gathered.notes, f"this run is not kept: {error}")
            return Judged(replace(gathered, notes=notes), findings, None)

    async def again(self, judged: Judged) -> Judged:
        """The same readings judged by other options; nothing is read, nothing kept."""
        document = judged.gathered.document
        return replace(judged, findings=await asyncio.to_thread(evaluate, document, self.options))

    async def plan(self, judged: Judged, ids: Sequence[str], *, form: Form = Form.RUNTIME) -> Plan:
        """What would be done for these findings; see `backends.tuning.prepare`."""
        chosen = prepare.choose(judged.findings, ids)
        return await prepare.prepare(
            self.machines, judged.gathered, chosen, form=form, reading=self.reading
        )

    async def own_files(self) -> OwnFiles:
        """What gpuroom made lasting on the host; see `backends.tuning.own_files`."""
        names = dict.fromkeys(session.name for session in self.machines.sessions)

        def made(history: TuningHistory) -> list[Edit]:
            stored = [one for name in names for one in history.snapshots(name)]
            return edits(sorted(stored, key=lambda one: one.at_utc, reverse=True))

        return await look(self.machines, self.reading, await _stored(made))

    async def plan_removal(self, found: OwnFiles, ids: Sequence[str]) -> Plan:
        """What removing some of that would be."""
        tasks = removal(found, ids)
        return await prepare.prepare_tasks(
            self.machines, found.boot_ids, tasks, form=Form.PERSISTENT, reading=self.reading
        )

    async def keep_snapshot(self, planned: Plan) -> Path:
        """Keep what is there now, before anything is changed; gives the path of its script.

        Raises:
            StorageError: It could not be kept: then nothing may be changed.
        """
        snapshot = planned.snapshot
        boots = " ".join(snapshot.boot_ids.values())
        body = encode(snapshot)
        await _stored(
            lambda history: history.add_snapshot(
                snapshot.snapshot_id, snapshot.host, boots, snapshot.operator, body
            )
        )
        return await asyncio.to_thread(write_script, snapshot)

    async def apply(
        self, planned: Plan, told: Callable[[Result], None] = lambda result: None
    ) -> tuple[list[Result], Judged | None]:
        """Carry out a plan whose snapshot is kept, then judge again.

        Args:
            planned: As it was shown.
            told: Is called with each fix as it begins and ends, before the checks are judged again.

        Returns:
            What came of each fix, and the run that verified it: None where the host could not be
            judged any more, so that nothing but the writes is verified.
        """
        identity = planned.snapshot.snapshot_id

        async def keep_results(results: Sequence[Result]) -> None:
            written = encode(tuple(results))
            await _stored(lambda history: history.set_results(identity, written))

        results = await applying.apply(
            self.machines, planned, reading=self.reading, told=told, keep=keep_results
        )
        try:
            judged = await self.judge()
        except RoomError:
            return results, None
        facts = judged.gathered.document.facts
        results = applying.verify(results, planned, judged.findings, facts)
        with contextlib.suppress(StorageError):  # what was done is kept; its verification is not
            await keep_results(results)
        return results, judged

    async def snapshots(self) -> list[StoredSnapshot]:
        """Of this host, newest first."""
        name = self.machines.host.name
        return await _stored(lambda history: history.snapshots(name))

    async def cut(self) -> StoredSnapshot | None:
        """The newest change, where it or its way back was cut; see `backends.tuning.unfinished`.

        None, too, where there is no history to tell.
        """
        try:
            return left_in_the_middle(await self.snapshots())
        except RoomError:
            return None

    async def roll_back(
        self,
        stored: StoredSnapshot,
        *,
        force: bool = False,
        told: Callable[[Result], None] = lambda result: None,
    ) -> list[Result]:
        """Take a snapshot back; see `backends.tuning.rollback`."""
        snapshot = decode_snapshot(stored.body)

        async def keep_back(results: Sequence[Result]) -> None:
            written = encode(tuple(results))
            await _stored(lambda history: history.set_back(snapshot.snapshot_id, written))

        results = await rollback.roll_back(
            self.machines,
            snapshot,
            decode_results(stored.results),
            force=force,
            reading=self.reading,
            told=told,
            keep=keep_back,
        )
        if all(result.outcome in (Outcome.APPLIED, Outcome.ALREADY_SO) for result in results):
            await _stored(lambda history: history.set_rolled_back(snapshot.snapshot_id))
        return results


def newest(snapshots: Sequence[StoredSnapshot]) -> StoredSnapshot | None:
    """The one to go back to: the newest that was carried out and not taken back."""
    return next((one for one in snapshots if one.rolled_back_utc is None and one.results), None)


async def _stored(work: Callable[[TuningHistory], T]) -> T:
    """Do something with the history, off the event loop."""

    def do() -> T:
        with contextlib.closing(TuningHistory.at_home()) as history:
            return work(history)

    return await asyncio.to_thread(do)
