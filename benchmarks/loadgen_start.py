"""How soon a load begins, here and over SSH, and how soon a client that limits says so.

    python benchmarks/loadgen_start.py [--rounds 5]

Against the server with a known schedule. Start: from carrying a checked run out to its first
request, over SSH through a real sshd on loopback with the room's connection open. Flagged: a worker
is held for 0.6 s (SIGSTOP) under 8 streams; from then to the first word that the client limits.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.bench.endpoint import direct
from backends.bench.place import Place, beside
from backends.bench.process import LocalGenerator
from backends.bench.results import RunStatus
from backends.bench.runner import Run, prepare_run
from backends.bench.samples import read_records
from backends.config import Config, HostConfig
from backends.hub import RoomHub
from tests.bench.conftest import Scheduled, closed, held_up, serve
from tests.sshd import SshLab

DEADLINE_S = 60.0


async def first_request_s(there: Place | None, scheduled: Scheduled, folder: Path) -> float:
    """From the call to the first request that was sent."""
    endpoint = scheduled.endpoint() if there is None else there.endpoint
    fetch = direct(endpoint) if there is None else there.fetch
    generator = LocalGenerator() if there is None else there.generator
    prepared = await prepare_run(closed(4, 8), endpoint, fetch)
    run = Run(prepared, generator, fetch, folder=folder)
    begun = time.time()
    result = await run.execute()
    if result.status is not RunStatus.COMPLETE or result.epoch_unix_s is None:
        raise SystemExit(f"the run did not end: {result.error}")
    sent = [r.sent_s for r in read_records(result.run_id, folder) if r.sent_s is not None]
    return result.epoch_unix_s + min(sent) - begun


async def measure(rounds: int, lab: SshLab, scheduled: Scheduled, folder: Path) -> None:
    """All three, and print them."""
    lab.server()
    host = HostConfig(name="gpu01", target="gpu01", python=sys.executable)
    took: dict[str, list[float]] = {"start, here": [], "start, over SSH": [], "flagged": []}
    async with RoomHub([host], Config(ssh=lab.settings())) as hub:
        session = hub.session("gpu01")
        async with asyncio.timeout(DEADLINE_S):
            while session.snapshot.sampled_s is None:  # noqa: ASYNC110 - the room is polled
                await asyncio.sleep(0.02)
        for _ in range(rounds):  # interleaved, so that a busy moment hits all of them
            took["start, here"].append(await first_request_s(None, scheduled, folder))
            there = beside(session, scheduled.endpoint(), "benchmark", sys.executable)
            took["start, over SSH"].append(await first_request_s(there, scheduled, folder))
            flagged_s, _ = await held_up(scheduled, DEADLINE_S)
            took["flagged"].append(flagged_s)
    print(f"{'what':<18}{'median s':>10}{'max s':>8}")
    for name, values in took.items():
        print(f"{name:<18}{statistics.median(values):>10.2f}{max(values):>8.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, serve() as scheduled:
        folder = Path(name)
        lab = SshLab(folder / "ssh")
        try:
            asyncio.run(measure(arguments.rounds, lab, scheduled, folder / "runs"))
        finally:
            lab.close()


if __name__ == "__main__":
    main()
