"""`gpuroom bench compare A B`: faster, slower, no difference shown, or not comparable."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from tui.cli.bench_history import NAMES, find_run, open_history, share
from tui.cli.fit import table, width_of, wrapped

if TYPE_CHECKING:
    from backends.bench.compare import Comparison
    from backends.bench.results import RunResult

EXIT_SLOWER = 10
EXIT_UNDECIDED = 11
EXIT_NOT_COMPARABLE = 12
METRICS = ("output", "ttft", "ttft_p99", "tpot", "e2e")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"{NAMES}.\nWith one RUN it is compared with the baseline of its profile and plan.\n"
        "exit status: 0 compared; with --fail-if-slower also 10 slower by that much, 11 undecided\n"
        "(--strict), 12 not comparable; 1 and 2 as everywhere. docs/results.md has the method."
    )
    parser.add_argument("names", nargs="+", metavar="RUN", help="A, then what is compared with it")
    parser.add_argument(
        "--fail-if-slower", type=share, metavar="SHARE", help="such as 3%%: for automation"
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail too if that much cannot be ruled out"
    )
    parser.add_argument("--metric", choices=METRICS, help="that decides over the whole")
    parser.add_argument(
        "--change", type=share, default=0.02, metavar="SHARE", help="that should be found (2%%)"
    )
    parser.add_argument(
        "--across-tools", action="store_true", help="compare different tools' output tok/s"
    )
    out = parser.add_mutually_exclusive_group()
    out.add_argument("--json", action="store_true", help="print an array of comparisons")
    out.add_argument("--markdown", action="store_true", help="print Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.bench.compare import compare
    from backends.bench.compare_blocks import Metric
    from backends.bench.compare_report import document
    from backends.bench.export import comparison_to_markdown

    runs, equals = _runs(arguments.names)
    metric = Metric[arguments.metric.upper()] if arguments.metric else None
    # A limit below the change to be found asks for that finer one.
    change = min(arguments.change, arguments.fail_if_slower or arguments.change)
    comparisons = [
        compare(
            runs[0],
            other,
            metric=metric,
            smallest_change=change,
            across_tools=arguments.across_tools,
            equals=equals,
        )
        for other in runs[1:]
    ]
    if arguments.json:
        print(json.dumps([document(one) for one in comparisons], indent=2))
    else:
        width = width_of(sys.stdout)
        for place, one in enumerate(comparisons):
            if place:
                print()
            print(comparison_to_markdown(one) if arguments.markdown else text(one, width))
    if arguments.fail_if_slower is None:
        return 0
    statuses = [_status(one, arguments.fail_if_slower, arguments.strict) for one in comparisons]
    # The first that went wrong, in order of how sure it is.
    return next((s for s in (EXIT_SLOWER, EXIT_NOT_COMPARABLE, EXIT_UNDECIDED) if s in statuses), 0)


def _runs(names: list[str]) -> tuple[list[RunResult], list[RunResult]]:
    """The runs that are meant, and others of the history that equal the first."""
    from backends.bench.against import equal_runs
    from backends.errors import UsageError

    with open_history() as history:
        runs = [find_run(history, name) for name in names]
        if len(runs) == 1:
            baseline = history.baseline_of(runs[0])
            if baseline is None:
                raise UsageError(
                    "There is nothing to compare with",
                    f"no baseline is pinned for profile {runs[0].target.profile or '(none)'} "
                    f"and plan {runs[0].plan.name}",
                    "Name two runs, or pin one: gpuroom bench baseline RUN",
                )
            if baseline == runs[0].run_id:
                raise UsageError(
                    "There is nothing to compare with",
                    f"{baseline} is itself the baseline of its profile and plan",
                    "Name two runs: gpuroom bench compare last~1 last",
                )
            runs.insert(0, history.load(baseline))
        named = {one.run_id for one in runs}
        equals = [one for one in equal_runs(history, runs[0]) if one.run_id not in named]
    return runs, equals


def _status(comparison: Comparison, limit: float, strict: bool) -> int:
    from backends.bench.compare import Word

    if comparison.word is Word.NOT_COMPARABLE:
        print("not comparable: nothing is shown about speed", file=sys.stderr)
        return EXIT_NOT_COMPARABLE
    slower = comparison.slower_by()
    if slower is not None and slower >= limit:
        print(f"slower by {slower:.1%}, the limit is {limit:.1%}", file=sys.stderr)
        return EXIT_SLOWER
    if comparison.could_be_slower_by(limit):
        print(f"slower by {limit:.1%} cannot be ruled out", file=sys.stderr)
        return EXIT_UNDECIDED if strict else 0
    return 0


def step_lines(comparison: Comparison) -> list[str]:
    """One line a step: its word, and what shows it."""
    from backends.bench.compare_steps import step_words

    words = step_words(comparison)
    width = max(map(len, words), default=0)
    return [f"  {label:<{width}}  {word.text}" for label, word in words.items()]


def text(comparison: Comparison, columns: int | None = None) -> str:
    """A comparison as plain text; `columns` is what a line may take."""
    from backends.bench.compare import Word
    from backends.bench.export import ROW_HEADER, change_text, row_cells

    a, b, row = comparison.a, comparison.b, comparison.overall
    lines = [f"A {a.run_id}  {a.plan.name}  {a.started_utc:%Y-%m-%d %H:%M} UTC"]
    lines.append(f"B {b.run_id}  {b.plan.name}  {b.started_utc:%Y-%m-%d %H:%M} UTC")
    lines.append(f"B is {comparison.word.value.upper()}" if row.estimate else comparison.word.value)
    if row.estimate is not None:
        lines[-1] += f": {row.metric.value} over all steps {change_text(row)}"
    if row.remark:
        lines[-1] += f"; {row.remark}"
    for title, found in (
        ("not comparable, because of", comparison.obstacles),
        ("changed between them", comparison.changes),
    ):
        if found:
            lines += ["", f"{title} (A / B)", *(f"  {difference}" for difference in found)]
    if comparison.rows:
        lines += ["", *step_lines(comparison)]
        cells = [[cell.replace("\\", "") for cell in row_cells(one)] for one in comparison.rows]
        for one, row_text in zip(comparison.rows, cells, strict=True):
            if one.word is Word.NOT_COMPARABLE:
                row_text[-1] = ""  # the line of the step says why, once
    shown = [part for line in lines for part in wrapped(line, columns)]
    if comparison.rows:
        # Behind its load each row has its metric; of what is left out most stands above.
        rows = table(ROW_HEADER, cells, right=(2, 3, 4, 5), width=columns, drop=(5, 7, 6))
        shown += ["", rows]
    for remark in comparison.remarks:
        shown += wrapped(f"note: {remark}", columns)
    return "\n".join(shown)
