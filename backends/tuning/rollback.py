"""Takes back what a snapshot holds, last first, each read again.

What was begun and never answered (a lost link, a room that ended) is looked at too: a value that
is as planned is put back, one that is as before is left. So it may be begun again at any time.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import groupby

from backends.errors import AgentGone, LinkError, RequestTimeout, RoomError
from backends.storage.failure import StorageError
from backends.tuning import changes
from backends.tuning.apply import nowhere
from backends.tuning.facts import Vantage
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.snapshot import (
    Outcome,
    Result,
    Saved,
    Snapshot,
    same_value,
    value_to_restore,
)
from backends.tuning.steps import MANY, Step


async def roll_back(
    machines: Machines,
    snapshot: Snapshot,
    results: Sequence[Result],
    *,
    force: bool = False,
    reading: Reading | None = None,
    told: Callable[[Result], None] = lambda result: None,
    keep: Callable[[Sequence[Result]], Awaitable[None]] = nowhere,
) -> list[Result]:
    """Put back what a snapshot holds, last first, each verified.

    A value that is neither the old nor the new one was changed by somebody else: it is refused,
    unless forced. Values of the kernel are not touched after a reboot, since the boot has reset
    them; files are put back all the same.

    Args:
        machines: Where.
        snapshot: What was there before.
        results: What came of the change.
        force: Also what others changed.
        reading: sudo; folders are those of the snapshot.
        told: Is called with each result as it comes.
        keep: Stores all results so far, before each step and after it; that it can't keeps
            nothing from being put back.
    """
    own = Vantage.HOST if machines.hypervisor is None else Vantage.GUEST
    reading = replace(
        reading or Reading(),
        root=snapshot.roots.get(own, "/"),
        below=snapshot.roots.get(Vantage.HOST, "/"),
    )
    back: list[Result] = []
    boots: dict[Vantage, str] = {}
    for saved, made in due(snapshot, results):
        begun = Result(saved.check, Outcome.BEGUN, saved.where, vantage=saved.vantage)
        await _kept(keep, [*back, begun])
        result = await _one(machines, snapshot, saved, made, boots, reading, force=force)
        back.append(result)
        told(result)
    await _kept(keep, back)
    return back


def due(
    snapshot: Snapshot, results: Sequence[Result]
) -> list[tuple[Saved, Sequence[bytes | None]]]:
    """What is put back, last first, each with the contents that were made of it."""
    # A file that several fixes edited may have stopped at any of them: each text is ours.
    after: dict[tuple[Vantage, str], list[bytes | None]] = {}
    for result in results:
        for path, data in result.after.items():
            after.setdefault((result.vantage, path), []).append(data)
    ran = {(r.check, command) for r in results for command in r.ran}
    return [
        (saved, after.get((saved.vantage, saved.path), []))
        for saved in reversed(snapshot.saved)
        if (
            (saved.check, saved.where) in ran
            if saved.kind == "command"
            else (saved.vantage, saved.path) in after
        )
    ]


def lines(snapshot: Snapshot, results: Sequence[Result]) -> list[str]:
    """Exactly what would be put back and run, on which host; one value into many files as one."""
    said: list[str] = []
    for (where, text), group in groupby(
        (saved for saved, _ in due(snapshot, results)),
        key=lambda saved: (snapshot.hosts[saved.vantage], _goal(saved)),
    ):
        many = list(group)
        if many[0].kind != "write" or len(many) < MANY:
            said += [text.format(saved.where, where) for saved in many]
        else:
            said.append(text.format(f"{len(many)} files", where) + ":")
            said.append(f"  {many[0].path} to")
            said.append(f"  {many[-1].path}")
    return said


def _goal(saved: Saved) -> str:
    """What is put back into the places of a kind."""
    if saved.kind == "command":
        words = shlex.join(saved.undo).replace("{", "{{").replace("}", "}}")
        return f"run {words} on {{1}}" if saved.undo else "nothing takes back {0} on {1}"
    if saved.old is None:
        return "remove {0} on {1}"
    if saved.kind == "file":
        return "put back {0} on {1}, as it was"
    words = _shown(value_to_restore(saved.old)).replace("{", "{{").replace("}", "}}")
    return f"put back {words} into {{0}} on {{1}}"


async def _kept(
    keep: Callable[[Sequence[Result]], Awaitable[None]], results: Sequence[Result]
) -> None:
    with contextlib.suppress(StorageError):
        await keep(results)


async def _one(
    machines: Machines,
    snapshot: Snapshot,
    saved: Saved,
    made: Sequence[bytes | None],
    boots: dict[Vantage, str],
    reading: Reading,
    *,
    force: bool,
) -> Result:
    """Put one thing back; whatever goes wrong is its result."""

    def told(outcome: Outcome, words: str, kernel: tuple[str, ...] = ()) -> Result:
        return Result(
            saved.check, outcome, f"{saved.where}: {words}", kernel, vantage=saved.vantage
        )

    if saved.kind == "command" and not saved.undo:
        return told(Outcome.FAILED, "nothing takes it back")
    try:
        if saved.vantage not in boots:
            boots[saved.vantage] = (
                await changes.read(machines, saved.vantage, [], reading)
            ).boot_id
        boot = boots[saved.vantage]
        if boot != snapshot.boot_ids.get(saved.vantage) and saved.kind == "write":
            return told(Outcome.ALREADY_SO, "the host was booted since, which has reset it")
        if saved.kind == "command":
            step = Step("command", argv=saved.undo)
        else:
            found = await changes.read(machines, saved.vantage, [saved.path], reading)
            live = found.files[saved.path]
            if live.error:
                return told(Outcome.FAILED, f"it cannot be read: {live.error}")
            if live.data == saved.old:
                return told(Outcome.ALREADY_SO, "as before")
            ours = live.data in made or (
                saved.kind == "write"
                and any(new is not None and same_value(new, live.data) for new in made)
            )
            if not ours and not force:
                now = "gone" if live.data is None else f"now {_shown(live.data)}"
                return told(Outcome.REFUSED, f"somebody else changed it ({now}); --force overrides")
            if saved.old is None:
                step = Step("remove", saved.path, live.data)
            else:
                wanted = value_to_restore(saved.old) if saved.kind == "write" else saved.old
                step = Step(saved.kind, saved.path, live.data, wanted, saved.mode)
        done = await changes.carry_out(machines, saved.vantage, [step], boot, reading)
    except (LinkError, AgentGone, RequestTimeout) as error:
        return told(Outcome.FAILED, f"{error}; roll back again when the host is there")
    except RoomError as error:
        return told(Outcome.FAILED, str(error))
    if done.refused:
        return told(Outcome.REFUSED, done.refused)
    first = done.steps[0]
    if not first.ok:
        return told(Outcome.FAILED, f"{first.error} {first.output}".strip(), done.kernel)
    if saved.kind == "command":
        return told(Outcome.APPLIED, "taken back" if saved.undo != saved.argv else "run again")
    if first.after != saved.old:
        return told(Outcome.FAILED, "written, but it does not read as before", done.kernel)
    return told(Outcome.APPLIED, "as before, read again")


def _shown(data: bytes) -> str:
    return repr(data.decode("utf-8", "replace").strip()[:80])
