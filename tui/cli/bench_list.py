"""`gpuroom bench list`: runs that were, newest first."""

from __future__ import annotations

import argparse
import json
import sys

from tui.cli.bench_history import figure, open_history, unfinished_runs
from tui.cli.fit import table, width_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "search", nargs="*", metavar="WORD", help="all have to fit: plan, model, host, tag, note"
    )
    parser.add_argument("--tag", default="", help="only runs with this tag")
    parser.add_argument("--profile", default="", help="only runs of this server profile")
    parser.add_argument("--plan", default="", help="only runs of this plan")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="at most N (100)")
    parser.add_argument("--json", action="store_true", help="print an array of objects")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from dataclasses import asdict

    from backends.storage.history import Filter

    which = Filter(
        " ".join(arguments.search),
        arguments.tag,
        arguments.profile,
        arguments.plan,
        max(1, arguments.limit),
    )
    with open_history() as history:
        rows = history.runs(which)
        unfinished = unfinished_runs(history)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, default=str))
        return 0
    header = (
        "run", "started", "plan", "model", "steps", "output tok/s", "total tok/s", "TTFT ms",
        "TPOT ms", "failed", "remarks",
    )  # fmt: skip
    cells = [
        (
            row.run_id, f"{row.started_utc.astimezone():%Y-%m-%d %H:%M}", row.plan,
            (row.model or "-")[-24:], f"{row.steps}x{row.repetitions}",
            figure(row.output_tokens_per_s), figure(row.total_tokens_per_s),
            figure(row.ttft_s, 1, 1e3), figure(row.tpot_s, 2, 1e3), str(row.failed),
            _remarks(row.status, row.harness, row.valid, row.baseline, row.tags, row.notes),
        )
        for row in rows
    ]  # fmt: skip
    width = width_of(sys.stdout)
    print(table(header, cells, right=(4, 5, 6, 7, 8, 9), width=width, drop=(4, 8, 3, 9, 7, 1)))
    if unfinished:
        print(f"{len(unfinished)} unfinished: `gpuroom bench import {unfinished[0]}` keeps one")
    if not rows:
        print("no runs yet; `gpuroom bench --url URL` makes one")
    return 0


def _remarks(
    status: str, harness: str, valid: bool, baseline: bool, tags: tuple[str, ...], notes: int
) -> str:
    parts = []
    if baseline:
        parts.append("BASELINE")
    if status != "complete":
        parts.append(status)
    if not valid:
        parts.append("client-limited")
    if harness != "gpuroom":
        parts.append(f"by {harness}")
    parts += tags
    if notes:
        parts.append(f"{notes} note{'s' if notes > 1 else ''}")
    return ", ".join(parts)
