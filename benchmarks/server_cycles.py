"""Starts and stops a small server many times: `python benchmarks/server_cycles.py [CYCLES]`.

Prints how many stops were complete (no process, port free) and how long a cycle took.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.servers_live.rooms import desk_of, members_alive, quick_profile


async def measure(cycles: int) -> int:
    """Run them and print the figures; 1 when anything was left behind."""
    profile = quick_profile("cycle", "--workers", "1")
    complete, runs = 0, []
    began_s = time.monotonic()
    async with desk_of(profile) as desk:
        for _ in range(cycles):
            run = await desk.start(profile)
            runs.append(run.run_id)
            complete += (await desk.stop(run, grace_s=0.2)).complete
    took_s = time.monotonic() - began_s
    left = [pid for run_id in runs for pid in members_alive(run_id)]
    print(f"{complete} of {cycles} stops complete, {len(left)} processes left")
    print(f"{took_s / cycles * 1000:.0f} ms a cycle (a worker that ignores SIGTERM in each)")
    return 0 if complete == cycles and not left else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        sys.exit(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200)))
