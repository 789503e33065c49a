"""Facts, findings and micro-measurements of the GPU host it runs on. Reads only; about a minute.

    python benchmarks/h200_tuning.py           # writes h200_tuning.json to $OUT

Needs msgspec for the findings and torch for the measurements; says what is missing. Without msgspec
it writes the facts and the measured lines alone, which `gpuroom tuning read` judges elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backends.agent.remote import facts as gatherer  # noqa: E402
from backends.agent.remote import measure, measure_torch  # noqa: E402

LIMIT_S = 80.0


def probe_rows() -> list[list[Any]]:
    """The probe table, as it goes to an agent."""
    from backends.tuning.probes import PROBES

    return [[p.kind.value, p.target, list(p.argv), p.limit_bytes, p.root] for p in PROBES]


def measured(path: str) -> list[dict[str, Any]]:
    """The lines of the measuring program."""
    python = measure.find_python()
    if python is None:
        print("no python with torch")
        return []
    options = json.dumps({"path": path})
    program = Path(measure_torch.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        [python, "-", options], input=program.encode(), capture_output=True, timeout=LIMIT_S
    )
    if done.returncode != 0:
        print(done.stderr.decode("utf-8", "replace")[-2000:])
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line[:1] == "{"]


def largest_file() -> str:
    """A large file that is there anyway, to be read."""
    places = [Path(p) for p in sys.path if p.endswith("-packages")]
    found = [f for place in places for f in place.glob("torch/lib/*.so*") if f.is_file()]
    return str(max(found, key=lambda f: f.stat().st_size)) if found else ""


def judge(answer: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Print findings and figures."""
    from backends.tuning import measure as figures
    from backends.tuning import report
    from backends.tuning.engine import Options, evaluate
    from backends.tuning.facts import Fact, FactsDocument
    from backends.tuning.normalise import normalise

    found = [Fact(k, v, source, error) for k, v, error, source, _, _ in answer["facts"]]
    document = normalise(FactsDocument(found, answer["host"], answer["boot_id"]))
    more = [Fact(row["key"], row["value"], "measured") for row in lines if "key" in row]
    whole = figures.joined(document, FactsDocument(more))
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
    lines = measured(largest_file())
    for line in lines:
        print(" ", json.dumps(line))
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
