"""How soon readiness and a crash are seen: `python benchmarks/server_watch.py [TIMES]`.

A small server is asked directly every 5 ms for its first good answer, and killed with SIGKILL; what
the watch says is compared with both moments.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from backends.servers.desk import ServerDesk
from backends.servers.lifecycle import ANSWERING, State
from backends.servers.profiles import Profile
from tests.servers_live.rooms import desk_of, is_state, quick_profile

SETTLED_S = 6.0
"""From its first good answer until nothing of its start is asked or read any more."""


async def first_answer(port: int) -> float:
    """When the server first answered."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            if b"200" in await reader.readline():
                writer.close()
                return time.monotonic()
        except OSError:
            pass
        await asyncio.sleep(0.005)


async def cost(desk: ServerDesk, profile: Profile, seconds: float = 15.0) -> None:
    """Print what the agent works while a ready server is watched, and while none is."""
    agent = desk.host.snapshot.agent
    assert agent is not None

    async def share_pct() -> float:
        before = cpu_s(agent.pid)
        await asyncio.sleep(seconds)
        return (cpu_s(agent.pid) - before) / seconds * 100

    run = await desk.start(profile)
    alone_pct = await share_pct()
    async with await desk.watch(run, profile) as watch:
        await watch.until(is_state(*ANSWERING), 60)
        await asyncio.sleep(SETTLED_S)
        watched_pct = await share_pct()
    await desk.stop(run)
    print(f"agent: {watched_pct:.2f} % of a core with a server watched, {alone_pct:.2f} % without")


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, to the nanosecond: its clock, as Linux numbers them."""
    return time.clock_gettime((~pid << 3) | 2)


async def measure(times: int) -> None:
    """Print both figures, the worst of all times."""
    ready, crash = [], []
    profile = quick_profile("watched", "--delay", "1.5")
    async with desk_of(profile) as desk:
        for _ in range(times):
            run = await desk.start(profile)
            async with await desk.watch(run, profile) as watch:
                answer = asyncio.create_task(first_answer(profile.port or 0))
                await watch.until(is_state(*ANSWERING), 60)
                seen_s = time.monotonic()
                ready.append(seen_s - await answer)
                killed_s = time.monotonic()
                os.kill(run.pid or 0, signal.SIGKILL)
                await watch.until(is_state(State.CRASHED), 60)
                crash.append(time.monotonic() - killed_s)
        await cost(desk, profile)
    for name, figures in (("readiness", ready), ("crash", crash)):
        median = sorted(figures)[len(figures) // 2]
        print(f"{name} seen after {median:.2f} s (median), {max(figures):.2f} s (worst of {times})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
