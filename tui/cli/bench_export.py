"""`gpuroom bench export RUN`: a run for others: JSON, CSV, Markdown, a picture, its samples."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tui.cli.bench_history import NAMES, find_run, open_history

if TYPE_CHECKING:
    from backends.bench.against import Opened
    from backends.storage.history import History


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = NAMES
    parser.add_argument("names", nargs="*", metavar="RUN", default=["last"], help="default: last")
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of the document instead"
    )
    parser.add_argument(
        "--format",
        choices=("json", "csv", "markdown", "svg", "samples"),
        default="json",
        help="json: the document; csv: a line a step; markdown; svg: a picture of the result "
        "screen, several runs compared; samples: a JSON line a request",
    )
    for name, more in (("svg", ""), ("csv", ""), ("markdown", "; with --schema: every field")):
        parser.add_argument(
            f"--{name}",
            action="store_const",
            const=name,
            dest="format",
            help=f"short for --format {name}{more}",
        )
    parser.add_argument("--light", action="store_true", help="the picture on white")
    parser.add_argument("--output", type=Path, metavar="FILE", help="instead of stdout")


def _opened(history: History, names: list[str]) -> Opened:
    """Runs of the history beside their baseline; files beside each other."""
    from backends.bench.against import beside, open_runs
    from backends.storage.history import RunNotFound

    try:
        return open_runs(history, [history.resolve(name) for name in names])
    except RunNotFound:
        return beside(history, [find_run(history, name) for name in names])


def _theme(light: bool) -> str:
    return "light" if light else "dark"


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.bench.export import to_csv, to_markdown
    from backends.bench.results import to_json
    from backends.errors import UsageError
    from backends.storage.atomic import write_bytes
    from backends.storage.samples import read_lines

    if arguments.schema and arguments.format == "markdown":
        from backends.bench import schema_text

        print(schema_text.markdown(), end="")
        return 0
    if arguments.schema:
        import msgspec

        from backends.bench.results import RunResult

        print(json.dumps(msgspec.json.schema(RunResult), indent=2))
        return 0
    if arguments.format in ("json", "samples") and len(arguments.names) > 1:
        raise UsageError(f"--format {arguments.format} takes one run at a time")
    with open_history() as history:
        if arguments.format == "samples":
            path = history.samples_of(history.resolve(arguments.names[0]))
            if not path.exists():
                raise UsageError("The run has no samples here", str(path))
            data = b"".join(line + b"\n" for line in read_lines(path))
        elif arguments.format == "svg":
            from screens.result_files import svg

            data = svg(_opened(history, arguments.names), _theme(arguments.light)).encode()
        else:
            runs = [find_run(history, name) for name in arguments.names]
            if arguments.format == "json":
                data = to_json(runs[0]) + b"\n"
            elif arguments.format == "csv":
                data = to_csv(runs).encode()
            else:
                data = "\n".join(to_markdown(one) for one in runs).encode()
    if arguments.output:
        write_bytes(arguments.output, data, 0o644)
    else:
        sys.stdout.write(data.decode())
    return 0
