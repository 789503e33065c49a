"""What a room of many hosts costs: CPU and memory of gpuroom without its screen.

    python benchmarks/fleet.py [--hosts 32] [--seconds 20]

All hosts are simulated ones with eight cards each, reached over real SSH connections with real
agents on the far side (as other processes, not counted). Measured is this process: transport,
parsing, storing, verdicts and one snapshot a sample.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.config import Config, HostConfig, SshConfig
from backends.hub import RoomHub
from backends.link.demo import write_way_in


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def longest_stall(seconds: float) -> float:
    """How late the event loop was at worst."""
    worst, end_s = 0.0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        await asyncio.sleep(0.01)
        worst = max(worst, time.monotonic() - began_s - 0.01)
    return worst


async def measure(count: int, seconds: float, folder: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "backends.sim.server", "healthy"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        names = [f"host{number:02}" for number in range(count)]
        way_in = json.loads(await server.stdout.readline())
        config_file = write_way_in(folder, way_in, names)
        config = Config(ssh=SshConfig(config_file=str(config_file)))
        async with RoomHub([HostConfig(name=name) for name in names], config) as hub:
            began_s = time.monotonic()
            while not all(session.snapshot.sampled_s for session in hub.sessions):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            print(f"hosts live after                 {time.monotonic() - began_s:8.2f} s")
            await asyncio.sleep(2)
            before_s, before_version = cpu_s(), hub.version
            worst_s = await longest_stall(seconds)
            used_s = cpu_s() - before_s
            samples = count * seconds
            gpus = sum(len(session.snapshot.gpus) for session in hub.sessions)
            print(f"hosts, GPUs                      {count:8d}, {gpus}")
            print(f"CPU at 1 Hz                      {used_s / seconds:8.1%} of a core")
            print(f"CPU a host and sample            {used_s / samples * 1000:8.2f} ms")
            print(f"resident memory                  {memory_mb():8.1f} MB")
            print(f"longest stall of the event loop  {worst_s * 1000:8.1f} ms")
            print(f"changes seen                     {hub.version - before_version:8d}")
    finally:
        server.stdin.close()
        await server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUROOM_HOME"] = folder
        asyncio.run(measure(arguments.hosts, arguments.seconds, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
