"""From an agent's notifications to what is known of a host.

`Telemetry` is fed one notification after another and asked for a snapshot whenever somebody looks.
Nothing that a host sends makes it raise: what cannot be understood is counted and dropped, the
rest of the message counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backends import verdicts
from backends.alerts import Steady
from backends.clock import Clock
from backends.model import (
    AgentInfo,
    DriverState,
    DriverStatus,
    GpuProcess,
    GpuState,
    HostReadings,
    HostSnapshot,
    KernelEvent,
    Lane,
    LinkStatus,
)
from backends.telemetry import wire
from backends.telemetry.cells import GPU_CELLS, HOST_CELLS, Cell, Value
from backends.telemetry.gpu import Gpu, absent_reasons
from backends.telemetry.history import TOTAL, History
from backends.telemetry.host_clock import HostClock
from backends.text import clean

MAX_KERNEL_EVENTS: Final = 200
MAX_NOTES: Final = 20
_LANES: Final = {"fast": Lane.FAST, "slow": Lane.SLOW, "pcie": Lane.PCIE}


class Telemetry:
    """All that a host has told, folded into its newest state and its history.

    Attributes:
        history: The past of the host and its GPUs.
        malformed_count: Messages and values that could not be understood.
        version: Grows with every notification that was understood.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self.host = host
        self.history = History()
        self.malformed_count = 0
        self.version = 0
        self._clock = clock
        self._host_clock = HostClock()
        self._interval_s = 1.0
        self._columns: dict[Lane, tuple[list[Cell | None], list[Cell | None]]] = {}
        self._gpus: dict[str, Gpu] = {}
        self._order: list[Gpu | None] = []
        self._aliases: dict[str, str] = {}
        self._agent: AgentInfo | None = None
        self._driver: DriverStatus | None = None
        self._processes: tuple[GpuProcess, ...] = ()
        self._processes_listed = False
        self._host_values: dict[str, Value] = {}
        self._host_absent: dict[str, str] = {}
        self._host_refused: dict[str, str] = {}
        self._host_lanes: set[Lane] = set()
        self._kernel_events: deque[KernelEvent] = deque(maxlen=MAX_KERNEL_EVENTS)
        self._notes: list[str] = []
        self._sampled_s: float | None = None
        self._sampled_at: datetime | None = None
        self._steady = Steady()
        self._handlers: dict[str, Callable[[object], bool]] = {
            "hello": self._hello,
            "gpus": self._gpu_list,
            "absent": self._absent,
            "gpu_state": self._gpu_state,
            "driver": self._driver_changed,
            "processes": self._process_list,
            "kernel": self._kernel,
            "note": self._note,
        }

    def notify(self, method: str, params: object) -> bool:
        """Take one notification; False where nothing could be made of it."""
        if method in _LANES:
            understood = self._sample(_LANES[method], params)
        else:
            handler = self._handlers.get(method)
            if handler is None:
                return False  # a newer agent may say more than we know
            understood = handler(params)
        if understood:
            self.version += 1
        else:
            self.malformed_count += 1
        return understood

    def round_trip(self, seconds: float) -> None:
        """Take the time that a heartbeat took, there and back."""
        self._host_clock.observe_round_trip(seconds, self._clock.monotonic_s())

    def snapshot(self, link: LinkStatus, interval_s: float, version: int) -> HostSnapshot:
        """Everything that is known now.

        Args:
            link: The way to the host now.
            interval_s: Between fast samples, as granted by the host.
            version: Of the snapshot.
        """
        self._interval_s = interval_s
        if link.round_trip_s is not None:
            self.round_trip(link.round_trip_s)
        host_values = self._host_values
        snapshot = HostSnapshot(
            host=self.host,
            version=version,
            link=link,
            interval_s=interval_s,
            agent=self._agent,
            driver=self._driver,
            gpus=tuple(gpu.status(self._here_s) for gpu in self._in_order()),
            processes=self._processes,
            processes_listed=self._processes_listed,
            readings=HostReadings(**host_values),  # type: ignore[arg-type]
            absent=absent_reasons(
                HOST_CELLS,
                host_values,
                self._host_absent,
                self._host_refused,
                self._host_lanes,
                self._columns_of_host(),
            ),
            sampled_s=self._sampled_s,
            sampled_at=self._sampled_at,
            kernel_events=tuple(self._kernel_events),
            notes=tuple(self._notes),
        )
        now_s = self._clock.monotonic_s()
        due = verdicts.judge(snapshot, now_s)
        stale = verdicts.is_stale(snapshot, now_s)
        return replace(snapshot, verdicts=self._steady.update(due, now_s, stale=stale))

    def gpu_uuids(self) -> tuple[str, ...]:
        """Every GPU that was ever seen here, in the order of their indices."""
        return tuple(gpu.uuid for gpu in self._in_order())

    def _in_order(self) -> list[Gpu]:
        return sorted(self._gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))

    def _here_s(self, host_ns: int) -> float:
        here_s = self._host_clock.here_s(host_ns)
        now_s = self._clock.monotonic_s()
        return now_s if here_s is None else min(here_s, now_s)

    def _columns_of_host(self) -> set[str]:
        return {cell.key for _, h in self._columns.values() for cell in h if cell}

    # What the agent says once, or rarely.

    def _hello(self, params: object) -> bool:
        hello = wire.convert(params, wire.Hello)
        if hello is None:
            return False
        columns = {}
        for name, lane in _LANES.items():
            rows = hello.columns.get(name, {})
            columns[lane] = (
                [GPU_CELLS.get(key) for key in rows.get("g", [])[:256]],
                [HOST_CELLS.get(key) for key in rows.get("h", [])[:256]],
            )
        boot_id = clean(hello.boot_id, 64)
        if self._agent is None or self._agent.boot_id != boot_id:
            self._host_clock.reset()
        self._columns = columns
        self._agent = AgentInfo(
            python=clean(hello.python, 64),
            pid=hello.pid,
            user=clean(hello.user, 64),
            hostname=clean(hello.hostname, 253),
            boot_id=boot_id,
            has_psutil=hello.has_psutil,
            nvml_version=wire.text_or_none(hello.nvml_version, 64),
            methods=frozenset(clean(name, 64) for name in hello.methods[:256]),
        )
        self._order = []
        self._notes.clear()
        for gpu in self._gpus.values():
            gpu.forget_rates()
        return True

    def _gpu_list(self, params: object) -> bool:
        message = wire.convert(params, wire.Gpus)
        if message is None:
            return False
        entries = [wire.convert(raw, wire.GpuEntry) for raw in message.gpus]
        named = {clean(entry.uuid, 96) for entry in entries if entry}
        self._order = []
        self._aliases = {}
        listed: set[str] = set()
        for entry in entries:
            uuid = "" if entry is None else self._identity(entry, named)
            if entry is None or uuid in listed:
                self.malformed_count += 1
                self._order.append(None)  # rows keep their places
                continue
            gpu = self._gpus.get(uuid)
            if gpu is None:
                self._make_room()
                gpu = self._gpus[uuid] = Gpu(uuid)
            listed.add(uuid)
            self.malformed_count += gpu.listed(entry)
            self._order.append(gpu)
        for uuid, gpu in list(self._gpus.items()):
            if uuid in listed:
                continue
            if uuid.startswith(wire.UNREADABLE):
                del self._gpus[uuid]  # it has told its name by now
            else:
                gpu.vanished()
        for key, raw in (message.h or {}).items():
            cell = HOST_CELLS.get(key)
            if cell is not None:
                self._take_host_value(cell, raw)
        self._host_lanes.add(Lane.ONCE)
        return True

    def _identity(self, entry: wire.GpuEntry, named: set[str]) -> str:
        """The uuid of an entry; of one that can't say who it is, that of who had its index."""
        uuid = clean(entry.uuid, 96)
        if uuid.startswith(wire.UNREADABLE):
            for known in self._gpus.values():
                if known.index == entry.index and known.uuid not in named:
                    self._aliases[uuid] = known.uuid
                    return known.uuid
        return uuid

    def _make_room(self) -> None:
        if len(self._gpus) >= wire.MAX_GPUS:
            gone = next((u for u, gpu in self._gpus.items() if not gpu.is_listed), None)
            self._gpus.pop(gone or next(iter(self._gpus)))

    def _take_host_value(self, cell: Cell, raw: object) -> None:
        value, refused = cell.take(raw)
        self._host_values[cell.key] = value
        if refused:
            self._host_refused[cell.key] = refused
            self.malformed_count += 1
        else:
            self._host_refused.pop(cell.key, None)

    def _absent(self, params: object) -> bool:
        message = wire.convert(params, wire.Absent)
        if message is None:
            return False
        if isinstance(message.g, dict):
            for uuid, raw in message.g.items():
                if uuid in self._gpus:
                    self._gpus[uuid].explain(wire.reasons(raw, GPU_CELLS))
        else:
            for gpu, raw in zip(self._order, message.g, strict=False):
                if gpu is not None and raw is not None:
                    gpu.explain(wire.reasons(raw, GPU_CELLS))
        self._host_absent = wire.reasons(message.h, HOST_CELLS)
        return True

    def _gpu_state(self, params: object) -> bool:
        message = wire.convert(params, wire.GpuStateChange)
        uuid = clean(message.uuid, 96) if message else ""
        gpu = self._gpus.get(self._aliases.get(uuid, uuid))
        if message is None or gpu is None or not wire.is_one_of(GpuState, message.state):
            return False
        gpu.set_state(GpuState(message.state), clean(message.detail, 200))
        return True

    def _driver_changed(self, params: object) -> bool:
        message = wire.convert(params, wire.Driver)
        if message is None or not wire.is_one_of(DriverState, message.state):
            return False
        status = DriverStatus(
            state=DriverState(message.state),
            version=wire.text_or_none(message.version, 64),
            cuda_version=wire.text_or_none(message.cuda_version, 32),
            detail=clean(message.detail or "", 400),
            since_s=self._clock.monotonic_s() - message.age_s,
        )
        before = self._driver
        if before is not None and before.state is status.state:
            status = replace(status, since_s=before.since_s)
        elif before is not None and status.state is DriverState.OK:
            status = replace(status, since_s=self._clock.monotonic_s())  # whatever it was before
        self._driver = status
        if message.nvml_version and self._agent is not None:
            nvml_version = clean(message.nvml_version, 64)
            self._agent = replace(self._agent, nvml_version=nvml_version)
        return True

    def _process_list(self, params: object) -> bool:
        message = wire.convert(params, wire.Processes)
        if message is None:
            return False
        processes = []
        for raw in message.p:
            entry = wire.convert(raw, wire.Process)
            if entry is None:
                self.malformed_count += 1
                continue
            memory_cell = GPU_CELLS["memory_used_bytes"]
            memory = {
                clean(uuid, 96): memory_cell.take(held)[0]
                for uuid, held in list(entry.memory_bytes.items())[: wire.MAX_GPUS]
            }
            processes.append(
                GpuProcess(
                    pid=entry.pid,
                    start_ticks=entry.start_ticks,
                    user=wire.text_or_none(entry.user, 64),
                    command=clean(entry.command or "", 1024),
                    memory_bytes=memory,  # type: ignore[arg-type]
                    kind=clean(entry.kind, 16),
                    model=wire.text_or_none(entry.model),
                    container=wire.text_or_none(entry.container, 128),
                    visible=entry.visible,
                    cpu_pct=entry.cpu_pct,
                    started=_utc(entry.started),
                )
            )
        self._processes = tuple(processes)
        self._processes_listed = True
        return True

    def _kernel(self, params: object) -> bool:
        message = wire.convert(params, wire.Kernel)
        if message is None:
            return False
        for raw in message.events:
            line = wire.convert(raw, wire.KernelLine)
            at = _utc(line.at) if line else None
            if line is None or at is None:
                self.malformed_count += 1
                continue
            event = KernelEvent(
                at=at,
                kind=clean(line.kind, 32),
                text=clean(line.text, 400),
                bus_id=wire.text_or_none(line.bus_id, 32),
                xid=line.xid,
            )
            if event not in self._kernel_events:  # a new agent reads the log from its start
                self._kernel_events.append(event)
        return True

    def _note(self, params: object) -> bool:
        message = wire.convert(params, wire.Note)
        if message is None or not message.text:
            return False
        text = clean(message.text, 400)
        if text not in self._notes and len(self._notes) < MAX_NOTES:
            self._notes.append(text)
        return True

    # What comes again and again.

    def _sample(self, lane: Lane, params: object) -> bool:
        sample = wire.convert(params, wire.Sample)
        if sample is None or lane not in self._columns:
            return False
        now_s = self._clock.monotonic_s()
        self._host_clock.observe(sample.t, now_s)
        at_s = self._here_s(sample.t)
        gpu_cells, host_cells = self._columns[lane]
        for gpu, row in zip(self._order, sample.g, strict=False):
            if gpu is None:
                continue
            if row is not None and not isinstance(row, list):
                self.malformed_count += 1
                continue
            self.malformed_count += gpu.take(lane, gpu_cells, row, sample.t)
        if sample.h is not None:
            for cell, raw in zip(host_cells, sample.h, strict=False):
                if cell is not None:
                    self._take_host_value(cell, raw)
            self._host_lanes.add(lane)
        if sample.m is not None:
            self._take_mig(sample.m)
        if lane is Lane.FAST:
            self._sampled_s = at_s
            self._sampled_at = self._clock.utc() - timedelta(seconds=now_s - at_s)
            self._remember(sample.t, at_s)
        return True

    def _take_mig(self, instances: dict[str, object] | list[object]) -> None:
        if isinstance(instances, dict):
            pairs = [(self._gpus.get(uuid), raw) for uuid, raw in instances.items()]
        else:
            pairs = list(zip(self._order, instances, strict=False))
        for gpu, raw in pairs:
            if gpu is not None and isinstance(raw, list):
                lines = [clean(line, 96) for line in raw[:16] if isinstance(line, str)]
                gpu.mig_instances = tuple(lines)

    def _remember(self, t: int, at_s: float) -> None:
        powers, utilizations, memories = [], [], []
        for gpu in self._order:
            if gpu is None or not gpu.answered(Lane.FAST, t):
                continue
            self.history.record(gpu.uuid, at_s, gpu.values, self._interval_s)
            if (power_w := gpu.number("power_w")) is not None:
                powers.append(power_w)
            if (utilization := gpu.number("utilization_gpu_pct")) is not None:
                utilizations.append(utilization)
            if (memory := gpu.number("memory_used_bytes")) is not None:
                memories.append(memory)
        totals: dict[str, Value] = {
            "power_w": sum(powers) if powers else None,
            "utilization_gpu_pct": sum(utilizations) / len(utilizations) if utilizations else None,
            "memory_used_bytes": sum(memories) if memories else None,
            "cpu_pct": self._host_values.get("cpu_pct"),
            "host_memory_used_bytes": self._host_values.get("memory_used_bytes"),
        }
        self.history.record(TOTAL, at_s, totals, self._interval_s)


def _utc(epoch_s: float | None) -> datetime | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC)
