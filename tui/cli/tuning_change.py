"""`gpuroom tuning HOST apply|rollback|files`: change a host, take changes back, list what lasts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from backends.config import Config
from backends.errors import ReadOnlyError, UsageError
from backends.storage.tuning_tables import StoredSnapshot
from backends.tuning import rollback
from backends.tuning.desk import Desk, newest
from backends.tuning.engine import Options
from backends.tuning.gather import reached
from backends.tuning.machines import Machines, needs_name
from backends.tuning.own_files import OwnFiles
from backends.tuning.snapshot import (
    GOOD,
    WORDS_BACK,
    Outcome,
    Result,
    decode_results,
    decode_snapshot,
)
from backends.tuning.steps import Form, Plan
from tui.cli.reading import reading_of
from tui.cli.tuning_live import opened

EXIT_NOT_ALL: int = 1
"""Some of what was asked for was not done."""


async def apply(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """Put findings right, after showing exactly what would be done."""
    if not arguments.only:
        raise UsageError("apply needs --only ID...", hint="ids are in the checklist")
    form = Form.BOTH if arguments.persistent else Form(arguments.form)
    reading = reading_of(arguments)
    async with opened(config, arguments.host) as (session, below):
        desk = Desk(Machines(session, below), options, reading)
        judged = await desk.judge(arguments.timeout)
        planned = await desk.plan(judged, arguments.only, form=form)
        return await _carry_out(desk, planned, arguments)


async def files(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """List what gpuroom made lasting on the host; remove some of it."""
    reading = reading_of(arguments)
    async with opened(config, arguments.host) as (session, below):
        desk = Desk(Machines(session, below), options, reading)
        for one in desk.machines.sessions:
            await reached(one, arguments.timeout)
        found = await desk.own_files()
        if not arguments.remove:
            _print_files(found, as_json=arguments.json)
            return 0
        planned = await desk.plan_removal(found, arguments.remove)
        return await _carry_out(desk, planned, arguments)


async def _carry_out(desk: Desk, planned: Plan, arguments: argparse.Namespace) -> int:
    """Show, confirm, keep the snapshot, do, verify, print."""
    print("\n".join(planned.lines()), file=sys.stderr)
    if arguments.dry_run:
        return 0
    if planned.changes:
        confirm(desk.machines, planned, arguments)
        script = await desk.keep_snapshot(planned)
        print(f"snapshot {planned.snapshot.snapshot_id}, also as {script}", file=sys.stderr)
    results, judged = await desk.apply(planned)
    print_results(results, as_json=arguments.json)
    if judged is None:
        print("note: the host could not be judged again: nothing is verified", file=sys.stderr)
        return EXIT_NOT_ALL
    return 0 if all(result.outcome in GOOD for result in results) else EXIT_NOT_ALL


async def roll_back(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """Take a snapshot back."""
    reading = reading_of(arguments)
    async with opened(config, arguments.host) as (session, below):
        both = Machines(session, below)
        desk = Desk(both, options, reading)
        stored = _snapshot(await desk.snapshots(), arguments.what, arguments.host)
        for one in both.sessions:
            await reached(one, arguments.timeout)
        back = rollback.lines(decode_snapshot(stored.body), decode_results(stored.results))
        print("\n".join(back or ["nothing: no fix was carried out"]), file=sys.stderr)
        careful = needs_name(both)
        if careful and arguments.host_name not in both.vantages.values():
            hint = f"add --yes --host-name {arguments.host}"
            raise ReadOnlyError("the host's name must be given", careful, hint)
        if not arguments.yes:
            raise ReadOnlyError("nothing was done", "not confirmed", "add --yes")
        _unlock(both)
        results = await desk.roll_back(stored, force=arguments.force)
    print_results(results, as_json=arguments.json, back=True)
    good = all(r.outcome in (Outcome.APPLIED, Outcome.ALREADY_SO) for r in results)
    return 0 if good else EXIT_NOT_ALL


def confirm(both: Machines, planned: Plan, arguments: argparse.Namespace) -> None:
    """Nothing without a yes; where it may hurt, nothing without the host's name.

    Raises:
        ReadOnlyError: It was not confirmed.
    """
    names = planned.hosts
    careful = needs_name(both)
    if careful and arguments.host_name not in names:
        raise ReadOnlyError(
            "the host's name must be given",
            careful,
            f"add --yes --host-name {names[0] if names else both.host.name}",
        )
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise ReadOnlyError("nothing was done", "not confirmed", "add --yes")
        print("Do this? (yes/no) ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() != "yes":
            raise ReadOnlyError("nothing was done", "not confirmed")
    _unlock(both)


def _unlock(both: Machines) -> None:
    for session in both.sessions:
        session.unlock(asked_by="tuning")


def _snapshot(stored: Sequence[StoredSnapshot], wanted: str | None, host: str) -> StoredSnapshot:
    if wanted is None:
        found = newest(stored)
    else:
        found = next((one for one in stored if one.snapshot_id == wanted), None)
    if found is None:
        named = f"no snapshot {wanted!r}" if wanted else "no snapshot to go back to"
        raise UsageError(f"{named} of {host}", hint=f"`gpuroom tuning {host} history` lists them")
    return found


def _print_files(found: OwnFiles, *, as_json: bool) -> None:
    for note in found.unreadable:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        rows = [
            {
                "host": file.host,
                "path": file.path,
                "settings": [{"id": s.setting_id, "line": s.line} for s in file.settings],
            }
            for file in found.files
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if not found.files:
        print("nothing of gpuroom's lies on the host")
    for file in found.files:
        print(f"{file.host}: {file.path}")
        for setting in file.settings:
            print(f"  {setting.setting_id:<44}  {setting.line}")


def print_results(results: Sequence[Result], *, as_json: bool, back: bool = False) -> None:
    """What came of each fix, or of taking each back."""
    if as_json:
        rows = [
            {
                "check": r.check,
                "outcome": r.outcome.value,
                "detail": r.detail,
                "kernel": list(r.kernel),
                "where": r.vantage.value,
            }
            for r in results
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max((len(r.check) for r in results), default=0)
    for result in results:
        word = (
            WORDS_BACK.get(result.outcome, result.outcome.value) if back else result.outcome.value
        )
        print(f"{result.check:<{width}}  {word:<14}  {result.detail}".rstrip())
        for line in result.kernel:
            print(f"{'':<{width}}  kernel: {line}")
