"""What the agent costs a host: CPU at 1 Hz with eight GPUs, bytes a sample, processes started.

    python benchmarks/agent_cost.py [--seconds 30] [--python python3] [--scenario healthy]

The GPUs are simulated (`backends.sim`), which costs CPU too; the line "without GPUs" is the same
agent where there is no driver, so the difference is an upper bound of what reading them costs.
What a real driver costs is measured by `h200_check.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.agent.client import AgentClient
from backends.agent.loader import build_payload
from backends.link.local import LocalTransport
from backends.sim import scenarios

NO_DRIVER = "raise ImportError('no driver here')\n"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_S


def schedstat_s(pid: int) -> float:
    """CPU seconds of all threads that live, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def children(pid: int) -> int:
    """How many child processes it has now."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def resident_mb(pid: int) -> float:
    """Memory that it really holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(python: str, pynvml_source: str, seconds: float) -> dict[str, float]:
    """One agent for that long."""
    lines: list[tuple[str, bytes]] = []

    def note(method: str, params: Mapping[str, object]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        lines.append((method, json.dumps(message, separators=(",", ":")).encode() + b"\n"))

    client = AgentClient(
        LocalTransport(),
        python=python,
        on_notification=note,
        pynvml_source=pynvml_source,
        settings={"interval_s": 1.0},
    )
    begun = time.perf_counter()
    await client.start(30.0)
    hello_s = time.perf_counter() - begun
    pid = json.loads(lines[0][1])["params"]["pid"]
    await asyncio.sleep(3.0)  # the start is not what goes on for days
    started = children(pid)
    first, before, cpu_before = len(lines), time.perf_counter(), schedstat_s(pid)
    await asyncio.sleep(seconds)
    took, cpu = time.perf_counter() - before, schedstat_s(pid) - cpu_before
    waited_for = cpu_s(pid) - schedstat_s(pid)
    started += children(pid)
    resident = resident_mb(pid)
    await client.close()
    steady = lines[first:]
    fast = [line for method, line in steady if method == "fast"]
    deflate = zlib.compressobj(6)
    for _, line in lines[:first]:
        deflate.compress(line)
        deflate.flush(zlib.Z_SYNC_FLUSH)
    packed = {"fast": 0, "all": 0}
    for method, line in steady:
        size = len(deflate.compress(line)) + len(deflate.flush(zlib.Z_SYNC_FLUSH))
        packed["all"] += size
        packed["fast"] += size if method == "fast" else 0
    samples = max(1, len(fast))
    return {
        "hello_ms": 1000 * hello_s,
        "cpu_pct": 100 * cpu / took,
        "samples": len(fast),
        "fast_bytes": sum(map(len, fast)) / samples,
        "all_bytes_a_sample": sum(len(line) for _, line in steady) / samples,
        "fast_bytes_deflated": packed["fast"] / samples,
        "all_bytes_a_sample_deflated": packed["all"] / samples,
        "children": started,
        "children_cpu_s": max(0.0, round(waited_for, 1)),
        "rss_mb": resident,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--scenario", default="healthy")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {
        "payload_bytes": len(build_payload()),
        "with 8 simulated GPUs": asyncio.run(
            measure(arguments.python, scenarios.nvml_source(arguments.scenario), arguments.seconds)
        ),
        "without GPUs": asyncio.run(measure(arguments.python, NO_DRIVER, arguments.seconds / 2)),
    }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return 0
    print(f"payload {results.pop('payload_bytes'):,} B (goal 60,000)")
    goals = {
        "cpu_pct": "1",
        "fast_bytes": "1,200",
        "fast_bytes_deflated": "300",
        "children": "0",
    }
    for name, values in results.items():
        print(f"\n{name}")
        for key, value in values.items():
            goal = f"   (goal {goals[key]} at most)" if key in goals else ""
            print(f"  {key:30} {value:10,.2f}{goal}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
