"""`gpuroom bench baseline RUN`: pin the run that later ones of its profile and plan must match."""

from __future__ import annotations

import argparse
import json
import sys

from tui.cli.bench_history import figure, open_history
from tui.cli.fit import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Without RUN the pinned runs are listed."
    parser.add_argument("name", nargs="?", metavar="RUN", help="to pin, in place of an earlier one")
    parser.add_argument("--remove", action="store_true", help="let RUN be no baseline any more")
    parser.add_argument("--json", action="store_true", help="print an array of the pinned runs")


NOT_VALID = "the client was the limit in {run_id}: nothing can be compared with it"


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.errors import UsageError

    with open_history() as history:
        if arguments.name:
            run_id = history.resolve(arguments.name)
            if arguments.remove:
                if not history.unpin(run_id):
                    raise UsageError(f"Run {run_id} is no baseline")
            else:
                history.pin(run_id)
                if not history.row(run_id).valid:
                    print(f"warning: {NOT_VALID.format(run_id=run_id)}", file=sys.stderr)
        rows = history.baselines()
    if arguments.json:
        pinned = [{"profile": row.profile, "plan": row.plan, "run_id": row.run_id} for row in rows]
        print(json.dumps(pinned, indent=2))
        return 0
    cells = [
        (row.profile or "-", row.plan, row.run_id, figure(row.output_tokens_per_s)) for row in rows
    ]
    print(table(("profile", "plan", "baseline", "output tok/s"), cells, right=(3,)))
    return 0
