"""What a host that hangs does to the others, and how soon it is flagged and back.

    python benchmarks/hung_host.py [--hosts 8] [--seconds 15]

Starts that many sshd on loopback (needs openssh-server), opens them in one room, and stops one of
them with SIGSTOP. Prints the age of the other hosts' newest sample before and meanwhile, and the
times until the hung host was flagged, was given up and was live again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.model import LinkState
from backends.session import HostSession
from tests.sshd import SshLab, SshServer


async def until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Seconds until it held."""
    began_s = time.monotonic()
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return time.monotonic() - began_s


async def ages(sessions: Sequence[HostSession], seconds: float) -> list[float]:
    """Ages of the newest samples, looked at ten times a second."""
    found = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        await asyncio.sleep(0.1)
        for session in sessions:
            sampled_s = session.snapshot.sampled_s
            if sampled_s is not None:
                found.append(time.monotonic() - sampled_s)
    return found


def told(name: str, values: Sequence[float]) -> None:
    p95 = statistics.quantiles(values, n=20)[18]
    print(
        f"{name:<38} mean {statistics.fmean(values):6.3f} s   p95 {p95:6.3f} s   "
        f"max {max(values):6.3f} s"
    )


async def measure(hub: RoomHub, hung: SshServer, seconds: float) -> None:
    victim, *others = hub.sessions
    async with hub:
        await until(lambda: all(s.snapshot.sampled_s is not None for s in hub.sessions), 60)
        before = await ages(others, seconds)
        hung.freeze()
        try:
            during_task = asyncio.create_task(ages(others, seconds))
            flagged_s = await until(lambda: victim.snapshot.link.state is not LinkState.LIVE, 30)
            lost_s = flagged_s + await until(
                lambda: victim.snapshot.link.state in (LinkState.LOST, LinkState.CONNECTING), 30
            )
            during = await during_task
        finally:
            hung.thaw()
        back_s = await until(lambda: victim.snapshot.link.state is LinkState.LIVE, 90)
    told("sample age of the others, before", before)
    told("sample age of the others, meanwhile", during)
    change = statistics.fmean(during) / statistics.fmean(before) - 1
    print(f"{'change of the mean':<38} {change:+.1%}   (goal: within 10 %)")
    print(f"{'hung host flagged after':<38} {flagged_s:.2f} s   (goal: 10 s)")
    print(f"{'its connection given up after':<38} {lost_s:.2f} s")
    print(f"{'live again, by itself, after its return':<38} {back_s:.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUROOM_HOME"] = folder
        lab = SshLab(Path(folder) / "ssh")
        try:
            names = [f"host{number:02}" for number in range(arguments.hosts)]
            servers = [lab.server(name) for name in names]
            hub = RoomHub([HostConfig(name=name) for name in names], Config(ssh=lab.settings()))
            asyncio.run(measure(hub, servers[0], arguments.seconds))
        finally:
            lab.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
