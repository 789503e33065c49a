"""`gpuroom diagnose`: read server logs, offline, and say what they show.

Exit status: 0 when every log was read; 1 with `--exit-code` when a log shows a crash or a stall;
2 when a log, or a catalogue of one's own, cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from backends.errors import RoomError
from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_file, diagnose_stream
from backends.servers.engines import ENGINES, EngineId, Phase
from backends.servers.verdict import Outcome, Verdict
from backends.text import clean
from tui.cli.main import report

EXIT_FAILURE_SHOWN: Final = 1
EXIT_UNREADABLE: Final = 2
_WIDTH: Final = 200
_NOTE_WIDTH: Final = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="log of a server; - reads stdin")
    parser.add_argument("--json", action="store_true", help="one list, an object a file")
    parser.add_argument(
        "--engine", choices=[engine.value for engine in EngineId], help="do not guess who wrote it"
    )
    parser.add_argument(
        "--catalogue", type=Path, metavar="FILE", help="causes of your own, read before the others"
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if a log shows a crash or a stall"
    )
    parser.epilog = "exit status: 0 read, 1 a failure is shown (with --exit-code), 2 unreadable"


def run(arguments: argparse.Namespace) -> int:
    """Diagnose each file and print the verdicts."""
    catalogue = load_catalogue(arguments.catalogue)
    engine = EngineId(arguments.engine) if arguments.engine else None
    verdicts: list[tuple[str, Verdict]] = []
    unreadable = False
    for name in arguments.files:
        try:
            if name == "-":
                verdict = diagnose_stream(sys.stdin.buffer, catalogue, engine)
            else:
                verdict = diagnose_file(Path(name), catalogue, engine)
        except RoomError as error:
            report(error)
            unreadable = True
            continue
        verdicts.append((name, verdict))
        if not arguments.json:
            print(describe(name, verdict), flush=True)
    if arguments.json:
        print(json.dumps([as_json(name, verdict) for name, verdict in verdicts], indent=2))
    if unreadable:
        return EXIT_UNREADABLE
    failed = any(verdict.outcome in (Outcome.CRASH, Outcome.STALLED) for _, verdict in verdicts)
    return EXIT_FAILURE_SHOWN if arguments.exit_code and failed else 0


def as_json(name: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict in the form that `--json` prints; lines count from 1, by line feeds."""
    return {
        "file": name,
        "engine": verdict.engine.value,
        "version": verdict.version,
        "outcome": verdict.outcome.value,
        "phase": verdict.phase.value,
        "ready_line": verdict.ready_line,
        "cause": verdict.cause,
        "evidence_line": None if verdict.evidence is None else verdict.evidence.line,
        "title": clean(verdict.title, 400),
        "remedies": list(verdict.remedies),
        "warnings": [
            {
                "id": warned.id,
                "title": warned.title,
                "line": warned.line,
                "text": clean(warned.text, 600),
                "count": warned.count,
            }
            for warned in verdict.warnings
        ],
    }


def describe(name: str, verdict: Verdict) -> str:
    """A verdict for people."""
    engine = ENGINES[verdict.engine].title
    version = f" {verdict.version}" if verdict.version else ""
    lines = [f"{clean(name, 300)}: {verdict.outcome.value.upper()}  ({engine}{version})"]
    if verdict.outcome is not Outcome.READY:
        cause = f"  [{verdict.cause}]" if verdict.cause else ""
        lines.append(f"  {clean(verdict.title, 400)}{cause}")
    if verdict.ready_line is not None:
        lines.append(f"  ready at line {verdict.ready_line}")
    elif verdict.phase is Phase.READY:
        lines.append("  the log begins while it serves")
    elif verdict.outcome in (Outcome.CRASH, Outcome.STALLED):
        lines.append(f"  while {verdict.phase.words}, never ready")
    if verdict.evidence is not None and verdict.outcome is not Outcome.READY:
        lines.append(f"  line {verdict.evidence.line}: {clean(verdict.evidence.text, _WIDTH)}")
    lines += [f"  try: {clean(remedy, 400)}" for remedy in verdict.remedies]
    if verdict.reference:
        lines.append(f"  see: {verdict.reference}")
    for warned in verdict.warnings:
        times = f" ({warned.count} times)" if warned.count > 1 else ""
        lines.append(f"  note, line {warned.line}{times}: {warned.title}")
        lines.append(f"    {clean(warned.text.strip(), _NOTE_WIDTH)}")
    return "\n".join(lines)
