"""`gpuroom tuning HOST`: judge a host as it is now, change it, take changes back."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from backends import config as configuration
from backends.config import Config, HostConfig
from backends.errors import ConfigError, RoomError
from backends.hub import RoomHub
from backends.session import HostSession
from backends.storage.measurement_tables import MeasurementHistory
from backends.storage.tuning_tables import StoredSnapshot, TuningHistory
from backends.tuning import report
from backends.tuning.custom import custom_probes
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.findings import WORST_FIRST, Finding
from backends.tuning.gather import Gathered, gather
from backends.tuning.measurements.experiment import decode as decode_experiment
from backends.tuning.reboot import preview
from backends.tuning.report_document import About, Made, document
from backends.tuning.runs import fell_back, keep
from backends.tuning.snapshot import decode_results, decode_snapshot
from backends.tuning.unfinished import how_left, left_in_the_middle, say
from tui.cli.prompts import terminal_prompter
from tui.cli.reading import reading_of


def machines(config: Config, name: str) -> tuple[HostConfig, HostConfig | None]:
    """A host, and the hypervisor below it where the configuration names one."""
    (host,) = configuration.resolve_hosts(config, [name])
    if host.hypervisor is None:
        return host, None
    below = next((h for h in config.hosts if h.name == host.hypervisor), None)
    if below is None:
        raise ConfigError(f"there is no host {host.hypervisor!r}", hint="see hosts.hypervisor")
    return host, below


@contextlib.asynccontextmanager
async def opened(
    config: Config, name: str
) -> AsyncIterator[tuple[HostSession, HostSession | None]]:
    """Sessions of a host and of the hypervisor below it, while the block runs."""
    host, below = machines(config, name)
    hosts = [host] if below is None else [host, below]
    async with RoomHub(hosts, config, terminal_prompter()) as hub:
        yield hub.sessions[0], hub.sessions[1] if below is not None else None


async def gather_host(
    config: Config, arguments: argparse.Namespace, options: Options | None = None
) -> Gathered:
    """The facts of the host that the command names, with what the operator's checks read."""
    reading = reading_of(arguments)
    async with opened(config, arguments.host) as (session, below):
        return await gather(
            session,
            hypervisor=below,
            reading=reading,
            timeout_s=arguments.timeout,
            also=custom_probes(options.checks if options else ()),
        )


def gather_hosts(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, FactsDocument]:
    """The facts of several hosts as they are now, read at the same time."""
    config, reading = configuration.load(arguments.config), reading_of(arguments)

    async def one(name: str) -> FactsDocument:
        async with opened(config, name) as (session, below):
            found = await gather(
                session, hypervisor=below, reading=reading, timeout_s=arguments.timeout
            )
        return found.document

    async def every() -> list[FactsDocument]:
        return await asyncio.gather(*(one(name) for name in names))

    return dict(zip(names, asyncio.run(every()), strict=True))


def run(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """`gpuroom tuning HOST [ACTION]`."""
    from tui.cli import tuning_change as change
    from tui.cli import tuning_measure as measure

    actions = {
        "judge": _judge,
        "reboot-preview": _reboot,
        "apply": change.apply,
        "rollback": change.roll_back,
        "files": change.files,
        "measure": measure.measure,
        "experiment": measure.experiment,
    }
    if arguments.then == "history":
        return _history(arguments)
    if arguments.then == "report":
        return _report(config, arguments, options)
    return asyncio.run(actions[arguments.then](config, arguments, options))


async def _judge(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    from tui.cli.tuning import show

    gathered = await gather_host(config, arguments, options)
    findings = evaluate(gathered.document, options)
    _remember(gathered, findings)
    return show(arguments, findings, gathered.document)


async def _reboot(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """What a reboot of the host, or of the hypervisor below it, will change."""
    from tui.cli.tuning import show_reboot

    gathered = await gather_host(config, arguments, options)
    for note in gathered.notes:
        print(f"note: {note}", file=sys.stderr)
    return show_reboot(preview(gathered.document), as_json=arguments.json)


def _remember(gathered: Gathered, findings: Sequence[Finding]) -> None:
    """Say what could not be read, what was cut, what a boot took back; and keep the run."""
    for note in gathered.notes:
        print(f"note: {note}", file=sys.stderr)
    worse = None
    try:
        with contextlib.closing(TuningHistory.at_home()) as history:
            worse = fell_back(history.runs(gathered.document.host), gathered, findings)
            keep(history, gathered, findings)
            cut = left_in_the_middle(history.snapshots(gathered.document.host))
        if cut is not None:
            way = f"`gpuroom tuning {gathered.document.host} rollback` takes it back"
            print(f"note: {say(cut, way)}", file=sys.stderr)
    except RoomError as error:  # the host is judged all the same
        print(f"note: this run is not kept: {error}", file=sys.stderr)
    if worse is not None:
        count = len(worse)
        said = f"{count} checks fell back" if count else "nothing fell back"
        print(f"note: booted since the last run; {said}", file=sys.stderr)
        for one in worse:
            was = f"{one.before.value} -> {one.now.value}"
            print(f"  {one.check}: {was}: {one.evidence}", file=sys.stderr)


def _history(arguments: argparse.Namespace) -> int:
    from tui.cli.tuning_measure import experiment_row

    with contextlib.closing(TuningHistory.at_home()) as history:
        runs = history.runs(arguments.host)
        snapshots = history.snapshots(arguments.host)
    with contextlib.closing(MeasurementHistory.at_home()) as measured:
        measurements = measured.measurements(arguments.host)
        experiments = measured.experiments(arguments.host)
    if arguments.json:
        rows = {
            "runs": [
                {"run": r.run_id, "at": r.at_utc, "boot_id": r.boot_id, **_counts(r.verdicts)}
                for r in runs
            ],
            "snapshots": [_snapshot_row(one) for one in snapshots],
            "measurements": [
                {"measurement": m.measurement_id, "at": m.at_utc, "parts": m.parts.split()}
                for m in measurements
            ],
            "experiments": [
                {"experiment": e.experiment_id, **experiment_row(decode_experiment(e.body))}
                for e in experiments
            ],
        }
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    for run_ in runs:
        counts = ", ".join(f"{n} {word}" for word, n in _counts(run_.verdicts).items())
        print(f"run {run_.run_id}  {run_.at_utc}  boot {run_.boot_id[:8]}  {counts}")
    for one in snapshots:
        row = _snapshot_row(one)
        back = f", taken back {one.rolled_back_utc}" if one.rolled_back_utc else ""
        print(f"snapshot {one.snapshot_id}  {one.at_utc}  by {one.operator}{back}")
        if row["left"]:
            print(f"  {row['left']}")
        for check, outcome in dict(row["results"]).items():  # type: ignore[call-overload]
            print(f"  {check}: {outcome}")
    for measurement in measurements:
        number = f"{measurement.measurement_id}  {measurement.at_utc}"
        print(f"measurement {number}  {measurement.parts}")
    for one_experiment in experiments:
        tried = decode_experiment(one_experiment.body)
        kept = "kept" if tried.kept else "taken back"
        number = f"{one_experiment.experiment_id}  {one_experiment.at_utc}"
        print(f"experiment {number}  {tried.check}: {tried.note or tried.summary} ({kept})")
    return 0


def _counts(verdicts: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for check, word in json.loads(verdicts).items():
        if "[" not in check:
            counts[word] = counts.get(word, 0) + 1
    return {v.value: counts[v.value] for v in WORST_FIRST if v.value in counts}


def _snapshot_row(one: StoredSnapshot) -> dict[str, object]:
    return {
        "snapshot": one.snapshot_id,
        "at": one.at_utc,
        "boot_id": one.boot_id,
        "operator": one.operator,
        "rolled_back": one.rolled_back_utc,
        "left": how_left(one),
        "results": {r.check: r.outcome.value for r in decode_results(one.results)},
    }


def _report(config: Config, arguments: argparse.Namespace, options: Options) -> int:
    """The document for colleagues: what remains, what was changed, what was seen."""
    gathered = asyncio.run(gather_host(config, arguments))
    findings = evaluate(gathered.document, options)
    _remember(gathered, findings)
    with contextlib.closing(TuningHistory.at_home()) as history:
        snapshots = history.snapshots(arguments.host)
    changes = [
        Made(
            one.at_utc, decode_snapshot(one.body), decode_results(one.results), one.rolled_back_utc
        )
        for one in snapshots
        if one.results
    ]
    facts = gathered.document.facts
    have = sum(fact.value is not None for fact in facts)
    host, below = machines(config, arguments.host)
    names = {Vantage.HOST: host.name}
    if below is not None:
        names = {Vantage.GUEST: host.name, Vantage.HOST: below.name}
    about = About(
        arguments.host,
        datetime.now(UTC).isoformat(timespec="seconds"),
        gathered.boot_ids,
        names,
        (have, len(facts) - have),
    )
    if arguments.json:
        rows = {
            "host": about.host,
            "at": about.at_utc,
            "findings": [report.as_dict(finding) for finding in findings],
            "changes": [_snapshot_row(one) for one in snapshots],
        }
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print(document(about, findings, changes), end="")
    return report.exit_code(findings)
