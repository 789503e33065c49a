"""What one sample costs: parse, decode, store, snapshot with verdicts; and what histories take.

    python benchmarks/sample_cost.py [--samples N]

Prints CPU time (not wall time) per sample of 8 GPUs, the same for 32 hosts at 1 Hz as a share of a
core, and the memory of 32 hosts with 8 GPUs each and full histories. Drawing and transport are
measured elsewhere.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from backends.clock import ManualClock
from backends.model import GPU_READINGS, HOST_READINGS, Lane, LinkState, LinkStatus
from backends.telemetry.decode import Telemetry
from backends.telemetry.history import TOTAL, Window

GPUS = 8
HOSTS = 32
LANES = {"fast": Lane.FAST, "slow": Lane.SLOW, "pcie": Lane.PCIE}
COLUMNS = {
    name: {
        "g": [spec for spec in GPU_READINGS if spec.lane is lane],
        "h": [spec for spec in HOST_READINGS if spec.lane is lane],
    }
    for name, lane in LANES.items()
}
LIVE = LinkStatus(LinkState.LIVE, 0.0, transport="ssh", via="agent", round_trip_s=0.02)


def host(clock: ManualClock) -> Telemetry:
    """A host that has said hello."""
    telemetry = Telemetry("bench", clock)
    columns = {
        name: {side: [spec.key for spec in specs] for side, specs in sides.items()}
        for name, sides in COLUMNS.items()
    }
    telemetry.notify("hello", {"boot_id": "b", "columns": columns})
    telemetry.notify("driver", {"state": "ok"})
    gpus = [{"uuid": f"GPU-{i}", "index": i, "name": "Card", "bus_id": ""} for i in range(GPUS)]
    telemetry.notify("gpus", {"gpus": gpus})
    return telemetry


def line(lane: str, t: int, rng: random.Random) -> bytes:
    """One sample as it comes over the wire, with values of plausible size."""
    sizes = {"B": 8e10, "W": 500.0, "us": 1e9, "bits": 4, "J": 1e8}

    def row(specs: list[Any]) -> list[Any]:
        return [int(sizes.get(spec.unit, 40) * rng.uniform(0.5, 1.0)) for spec in specs]

    rows = [row(COLUMNS[lane]["g"]) for _ in range(GPUS)]
    params = {"t": t, "g": rows, "h": row(COLUMNS[lane]["h"])}
    message = {"jsonrpc": "2.0", "method": lane, "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def feed(
    telemetry: Telemetry, clock: ManualClock, samples: int, snapshots: bool
) -> tuple[float, float, int]:
    """CPU seconds of parsing and storing, of snapshots, and the bytes of a fast line."""
    rng = random.Random(1)
    decoder = msgspec.json.Decoder()
    store_s = snapshot_s = 0.0
    size = 0
    for number in range(samples):
        clock.advance(1.0)
        t = int(clock.monotonic_s() * 1e9)
        lines = [line("fast", t, rng)] + ([line("slow", t, rng)] if number % 5 == 0 else [])
        size = len(lines[0])
        start = time.process_time()
        for text in lines:
            message = decoder.decode(text)
            assert telemetry.notify(message["method"], message["params"])
        middle = time.process_time()
        store_s += middle - start
        if snapshots:
            telemetry.snapshot(LIVE, 1.0, number)
            snapshot_s += time.process_time() - middle
    return store_s, snapshot_s, size


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=1000)
    samples = parser.parse_args().samples

    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC), 10_000.0)
    telemetry = host(clock)
    feed(telemetry, clock, 100, snapshots=True)
    store_s, snapshot_s, size = feed(telemetry, clock, samples, snapshots=True)
    store_ms, snapshot_ms = (1000 * seconds / samples for seconds in (store_s, snapshot_s))
    print(f"a sample of {GPUS} GPUs, {size} B of fast lane, a slow one every five; CPU time")
    print(f"  parse, decode, store in history   {store_ms:6.3f} ms   (goal: well under 1 ms)")
    print(f"  snapshot with verdicts            {snapshot_ms:6.3f} ms")
    share = 100 * HOSTS * (store_ms + snapshot_ms) / 1000
    print(
        f"  {HOSTS} hosts at 1 Hz, all of this     {share:6.2f} % of a core   (goal with rest: 20)"
    )

    start = time.process_time()
    for _ in range(100):
        for window in Window:
            telemetry.history.series(TOTAL, "power_w", window, 200, clock.monotonic_s())
    drawn_ms = 1000 * (time.process_time() - start) / 300
    print(f"  a series of 200 points            {drawn_ms:6.3f} ms")

    tracemalloc.start()
    hosts = [host(clock) for _ in range(HOSTS)]
    for one in hosts:
        feed(one, clock, 10, snapshots=False)
    used_mib = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    print(f"memory of {HOSTS} hosts x {GPUS} GPUs, all histories allocated: {used_mib:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
