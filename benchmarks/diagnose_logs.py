"""Verdicts on recorded logs beside those that people gave, and how fast logs are read.

    python benchmarks/diagnose_logs.py [FOLDER] [--synthetic MB]

FOLDER holds logs and an `index.tsv` (id, file, server, version, outcome, verdict, ready_line,
evidence_line); without one the recordings beside the checkout are taken. The synthetic log is a
server that starts, serves and dies; it is written to a temporary file and read once.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backends.servers.catalogue import load_catalogue  # noqa: E402
from backends.servers.diagnose import diagnose_bytes, diagnose_file  # noqa: E402

START = (
    b"(APIServer pid=7) INFO 10-02 09:15:01 [api_server.py:1839] vLLM API server version 0.11.0\n"
    b"(EngineCore_DP0 pid=77) INFO 10-02 09:15:10 [gpu_model_runner.py:2602] Starting to load\n"
    b"(APIServer pid=7) INFO:     Application startup complete.\n"
)
SERVING = (
    b'(APIServer pid=7) INFO:     10.0.0.%d:%d - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    b"(APIServer pid=7) INFO 10-02 09:16:%02d [loggers.py:127] Engine 000: Avg prompt throughput: "
    b"%d.4 tokens/s, Avg generation throughput: 812.0 tokens/s, Running: 12 reqs, Waiting: 0 reqs\n"
)
REFUSED = (
    b"(APIServer pid=7) ERROR 10-02 09:16:40 [serving_chat.py:136] Error with model code=404 n=%d\n"
)
END = (
    b"(EngineCore_DP0 pid=77) ERROR 10-02 19:00:00 [core.py:710] EngineCore hit an exception: x\n"
    b"(EngineCore_DP0 pid=77) ERROR 10-02 19:00:00 [core.py:710] torch.OutOfMemoryError: CUDA out "
    b"of memory. Tried to allocate 1.96 GiB.\n"
)


def number(text: str) -> int | None:
    return None if text in ("-", "") else int(text)


def verdict_table(folder: Path) -> int:
    catalogue = load_catalogue()
    with (folder / "index.tsv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    right = ready_right = evidence_right = 0
    for row in rows:
        verdict = diagnose_file(folder / row["file"], catalogue)
        evidence = None if verdict.evidence is None else verdict.evidence.line
        same = verdict.outcome.value == row["outcome"]
        ready_same = verdict.ready_line == number(row["ready_line"])
        evidence_same = evidence == number(row["evidence_line"])
        right += same
        ready_right += ready_same
        evidence_right += evidence_same
        mark = " " if same and ready_same and evidence_same else "*"
        print(
            f"{mark} {row['id']:<8} {verdict.engine.value:<12} {verdict.version or '-':<16.16} "
            f"{verdict.outcome.value:<8} ready {verdict.ready_line or '-'!s:>5}  "
            f"line {evidence or '-'!s:>5}  {verdict.cause or '-':<28} | {row['verdict'][:48]}"
        )
    count = len(rows)
    print(f"outcome {right}/{count}, ready line {ready_right}/{count}, "
          f"evidence line {evidence_right}/{count}")  # fmt: skip
    return 0 if right == count else 1


def recorded_speed(folder: Path) -> None:
    catalogue = load_catalogue()
    logs = [path.read_bytes() for path in sorted(folder.glob("*.log"))]
    started = time.perf_counter()
    for data in logs:
        diagnose_bytes(data, catalogue)
    took = time.perf_counter() - started
    lines, size = sum(data.count(b"\n") for data in logs), sum(map(len, logs))
    print(f"recorded logs: {lines / took:,.0f} lines/s, {size / took / 1e6:.1f} MB/s")


def synthetic_speed(megabytes: int, every: int) -> None:
    block = b"".join(
        SERVING % (n % 250, 30_000 + n, n % 60, n) + (b"" if n % every else REFUSED % n)
        for n in range(6_000)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        with path.open("wb") as log:
            log.write(START)
            for _ in range(max(1, megabytes * 1_000_000 // len(block))):
                log.write(block)
            log.write(END)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        verdict = diagnose_file(path, load_catalogue())
        took = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = path.stat().st_size
    lines = 0 if verdict.evidence is None else verdict.evidence.line
    print(
        f"synthetic {size / 1e6:.0f} MB, an error every {every} requests: "
        f"{verdict.outcome.value} {verdict.cause}, "
        f"{lines / took:,.0f} lines/s, {size / took / 1e6:.0f} MB/s "
        f"(5 GB in {5e9 / (size / took):.0f} s), peak memory +{(after - before) / 1024:.0f} MB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT.parent / "shared" / "logs")
    parser.add_argument("--synthetic", type=int, default=100, metavar="MB")
    arguments = parser.parse_args()
    status = 0
    if (arguments.folder / "index.tsv").is_file():
        status = verdict_table(arguments.folder)
        recorded_speed(arguments.folder)
    else:
        print(f"no index.tsv in {arguments.folder}: no verdicts to compare")
    synthetic_speed(arguments.synthetic, every=50)
    synthetic_speed(arguments.synthetic // 4, every=1)
    return status


if __name__ == "__main__":
    sys.exit(main())
