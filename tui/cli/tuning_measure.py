"""`gpuroom tuning HOST measure|experiment`: measure a host, list and compare what was measured."""

from __future__ import annotations

import argparse
import json
import sys

from backends.config import Config
from backends.errors import UsageError
from backends.storage.measurement_tables import StoredMeasurement
from backends.tuning import report
from backends.tuning.desk import Desk
from backends.tuning.engine import Options
from backends.tuning.machines import Machines, needs_name
from backends.tuning.measurements import experiment as experiments
from backends.tuning.measurements import history, verdict
from backends.tuning.measurements.desk import Measurement, Wishes, measure_host
from backends.tuning.measurements.experiment import Tried
from backends.tuning.measurements.figures import Row, table
from backends.tuning.measurements.parts import PARTS, chosen, settling
from tui.cli.reading import reading_of
from tui.cli.tuning_change import EXIT_NOT_ALL, confirm
from tui.cli.tuning_live import opened

OPEN: str = "open"
"""In the place of a part: whatever settles what is INCONCLUSIVE now."""


def told(said: str) -> None:
    """What the host is at, beside the result."""
    print(said, file=sys.stderr, flush=True)


async def measure(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """Measure, and judge with what was measured; never beside a server, unless confirmed."""
    if arguments.history or arguments.compare:
        return await _history(arguments)
    named = [name for name in arguments.only or () if name != OPEN]
    parts = chosen(named) if named or not arguments.only else ()
    if not named and not arguments.path:
        parts = tuple(part for part in parts if part.name != "read")
    wishes = Wishes(arguments.path, arguments.python, arguments.yes, arguments.seconds)
    async with opened(config, arguments.host) as (session, below):
        desk = Desk(Machines(session, below), options, reading_of(arguments))
        judged = await desk.judge(arguments.timeout)
        if arguments.only and OPEN in arguments.only:
            more = settling(judged.findings)
            parts = tuple(part for part in PARTS if part in parts or part in more)
            if not parts:
                told("nothing is INCONCLUSIVE that a measurement could settle")
                return 0
        done = await measure_host(desk, judged, parts, wishes, told)
    for part, why in done.measured.failed.items():
        told(f"not measured: {part}: {why}")
    settled = done.settled(judged.findings)
    if arguments.json:
        print(json.dumps(_document(done), indent=2, ensure_ascii=False))
    else:
        print(table(done.rows))
        for finding in settled:
            if finding.group != "bench":
                print(f"{finding.verdict.value:<13} {finding.check}: {finding.evidence}")
        print(report.to_text([f for f in done.judged.findings if f.group == "bench"]), end="")
        told(f"kept as measurement {done.number}")
    shown = {f.check: f for f in settled}
    shown |= {f.check: f for f in done.judged.findings if f.group == "bench"}
    return report.exit_code(list(shown.values()))


def _document(done: Measurement) -> dict[str, object]:
    return {
        "measurement": done.number,
        "figures": [_figure(row) for row in done.rows],
        "failed": done.measured.failed,
    }


def _figure(row: Row) -> dict[str, object]:
    return {
        "key": row.key,
        "what": row.what,
        "value": row.value,
        "unit": row.unit,
        "due": row.due,
        "usual": row.usual,
        "source": row.source,
    }


async def _history(arguments: argparse.Namespace) -> int:
    """List the measurements of a host, or compare two."""
    host = arguments.host
    if arguments.compare:
        a, b = [await _one(number) for number in arguments.compare]
        found = history.compare(history.document_of(a), history.document_of(b))
        if arguments.json:
            rows = [
                {"what": c.what, "unit": c.unit, "a": c.a, "b": c.b, "change_pct": c.change_pct}
                for c in found
            ]
            print(json.dumps(rows, indent=2, ensure_ascii=False))
        else:
            for one in (a, b):
                print(f"{one.measurement_id}: {one.host} {one.at_utc} boot {one.boot_id[:8]}")
            print(history.compared_table(found), end="")
        return 0
    stored = await history.stored(lambda kept: kept.measurements(host))
    if arguments.json:
        listed = [
            {
                "measurement": one.measurement_id,
                "at": one.at_utc,
                "boot_id": one.boot_id,
                "parts": one.parts.split(),
                "figures": [_figure(row) for row in history.figures_of(history.document_of(one))],
            }
            for one in stored
        ]
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return 0
    for one in stored:
        count = len(history.figures_of(history.document_of(one)))
        boot = one.boot_id[:8]
        print(f"{one.measurement_id:>5}  {one.at_utc}  boot {boot}  {count} figures: {one.parts}")
    return 0


async def _one(number: int) -> StoredMeasurement:
    found = await history.stored(lambda kept: kept.measurement(number))
    if found is None:
        raise UsageError(f"no measurement {number}", hint="`measure --history` lists them")
    return found


async def experiment(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """Try a fix: without, with, without again; applied once more where it is to be kept."""
    if not arguments.what:
        raise UsageError("experiment needs a check", hint="`gpuroom tuning HOST` lists them")
    parts = chosen(arguments.only) if arguments.only else ()
    async with opened(config, arguments.host) as (session, below):
        desk = Desk(Machines(session, below), options, reading_of(arguments))
        judged = await desk.judge(arguments.timeout)
        trial = await experiments.prepare(desk, judged, arguments.what, parts)
        told("\n".join(trial.lines()))
        told("leave it in place" if arguments.keep else "take it back")
        if arguments.dry_run:
            return 0
        confirm(desk.machines, trial.planned, arguments)
        # Where the name had to be typed, it was; whoever else holds GPUs is still refused.
        beside = bool(needs_name(desk.machines))
        wishes = Wishes(arguments.path, arguments.python, beside, arguments.seconds)
        done = await experiments.carry_out(
            desk, trial, keep=arguments.keep, runs=arguments.runs, wishes=wishes, told=told
        )
    if arguments.json:
        print(json.dumps(experiment_row(done), indent=2, ensure_ascii=False))
    else:
        print(verdict.table(done.lines), end="")
        print(f"{done.check}: {done.summary}")
        place = "left in place" if done.kept else f"taken back: {', '.join(done.restored)}"
        print(f"{done.fix}: {place}" + (f"; {done.note}" if done.note else ""))
    return 0 if done.sound else EXIT_NOT_ALL


def experiment_row(done: Tried) -> dict[str, object]:
    """An experiment as JSON has it."""
    figures = []
    for line in done.lines:
        a, b = line.medians
        figures.append(
            {
                "key": line.key,
                "what": line.what,
                "unit": line.unit,
                "before": list(line.before),
                "after": list(line.after),
                "again": list(line.again),
                "median_before": a,
                "median_after": b,
                "spread_before_pct": verdict.spread_pct(line.before),
                "spread_after_pct": verdict.spread_pct(line.after),
                "change_pct": line.change_pct,
                "drift_pct": line.drift_pct,
                "p": line.p,
                "word": line.word.value,
            }
        )
    return {
        "check": done.check,
        "fix": done.fix,
        "at": done.at,
        "runs": done.runs,
        "summary": done.summary,
        "figures": figures,
        "applied": done.applied,
        "kept": done.kept,
        "restored": list(done.restored),
        "note": done.note,
        "snapshot": done.snapshot,
    }
