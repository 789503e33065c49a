"""`gpuroom bench import FILE`: results of other tools, or of another gpuroom, into the history."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tui.cli.bench_history import open_history


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "Known: gpuroom's own JSON, vllm bench serve --save-result, sglang.bench_serving "
        "--output-file, guidellm's benchmarks.json, aiperf's profile_export_aiperf.json, "
        "genai-perf's profile_export_genai_perf.json, and the records (.jsonl) of a run of gpuroom "
        "that never came to its end."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tag", action="append", default=[], help="tag what is imported")
    parser.add_argument("--json", action="store_true", help="print an array of ids")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.bench.importers import read_result_file
    from backends.bench.sink import goes_on
    from backends.errors import UsageError
    from backends.storage.keep import keep_run

    files: list[Path] = arguments.files
    with open_history() as history:
        folder = (history.folder / "runs").resolve()
        own = [path.suffix == ".jsonl" and path.resolve().parent == folder for path in files]
        for path, is_own in zip(files, own, strict=True):
            if is_own and goes_on(path):
                raise UsageError("this run goes on", str(path), "it is kept when it is over")
        # All are read before any is stored: a bad file leaves the history as it was.
        runs = [read_result_file(path) for path in files]
        for path, is_own, result in zip(files, own, runs, strict=True):
            keep_run(history, result, path if is_own else None)
            if arguments.tag:
                history.tag(result.run_id, arguments.tag)
    if arguments.json:
        print(json.dumps([result.run_id for result in runs]))
    else:
        for result in runs:
            print(f"{result.run_id}  {result.harness}, {len(result.steps)} steps")
    return 0
