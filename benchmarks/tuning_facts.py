"""Time of one gathering on a large host, and of auditing many hosts from here.

Usage: python benchmarks/tuning_facts.py [--cpus 256] [--gpus 8] [--hosts 64] [--runs 5] [--idle 20]

The host is a folder built like one (files of procfs and sysfs on this machine's disk, a simulated
NVML with eight GPUs is not part of it); the links are local ones, an agent each. Commands are those
of the folder: what real ones cost is not in these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backends.agent.remote import facts  # noqa: E402
from backends.config import HostConfig  # noqa: E402
from backends.hub import RoomHub  # noqa: E402
from backends.tuning.audit import audit  # noqa: E402
from backends.tuning.engine import Options  # noqa: E402
from backends.tuning.gather import Reading, gather  # noqa: E402
from backends.tuning.probes import PROBES  # noqa: E402
from tests.tuning_live.tree import make_host  # noqa: E402

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
"""The system's own, as a host has it; wrappers of version managers cost more than the agent."""


def one_host(folder: str, runs: int) -> None:
    """The agent's own part, without a link."""
    rows = [[p.kind.value, p.target, list(p.argv), p.limit_bytes, p.root] for p in PROBES]
    wall, cpu = [], []
    for _ in range(runs):
        began, used = time.monotonic(), time.process_time()
        answer = facts.collect({"probes": rows, "root": folder})
        wall.append(time.monotonic() - began)
        cpu.append(time.process_time() - used)
    print(
        f"one gathering on the host: {statistics.median(wall):.3f} s (worst {max(wall):.3f}), "
        f"{statistics.median(cpu):.3f} s of CPU, {len(answer['facts'])} facts"
    )


async def many_hosts(folder: str, count: int) -> None:
    """Reach, gather and judge `count` hosts at once."""
    reading = Reading(root=folder)
    hosts = [
        # As `gpuroom tuning audit` does: no telemetry meanwhile.
        HostConfig(name=f"gpu{n:02}", target="local", python=PYTHON, interval_s=60.0)
        for n in range(count)
    ]
    began, used = time.monotonic(), cpu_s()
    times = []
    findings = 0
    async with RoomHub(hosts) as hub:
        pairs = [(session, None) for session in hub.sessions]
        async for one in audit(pairs, lambda name: Options(), reading=reading, timeout_s=120.0):
            assert one.error is None, one.error
            times.append(time.monotonic() - began)
            findings += len(one.findings)
    here, there = (after - before for after, before in zip(cpu_s(), used, strict=True))
    print(
        f"{count} hosts: {max(times):.1f} s from nothing to the last verdict (first after "
        f"{min(times):.1f} s), {findings} findings; CPU: {here:.1f} s of this program "
        f"({1e3 * here / count:.0f} ms a host), {there:.1f} s of the hosts' agents, which run on "
        "this machine too"
    )


async def afterwards(folder: str, seconds: float) -> None:
    """What the agent costs once it has given the facts: at rest, and sampling at 1 Hz."""
    for words, interval_s in (("no telemetry", 60.0), ("telemetry at 1 Hz", 1.0)):
        host = HostConfig(name="gpu00", target="local", python=PYTHON, interval_s=interval_s)
        async with RoomHub([host]) as hub:
            session = hub.sessions[0]
            await gather(session, reading=Reading(root=folder))
            await asyncio.sleep(2.0)  # what the gathering left to be done is not rest
            agent = session.snapshot.agent
            assert agent is not None
            began, used = time.monotonic(), agent_cpu_s(agent.pid)
            await asyncio.sleep(seconds)
            share = (agent_cpu_s(agent.pid) - used) / (time.monotonic() - began)
        print(f"afterwards, {words}: {100 * share:.2f} % of a core over {seconds:.0f} s")


def agent_cpu_s(pid: int) -> float:
    """CPU time of a process's living threads, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def cpu_s() -> tuple[float, float]:
    """CPU time of this program, and of what it started and has ended."""
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def main() -> None:
    """Build the folder, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, default=256)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds watched afterwards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_host(Path(folder), cpus=arguments.cpus, gpus=arguments.gpus)
        print(
            f"a folder of {sum(len(names) for _, _, names in os.walk(folder))} files, "
            f"{os.cpu_count()} CPUs here, load {os.getloadavg()[0]:.1f}"
        )
        one_host(folder, arguments.runs)
        asyncio.run(many_hosts(folder, 1))
        asyncio.run(afterwards(folder, arguments.idle))
        if arguments.hosts > 1:
            asyncio.run(many_hosts(folder, arguments.hosts))


if __name__ == "__main__":
    main()
