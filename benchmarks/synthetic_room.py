"""A room on synthetic hosts, for `room_paint.py`: real decoding, history and screens, no network.

    python benchmarks/synthetic_room.py GPUS RATE_HZ SECONDS REPORT

Feeds `GPUS` cards at `RATE_HZ` (0: one sample, then silence), leaves after `SECONDS` and writes
CPU seconds, samples and frames to the file REPORT.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from backends.clock import SYSTEM_CLOCK
from backends.config import HostConfig
from backends.feeds import Journal, Ring
from backends.link.base import Prompter
from backends.model import (  # fmt: skip
    GPU_READINGS,
    HOST_READINGS,
    Alert,
    HostSnapshot,
    Lane,
    LinkState,
    LinkStatus,
)
from backends.telemetry.decode import Telemetry
from backends.telemetry.history import History
from tui.app import RoomApp
from tui.room import HostView, RoomHub
from tui.shell import Shell
from tui.themes import choose, make_look

GIB = 2**30
STEADY = {
    "power_limit_enforced_w": 600.0, "memory_used_bytes": 81 * GIB, "event_reasons": 0,
    "pcie_generation": 5, "pcie_width": 16, "performance_state": 1, "memory_clock_mhz": 13365,
    "memory_total_bytes": 96 * GIB, "power_limit_default_w": 600.0, "power_limit_max_w": 600.0,
    "sm_clock_max_mhz": 3090, "pcie_width_max": 16, "pcie_generation_max": 5,
    "temperature_margin_c": 24.0, "mig_enabled": False,
}  # fmt: skip


def keys_of(lane: Lane, readings: tuple[object, ...]) -> list[str]:
    """The columns of a lane."""
    return [spec.key for spec in readings if spec.lane is lane]  # type: ignore[attr-defined]


class Session:
    """One synthetic host."""

    def __init__(self, name: str, gpus: int) -> None:
        self.config = HostConfig(name=name)
        self.read_only = False
        self.telemetry = Telemetry(name, SYSTEM_CLOCK)
        self._rng = random.Random(1)
        self._power = [self._rng.uniform(400, 590) for _ in range(gpus)]
        self._clock = [self._rng.randint(2400, 2700) for _ in range(gpus)]
        self._temperature = [self._rng.uniform(55, 70) for _ in range(gpus)]
        self._snapshot: HostSnapshot | None = None
        self.samples = 0
        self.columns = {
            "fast": {
                "g": keys_of(Lane.FAST, GPU_READINGS),
                "h": keys_of(Lane.FAST, HOST_READINGS),
            },
            "slow": {
                "g": keys_of(Lane.SLOW, GPU_READINGS),
                "h": keys_of(Lane.SLOW, HOST_READINGS),
            },
        }
        tell = self.telemetry.notify
        tell("hello", {"boot_id": "b", "hostname": name, "columns": self.columns})
        tell("driver", {"state": "ok", "version": "580.95.05"})
        once = {key: STEADY[key] for key in keys_of(Lane.ONCE, GPU_READINGS) if key in STEADY}
        tell("gpus", {"gpus": [
            {"uuid": f"GPU-{i:04x}", "index": i, "name": "NVIDIA RTX PRO 6000", "bus_id": f"{i}",
             "once": once}
            for i in range(gpus)
        ]})  # fmt: skip
        self.sample()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def version(self) -> int:
        return self.telemetry.version

    @property
    def history(self) -> History:
        return self.telemetry.history

    @property
    def snapshot(self) -> HostSnapshot:
        if self._snapshot is None or self._snapshot.version != self.version:
            link = LinkStatus(LinkState.LIVE, 0.0, "ssh", "agent")
            self._snapshot = self.telemetry.snapshot(link, 1.0, self.version)
        return self._snapshot

    def _gpu(self, index: int, keys: list[str]) -> list[object]:
        moving = {
            "power_w": round(self._power[index], 1),
            "power_average_w": round(self._power[index] - 2, 1),
            "sm_clock_mhz": self._clock[index],
            "temperature_gpu_c": int(self._temperature[index]),
            "temperature_memory_c": int(self._temperature[index]) + 10,
            "utilization_gpu_pct": self._rng.choice((97, 98, 98, 99)),
            "utilization_memory_pct": self._rng.choice((41, 42)),
        }
        return [moving.get(key, STEADY.get(key)) for key in keys]

    def sample(self) -> None:
        """Every card draws a little more or less than before, as busy cards do."""
        rng = self._rng
        for i in range(len(self._power)):
            self._power[i] = min(600.0, max(300.0, self._power[i] + rng.gauss(0, 6)))
            self._clock[i] = min(2700, max(2300, self._clock[i] + 15 * rng.randint(-1, 1)))
            self._temperature[i] = min(80.0, max(50.0, self._temperature[i] + rng.gauss(0, 0.2)))
        now = time.monotonic_ns()
        for lane in ("fast", *(("slow",) if self.samples % 5 == 0 else ())):
            g, h = self.columns[lane]["g"], self.columns[lane]["h"]
            host = {"cpu_pct": rng.choice((22.0, 23.0)), "memory_used_bytes": 200 * GIB}
            self.telemetry.notify(lane, {
                "t": now,
                "g": [self._gpu(i, g) for i in range(len(self._power))],
                "h": [host.get(key) for key in h],
            })  # fmt: skip
        self.samples += 1

    async def set_interval(self, seconds: float) -> float:
        return seconds

    def retry_now(self) -> None:
        pass

    def unlock(self) -> None:
        pass


class Hub:
    """A hub of one synthetic host; also what makes it."""

    def __init__(self, session: Session, rate_hz: float) -> None:
        self._session = session
        self._rate_hz = rate_hz
        self._task: asyncio.Task[None] | None = None
        self.sessions: list[HostView] = [session]
        self.journal = Journal()
        self.alerts: Ring[Alert] = Ring(10)
        self.started_cpu_s = 0.0
        self.started_samples = 0

    @property
    def version(self) -> int:
        return self._session.version

    async def start(self) -> None:
        if self._rate_hz:
            self._task = asyncio.create_task(self._feed())

    async def _feed(self) -> None:
        due = time.monotonic()
        while True:
            due += 1 / self._rate_hz
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._session.sample()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def prepare(self) -> None:
        pass

    def __call__(self, prompter: Prompter) -> RoomHub:
        return self


def main() -> int:
    gpus, rate_hz, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    session = Session("gpu01", gpus)
    hub = Hub(session, rate_hz)
    app = RoomApp(Shell(make_look(choose("auto"), ascii_set=False), [session.config]), hub)
    before: list[float] = []

    def begin() -> None:
        before.extend((time.process_time(), session.samples, app.pump.frames))

    def end() -> None:
        report = {
            "cpu_s": time.process_time() - before[0],
            "samples": session.samples - before[1],
            "frames": app.pump.frames - before[2],
        }
        Path(sys.argv[4]).write_text(json.dumps(report))
        app.exit(0)

    app.call_later(app.set_timer, 1.0, begin)
    app.call_later(app.set_timer, 1.0 + seconds, end)
    app.run()
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
