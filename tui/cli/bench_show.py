"""`gpuroom bench show RUN`: what a run measured, and all that produced it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tui.cli.bench_history import NAMES, find_run, open_history
from tui.cli.bench_possible import possible_table
from tui.cli.fit import width_of, wrapped

if TYPE_CHECKING:
    from backends.bench.possible import Possible
    from backends.bench.results import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = NAMES
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help="default: last")
    parser.add_argument("--plan", action="store_true", help="the plan, as it was run")
    parser.add_argument("--json", action="store_true", help="the whole document")
    possible = parser.add_argument_group("what was possible")
    possible.add_argument(
        "--model", metavar="MODEL", help="as for `gpuroom roofline`: what each step could have been"
    )
    possible.add_argument("--gpus", metavar="NxCARD", help="where the run does not record them")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.bench.against import against_baseline
    from backends.bench.results import to_json
    from tui.cli import bench_table
    from tui.cli.bench_compare import step_lines

    with open_history() as history:
        result = find_run(history, arguments.name)
        notes = history.notes(result.run_id)
        samples = history.samples_of(result.run_id)
        compared = against_baseline(history, result)
    if arguments.json:
        sys.stdout.write(to_json(result).decode() + "\n")
        return 0
    if arguments.plan:
        print(result.plan.toml.rstrip())
        return 0
    width = width_of(sys.stdout)

    def say(text: str = "") -> None:
        for line in wrapped(text, width):
            print(line)

    say(f"run {result.run_id}, {result.started_utc:%Y-%m-%d %H:%M} UTC, {result.status.value}")
    if result.error:
        say(f"  {result.error}")
    for line in _produced_by(result):
        say(f"  {line}")
    steps = bench_table.StepTable(width)
    print()
    print("\n".join(steps.header()))
    for step in result.steps:
        print("\n".join(steps.lines(step)))
    print()
    for line in bench_table.footer(result):
        say(line)
    for step in result.steps:
        for line in bench_table.step_notes(step):
            say(line)
    labels = {place: step.label for place, step in enumerate(result.steps)}
    for finding in result.findings:
        say(bench_table.finding_line(finding, labels))
    possible = result.possible
    if arguments.model:
        possible = _possible(result, arguments.model, arguments.gpus)
    if possible is not None:
        print(f"\n{possible_table(possible, width)}")
    elif result.possible_absent:
        say(f"what was possible is not known: {result.possible_absent}")
    if compared is not None:
        print()
        say(f"against the baseline {compared.a.run_id}: {compared.word.value}")
        for line in step_lines(compared):
            say(line)
    for note in notes:
        say(f"note, {note.written_utc.astimezone():%Y-%m-%d %H:%M}: {note.text}")
    if samples.exists():
        say(f"samples: {samples}")
    if compared is not None:
        say(f"`gpuroom bench compare {result.run_id}` has every metric with its interval")
    return 0


def _possible(result: RunResult, model: str, gpus: str | None) -> Possible:
    """Each step beside its ceilings."""
    from backends.bench.cards import card_table, parse_gpus
    from backends.bench.efficiency import conditions_of, possible_of
    from backends.bench.models import load_model

    count, card = None, None
    if gpus:
        count, name = parse_gpus(gpus)
        card = card_table().find(name)
    conditions = conditions_of(result, card, count)
    name, weights = load_model(model)
    return possible_of(result, name, weights, conditions)


def _produced_by(result: RunResult) -> Iterator[str]:
    environment, target = result.environment, result.target
    for label, value in (
        ("host", environment.host),
        ("profile", target.profile),
        ("kernel", environment.kernel),
        ("driver", environment.driver),
        ("GPUs", ", ".join(str(gpu.get("name") or "?") for gpu in environment.gpus)),
        ("versions", ", ".join(f"{k} {v}" for k, v in environment.versions.items())),
        ("changed files", ", ".join(environment.changed_files)),
        ("tuning", ", ".join(f"{k} {v}" for k, v in environment.tuning.items())),
        ("configuration read from", environment.effective_source),
        ("command line", " ".join(environment.server_argv)),
        ("measured with", "" if result.harness == "gpuroom" else result.harness),
    ):
        if value:
            yield f"{label}: {value}"
    for key, asked in environment.asked_config.items():
        effective = environment.effective_config.get(key)
        if effective is not None and effective != asked:
            yield f"asked for {key} {asked}, runs with {effective}"
