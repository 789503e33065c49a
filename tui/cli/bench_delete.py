"""`gpuroom bench delete RUN`: forget a run, with its samples, tags and notes."""

from __future__ import annotations

import argparse

from tui.cli.bench_history import open_history


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="RUN", help="id or its beginning, last, last~1, tag:NAME")
    parser.add_argument("--yes", action="store_true", help="without this nothing is deleted")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.errors import UsageError

    with open_history() as history:
        row = history.row(history.resolve(arguments.name))
        if not arguments.yes:
            raise UsageError(
                f"Run {row.run_id} of {row.started_utc:%Y-%m-%d %H:%M} UTC would be deleted",
                hint="It cannot be brought back. Add --yes to delete it.",
            )
        history.delete(row.run_id)
    print(f"deleted {row.run_id}")
    return 0
