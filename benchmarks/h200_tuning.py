"""Facts, findings and micro-measurements of the GPU host it runs on. Reads only; about a minute.

    python benchmarks/h200_tuning.py           # writes h200_tuning.json to $OUT

Needs msgspec for the findings and torch for the measurements; says what is missing. Without msgspec
it writes the facts and the measured lines alone, which `gpuroom tuning read` judges elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backends.agent.remote import facts as gatherer  # noqa: E402
from backends.agent.remote import measure  # noqa: E402

LIMIT_S = 300.0
PARTS = ("wakeup", "read", "link", "copies", "memory", "launch", "pairs", "matmul", "allreduce")


def probe_rows() -> list[list[Any]]:
    """The probe table, as it goes to an agent."""
    from backends.tuning.probes import PROBES

    return [[p.kind.value, p.target, list(p.argv), p.limit_bytes, p.root] for p in PROBES]


class Sink:
    """What the measuring area streams to, here in one process."""

    def __init__(self) -> None:
        self.pieces: list[dict[str, Any]] = []

    def send(self, piece: dict[str, Any]) -> None:
        """Keep a piece, and print it."""
        self.pieces.append(piece)
        print(" ", json.dumps(piece)[:400], flush=True)

    def wait_closed(self, timeout_s: float) -> bool:
        """Nobody cancels."""
        time.sleep(timeout_s)
        return False


def measured(path: str, seconds: float) -> list[dict[str, Any]]:
    """Everything that can be measured on this machine, as the agent would stream it."""
    sink = Sink()
    params = {"parts": list(PARTS), "path": path, "load_s": seconds, "limit_s": LIMIT_S}
    measure.run(params, sink)
    return sink.pieces


def largest_file() -> str:
    """A large file that is there anyway, to be read."""
    places = [Path(p) for p in sys.path if p.endswith("-packages")]
    found = [f for place in places for f in place.glob("torch/lib/*.so*") if f.is_file()]
    return str(max(found, key=lambda f: f.stat().st_size)) if found else ""


def judge(answer: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Print findings and figures."""
    from backends.tuning import report
    from backends.tuning.engine import Options, evaluate
    from backends.tuning.facts import Fact, FactsDocument
    from backends.tuning.measurements import figures, joining
    from backends.tuning.normalise import normalise

    found = [Fact(k, v, source, error) for k, v, error, source, _, _ in answer["facts"]]
    document = normalise(FactsDocument(found, answer["host"], answer["boot_id"]))
    more = [Fact(row["key"], row["value"], "measured") for row in lines if row.get("key")]
    before = {f.check: f.verdict for f in evaluate(document, Options(only_touched=True))}
    whole = joining.joined(document, FactsDocument(more))
    for finding in evaluate(whole, Options(only_touched=True)):
        was = before.get(finding.check)
        if was is not None and was is not finding.verdict:
            told = f"{was.value} -> {finding.verdict.value}: {finding.evidence}"
            print(f"settled: {finding.check}: {told}")
    print(figures.table(figures.rows(whole)))
    print(report.to_text(evaluate(whole, Options(only_touched=True))))


def main() -> int:
    """Gather twice, measure, judge, write."""
    rows = probe_rows()
    took = []
    for _ in range(3):
        began = time.monotonic()
        answer = gatherer.collect({"probes": rows})
        took.append(round(time.monotonic() - began, 3))
    print(f"{len(answer['facts'])} facts in {took} s")
    for entry in answer["facts"]:
        if entry[0].startswith(("cuda/", "nvml/", "open/", "node/", "cmd/systemd-detect")):
            print(f"  {entry[0]}: {str(entry[1])[:100]} {entry[2] or ''}".rstrip())
    lines = measured(largest_file(), 12.0)
    out = Path(os.environ.get("OUT", "."))
    (out / "h200_tuning.json").write_text(
        json.dumps({"took_s": took, **answer, "measured": lines}, indent=1)
    )
    try:
        judge(answer, lines)
    except ImportError as error:
        print(f"not judged here: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
