"""`gpuroom bench tag RUN TAG`: tags and notes of a run."""

from __future__ import annotations

import argparse

from tui.cli.bench_history import open_history


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="RUN", help="id or its beginning, last, last~1, tag:NAME")
    parser.add_argument("tags", nargs="*", metavar="TAG")
    parser.add_argument("--remove", action="store_true", help="take the tags away")
    parser.add_argument("--note", metavar="TEXT", help="write a note about the run")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    with open_history() as history:
        run_id = history.resolve(arguments.name)
        if arguments.tags:
            history.tag(run_id, arguments.tags, remove=arguments.remove)
        if arguments.note:
            history.note(run_id, arguments.note)
        row, notes = history.row(run_id), history.notes(run_id)
    print(f"{run_id}  tags: {', '.join(row.tags) or 'none'}")
    for note in notes:
        print(f"  {note.written_utc.astimezone():%Y-%m-%d %H:%M}  {note.text}")
    return 0
