"""A room without hosts: snapshots made up here, a clock that stands still."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from textual.app import App
from textual.pilot import Pilot

from backends.clock import ManualClock
from backends.config import HostConfig
from backends.feeds import Journal, JournalEntry, Ring
from backends.link.base import Prompter
from backends.model import (
    AgentInfo,
    Alert,
    DriverState,
    DriverStatus,
    GpuProcess,
    GpuReadings,
    GpuState,
    GpuStatus,
    HostReadings,
    HostSnapshot,
    Lane,
    LinkState,
    LinkStatus,
    Severity,
    Verdict,
)
from backends.telemetry.history import TOTAL, History
from tui.app import RoomApp
from tui.room import HostView, RoomHub
from tui.shell import Shell
from tui.themes import make_look

START = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
GIB = 2**30


def make_clock() -> ManualClock:
    """A clock at a fixed time."""
    return ManualClock(START, 10_000.0)


def gpu(index: int, **changes: object) -> GpuStatus:
    """A busy 600 W card."""
    power_w = 560.0 - 7 * (index * 5 % 11)
    readings = GpuReadings(
        power_w=power_w,
        power_average_w=power_w - 4,
        power_limit_enforced_w=600.0,
        utilization_gpu_pct=float(98 - index % 3),
        utilization_memory_pct=float(41 + index % 5),
        memory_used_bytes=81 * GIB + index * GIB // 4,
        memory_total_bytes=96 * GIB,
        temperature_gpu_c=61.0 + index % 7,
        temperature_memory_c=74.0 + index % 5,
        temperature_margin_c=26.0 - index % 7,
        sm_clock_mhz=2617 - 15 * (index % 4),
        sm_clock_max_mhz=3090,
        memory_clock_mhz=13365,
        memory_clock_max_mhz=14001,
        event_reasons=0,
        pcie_generation=5,
        pcie_width=16,
        pcie_generation_max=5,
        pcie_width_max=16,
        performance_state=1,
        energy_j=1.25e9,
        power_limit_default_w=600.0,
        power_limit_min_w=150.0,
        power_limit_max_w=600.0,
        ecc_enabled=True,
        ecc_corrected_count=0,
        ecc_uncorrected_count=0,
        mig_enabled=False,
        persistence_enabled=True,
        compute_mode="Default",
        architecture="Blackwell",
        compute_capability="12.0",
    )
    fields: dict[str, object] = {"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}
    own = {k: changes.pop(k) for k in tuple(changes) if k in GpuStatus.__dataclass_fields__}
    fields.update(own)
    return GpuStatus(
        uuid=f"GPU-{index:08x}",
        index=index,
        bus_id=f"0000:{index + 1:02x}:00.0",
        readings=replace(readings, **changes),  # type: ignore[arg-type]
        absent={
            "fan_pct": "not supported by this card",
            "nvlink_links_total": "this card has no NVLink",
        },
        read_s={Lane.FAST: 9_999.8, Lane.SLOW: 9_998.0, Lane.ONCE: 9_000.0},
        **fields,  # type: ignore[arg-type]
    )


def mixed_gpus() -> list[GpuStatus]:
    """Eight cards in eight states."""
    return [
        gpu(0),
        gpu(1, held_pct={"power_cap": 37.0}, event_reasons=4, power_w=598.0),
        gpu(2, power_w=87.0, utilization_gpu_pct=100.0),
        gpu(3, state=GpuState.LOST, state_detail="fell off the bus (Xid 79)", **_nothing()),
        gpu(4, pcie_width=4, power_w=311.0),
        gpu(5, held_pct={"thermal": 61.0}, temperature_gpu_c=91.0, temperature_margin_c=1.0),
        gpu(6, power_w=14.0, utilization_gpu_pct=0.0, memory_used_bytes=0, sm_clock_mhz=180),
        gpu(7, mig_enabled=True, utilization_gpu_pct=None, utilization_memory_pct=None),
    ]


def _nothing() -> dict[str, None]:
    return dict.fromkeys(GpuReadings.__dataclass_fields__)


def mixed_verdicts() -> tuple[Verdict, ...]:
    """Verdicts that go with `mixed_gpus`."""
    words = (
        (0, "BUSY", Severity.INFO, "560 of 600 W"),
        (1, "CAPPED", Severity.WARNING, "held by the power cap for 37 % of the last minute"),
        (2, "SPINNING", Severity.WARNING, "100 % busy at 87 of 600 W"),
        (3, "LOST", Severity.CRITICAL, "Xid 79"),
        (4, "DOWN-TRAINED", Severity.WARNING, "x4 of x16"),
        (5, "HOT", Severity.CRITICAL, "1 degree below slowdown"),
        (6, "IDLE", Severity.INFO, "14 W, no process"),
    )
    return tuple(
        Verdict(word, severity, evidence, "look at it", f"GPU-{index:08x}")
        for index, word, severity, evidence in words
    )


def processes(count: int) -> tuple[GpuProcess, ...]:
    """One server over all cards, and a stray one on the first."""
    server = GpuProcess(
        4242, 777, "infer", "/opt/venv/bin/python -m sglang.launch_server --model-path "
        "/models/GLM-5.2-NVFP4 --tp 8",
        {f"GPU-{i:08x}": 80 * GIB for i in range(count)},
        model="/models/GLM-5.2-NVFP4", container="ct129", cpu_pct=812.0,
        started=START - timedelta(hours=3),
    )  # fmt: skip
    stray = GpuProcess(991, None, None, "pid 991", {"GPU-00000000": GIB}, visible=False)
    return (server, stray)


def link(state: LinkState = LinkState.LIVE, **changes: object) -> LinkStatus:
    """A link in a state."""
    return replace(LinkStatus(state, 9_000.0, "ssh", "agent"), **changes)  # type: ignore[arg-type]


def snapshot(
    host: str, gpus: Sequence[GpuStatus], version: int = 1, **changes: object
) -> HostSnapshot:
    """A live host."""
    base = HostSnapshot(
        host=host,
        version=version,
        link=link(),
        interval_s=1.0,
        agent=AgentInfo("3.11.2", 7000, "root", host, "boot-1", True, "580.95.05"),
        driver=DriverStatus(DriverState.OK, "580.95.05", "13.0", since_s=9_000.0),
        gpus=tuple(gpus),
        processes=processes(len(gpus)),
        processes_listed=True,
        readings=HostReadings(
            cpu_pct=23.0, memory_used_bytes=212 * GIB, load_1m=14.2, load_5m=13.9, load_15m=12.8,
            memory_total_bytes=1008 * GIB, swap_used_bytes=0, swap_total_bytes=8 * GIB,
            disk_read_bytes_per_s=1.5e6, disk_write_bytes_per_s=2.5e5,
            network_rx_bytes_per_s=3.1e6, network_tx_bytes_per_s=9.4e6, uptime_s=1_036_800.0,
            cpu_count=128, cpu_model="AMD EPYC 9575F 64-Core Processor", kernel="6.14.11-4-pve",
            boot_id="boot-1",
        ),
        sampled_s=9_999.8,
        sampled_at=START,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def filled_history(
    gpus: Sequence[GpuStatus], now_s: float = 10_000.0, seconds: int = 3600
) -> History:
    """A smooth hour, with a gap five minutes ago."""
    history = History()
    for step in range(0, seconds, 1 if seconds <= 600 else 5):
        at_s = now_s - seconds + step
        if now_s - 330 < at_s < now_s - 300:
            continue
        wave = 0.75 + 0.2 * math.sin(at_s / 40) + 0.05 * math.sin(at_s / 7)
        power = 0.0
        for card in gpus:
            if card.state is not GpuState.OK:
                continue
            power += 600 * wave
            history.record(
                card.uuid, at_s,
                {
                    "power_w": 600 * wave, "utilization_gpu_pct": 100 * wave,
                    "utilization_memory_pct": 50 * wave, "memory_used_bytes": 81 * GIB,
                    "temperature_gpu_c": 50 + 20 * wave, "sm_clock_mhz": 2600 * wave,
                    "memory_clock_mhz": 13365,
                },
                5.0,
            )  # fmt: skip
        history.record(
            TOTAL, at_s,
            {"power_w": power, "utilization_gpu_pct": 100 * wave,
             "memory_used_bytes": 81 * GIB * len(gpus), "cpu_pct": 30 * wave,
             "host_memory_used_bytes": 212 * GIB},
            5.0,
        )  # fmt: skip
    return history


class FakeSession:
    """A host that does what the test says."""

    def __init__(
        self, config: HostConfig, first: HostSnapshot, history: History | None = None
    ) -> None:
        self.config = config
        self.snapshot = first
        self.history = history or History()
        self.read_only = config.production
        self.asked: list[tuple[str, object]] = []
        self.asked_by: list[str] = []
        self.fail_with: Exception | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def version(self) -> int:
        return self.snapshot.version

    def put(self, **changes: object) -> None:
        """The next snapshot."""
        changes.setdefault("version", self.snapshot.version + 1)
        self.snapshot = replace(self.snapshot, **changes)  # type: ignore[arg-type]

    async def set_interval(self, seconds: float, *, asked_by: str) -> float:
        if self.fail_with is not None:
            raise self.fail_with
        self.asked.append(("set_interval", seconds))
        self.asked_by.append(asked_by)
        self.put(interval_s=seconds)
        return seconds

    def retry_now(self) -> None:
        self.asked.append(("retry_now", None))

    def unlock(self, *, asked_by: str) -> None:
        self.asked_by.append(asked_by)
        self.asked.append(("unlock", None))
        self.read_only = False


class FakeHub:
    """A hub of fake sessions."""

    def __init__(self, sessions: Sequence[FakeSession]) -> None:
        self._sessions = {session.config.name: session for session in sessions}
        self.journal = Journal()
        self.alerts: Ring[Alert] = Ring(500)
        self.closed = False

    @property
    def sessions(self) -> list[HostView]:
        return list(self._sessions.values())

    @property
    def version(self) -> int:
        own = self.journal.version + self.alerts.version
        return own + sum(session.version for session in self._sessions.values())

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.closed = True

    def host(self, name: str) -> FakeSession:
        """A session with its fake's own methods."""
        return self._sessions[name]

    def note(self, what: str, result: str = "ok", asked_by: str = "room") -> None:
        """An entry in the journal."""
        self.journal.add(
            JournalEntry(START, "gpu01", asked_by, what, '{"method": "ping"}', False, result, 0.012)
        )

    def alert(self, title: str, severity: Severity = Severity.WARNING) -> None:
        """An alert."""
        self.alerts.append(Alert(START, "gpu01", severity, title, "what was seen"))


class FakeMaker:
    """Hands a fake hub to the application."""

    def __init__(self, hub: FakeHub) -> None:
        self.hub = hub
        self.prompter: Prompter | None = None

    def prepare(self) -> None:
        pass

    def __call__(self, prompter: Prompter) -> RoomHub:
        self.prompter = prompter
        return self.hub


def make_hub(*, gpus: Sequence[GpuStatus] | None = None, hosts: int = 3) -> FakeHub:
    """A live host in eight states, one in production that is lost, one that refuses."""
    cards = list(mixed_gpus() if gpus is None else gpus)
    first = FakeSession(
        HostConfig(name="gpu01"),
        snapshot("gpu01", cards, verdicts=mixed_verdicts() if gpus is None else ()),
        filled_history(cards[:16]),
    )
    four = [gpu(index) for index in range(4)]
    lost = link(LinkState.LOST, error="no answer to keepalives", retry_at_s=10_030.0, attempt=3)
    second = FakeSession(
        HostConfig(name="gpu02", production=True, labels=("rtx6000", "lab")),
        snapshot("gpu02", four, link=lost, sampled_s=9_988.0),
        filled_history(four),
    )
    refused = link(
        LinkState.REFUSED,
        error="The host key of gpu03 has changed",
        hint="If the host was installed anew: ssh-keygen -R gpu03. Else somebody is in between.",
    )
    third = FakeSession(
        HostConfig(name="gpu03"),
        snapshot("gpu03", [], link=refused, driver=None, sampled_s=None, processes=()),
    )
    return FakeHub([first, second, third][:hosts])


def make_app(
    hub: FakeHub,
    *,
    theme: str = "dark",
    ascii_set: bool = False,
    clock: ManualClock | None = None,
    keymap: Mapping[str, str] | None = None,
    **shell_changes: object,
) -> RoomApp:
    """The application on a fake hub, with a clock that stands still."""
    shell = Shell(
        make_look(theme, ascii_set=ascii_set),
        [session.config for session in hub.sessions],
        clock=clock or make_clock(),
        **shell_changes,  # type: ignore[arg-type]
    )
    return RoomApp(shell, FakeMaker(hub), keymap=keymap)


async def ready(pilot: Pilot[int]) -> None:
    """Wait until the hub is there and its first frame drawn."""
    app = pilot.app
    assert isinstance(app, RoomApp)
    for _ in range(200):
        await pilot.pause(0.02)
        if app.shell.hub is not None:
            break
    await app.workers.wait_for_complete()
    app.pump.draw(force=True)
    await pilot.pause()


async def drawn(pilot: Pilot[int]) -> None:
    """Draw what is new now, without waiting for the pump's timer."""
    await pilot.pause()
    app = pilot.app
    assert isinstance(app, RoomApp)
    await app.workers.wait_for_complete()
    while any(not worker.is_finished for worker in app.workers):  # that those have started
        await app.workers.wait_for_complete()
        await pilot.pause()
    app.pump.draw()
    await pilot.pause()


async def shown(pilot: Pilot[int], test: Callable[[str], bool]) -> str:
    """Draw until the screen's text is what is waited for; gives it.

    A key goes from widget to widget before its action begins, and that may take its time.
    """
    deadline_s = time.monotonic() + 60
    while True:
        await drawn(pilot)
        text = screen_text(pilot.app)
        if test(text):
            return text
        assert time.monotonic() < deadline_s, text


def screen_text(app: App[int]) -> str:
    """Every line of the screen on top."""
    size = app.size
    update = app.screen._compositor.render_strips(size)
    return "\n".join("".join(segment.text for segment in strip) for strip in update)
