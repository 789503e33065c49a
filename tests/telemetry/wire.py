"""Messages of an agent, as tests send them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from backends.clock import ManualClock
from backends.model import GPU_READINGS, HOST_READINGS, HostSnapshot, Lane, LinkState, LinkStatus
from backends.telemetry.decode import Telemetry

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LIVE = LinkStatus(LinkState.LIVE, 0.0, transport="ssh", via="agent")

COLUMNS = {
    name: {
        "g": [spec.key for spec in GPU_READINGS if spec.lane is lane],
        "h": [spec.key for spec in HOST_READINGS if spec.lane is lane],
    }
    for name, lane in (("fast", Lane.FAST), ("slow", Lane.SLOW), ("pcie", Lane.PCIE))
}


def hello(**changes: Any) -> dict[str, Any]:
    return {
        "python": "3.11.2",
        "pid": 4711,
        "user": "root",
        "hostname": "gpu01",
        "boot_id": "b-1",
        "has_psutil": False,
        "nvml_version": "13.0",
        "methods": ["ping"],
        "columns": COLUMNS,
    } | changes


def gpu_entry(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{index}",
        "index": index,
        "name": "Test card",
        "bus_id": f"00000000:0{index}:00.0",
        "once": {"power_limit_max_w": 600.0, "pcie_width_max": 16, "pcie_generation_max": 5},
        "absent": {},
    } | changes


def row(lane: str, side: str = "g", **values: Any) -> list[Any]:
    unknown = set(values) - set(COLUMNS[lane][side])
    assert not unknown, unknown
    return [values.get(key) for key in COLUMNS[lane][side]]


class Host:
    """A host that says what a test wants, at the test's own time."""

    def __init__(self, gpus: int = 2, hello_changes: dict[str, Any] | None = None) -> None:
        self.clock = ManualClock(START, 1000.0)
        self.telemetry = Telemetry("gpu01", self.clock)
        self.boot_s = 500.0
        self.version = 0
        self.say("hello", hello(**(hello_changes or {})))
        self.say("driver", {"state": "ok", "version": "580.1", "cuda_version": "13.0"})
        self.say("gpus", {"gpus": [gpu_entry(i) for i in range(gpus)]})

    def say(self, method: str, params: Any) -> bool:
        return self.telemetry.notify(method, params)

    @property
    def t(self) -> int:
        """The host's stamp of this moment."""
        return int((self.clock.monotonic_s() - self.boot_s) * 1e9)

    def sample(
        self, lane: str, rows: list[Any], h: list[Any] | None = None, late_s: float = 0.0
    ) -> bool:
        t = self.t
        self.clock.advance(late_s)
        return self.say(lane, {"t": t, "g": rows, "h": h})

    def fast(self, *gpus: dict[str, Any] | None, step_s: float = 1.0) -> None:
        """One fast sample, then time goes on."""
        rows = [None if values is None else row("fast", **values) for values in gpus]
        assert self.sample("fast", rows)
        self.clock.advance(step_s)

    def slow(self, *gpus: dict[str, Any] | None) -> None:
        rows = [None if values is None else row("slow", **values) for values in gpus]
        assert self.sample("slow", rows)

    def snapshot(self, link: LinkStatus = LIVE) -> HostSnapshot:
        self.version += 1
        return self.telemetry.snapshot(link, 1.0, self.version)
