"""What the rest of gpuroom talks in: frozen values, no behaviour beyond looking themselves up.

A reading is a number with its time, or it is absent with its reason. So every reading of a GPU is
a field that may be None, the reason for each None lies in `absent`, and the time of a sample is
that of the lane it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple


class Lane(StrEnum):
    """How often a reading is taken; what a call costs decides (see docs/agent.md)."""

    ONCE = "once"
    FAST = "fast"
    SLOW = "slow"
    PCIE = "pcie"
    """PCIe throughput blocks for 21 ms a direction: off unless asked for."""


class ReadingSpec(NamedTuple):
    """What is known of one reading: its key everywhere, and what it means."""

    key: str
    lane: Lane
    unit: str
    title: str


def reading(lane: Lane, unit: str, title: str) -> Any:
    """A dataclass field that may be absent, described once for wire, JSON, screen and docs."""
    return field(default=None, metadata={"lane": lane, "unit": unit, "title": title})


def reading_specs(kind: type) -> tuple[ReadingSpec, ...]:
    """The readings of a dataclass whose fields were made with `reading`, in order."""
    return tuple(
        ReadingSpec(f.name, f.metadata["lane"], f.metadata["unit"], f.metadata["title"])
        for f in fields(kind)
        if "lane" in f.metadata
    )


class EventReasons(IntFlag):
    """Why the clocks are where they are: `nvmlClocksEventReasons*`, bit for bit (nvml.h)."""

    IDLE = 0x1
    APPLICATIONS_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """Everything that is read of one GPU. None means absent; `GpuStatus.absent` says why."""

    power_w: float | None = reading(Lane.FAST, "W", "power draw now")
    power_average_w: float | None = reading(Lane.FAST, "W", "power draw, one-second average")
    power_limit_enforced_w: float | None = reading(Lane.FAST, "W", "power limit in force")
    utilization_gpu_pct: float | None = reading(Lane.FAST, "%", "share of time a kernel ran")
    utilization_memory_pct: float | None = reading(Lane.FAST, "%", "share of time memory was busy")
    memory_used_bytes: int | None = reading(Lane.FAST, "B", "memory in use")
    temperature_gpu_c: float | None = reading(Lane.FAST, "°C", "temperature of the GPU")
    sm_clock_mhz: int | None = reading(Lane.FAST, "MHz", "SM clock")
    memory_clock_mhz: int | None = reading(Lane.FAST, "MHz", "memory clock")
    event_reasons: int | None = reading(Lane.FAST, "bits", "clock event reasons (EventReasons)")
    pcie_generation: int | None = reading(Lane.FAST, "", "PCIe generation now")
    pcie_width: int | None = reading(Lane.FAST, "lanes", "PCIe width now")
    performance_state: int | None = reading(Lane.FAST, "P", "performance state")

    energy_j: float | None = reading(Lane.SLOW, "J", "energy since the driver was loaded")
    memory_total_bytes: int | None = reading(Lane.SLOW, "B", "memory")
    memory_reserved_bytes: int | None = reading(Lane.SLOW, "B", "memory the driver keeps")
    temperature_memory_c: float | None = reading(Lane.SLOW, "°C", "temperature of the memory")
    temperature_margin_c: float | None = reading(Lane.SLOW, "°C", "distance to slowdown")
    fan_pct: float | None = reading(Lane.SLOW, "%", "fan")
    pcie_replay_count: int | None = reading(Lane.SLOW, "", "PCIe replays since the driver loaded")
    nvlink_links_active: int | None = reading(Lane.SLOW, "", "NVLink links that are up")
    nvlink_links_total: int | None = reading(Lane.SLOW, "", "NVLink links")
    nvlink_error_count: int | None = reading(Lane.SLOW, "", "NVLink replay, recovery, CRC errors")
    ecc_enabled: bool | None = reading(Lane.SLOW, "", "ECC on")
    ecc_corrected_count: int | None = reading(Lane.SLOW, "", "ECC errors corrected since boot")
    ecc_uncorrected_count: int | None = reading(Lane.SLOW, "", "ECC errors uncorrected since boot")
    remapped_rows_corrected: int | None = reading(Lane.SLOW, "", "rows remapped, correctable")
    remapped_rows_uncorrected: int | None = reading(Lane.SLOW, "", "rows remapped, uncorrectable")
    remapped_rows_pending: bool | None = reading(Lane.SLOW, "", "row remapping waits for a reset")
    remapped_rows_failed: bool | None = reading(Lane.SLOW, "", "row remapping failed")
    mig_enabled: bool | None = reading(Lane.SLOW, "", "MIG on")
    persistence_enabled: bool | None = reading(Lane.SLOW, "", "persistence mode on")
    compute_mode: str | None = reading(Lane.SLOW, "", "compute mode")
    time_power_cap_us: int | None = reading(Lane.SLOW, "us", "time held by the power cap")
    time_thermal_us: int | None = reading(Lane.SLOW, "us", "time held by temperature")
    time_power_brake_us: int | None = reading(Lane.SLOW, "us", "time held by the power brake")
    time_sync_boost_us: int | None = reading(Lane.SLOW, "us", "time held by sync boost")

    pcie_rx_bytes_per_s: float | None = reading(Lane.PCIE, "B/s", "PCIe received")
    pcie_tx_bytes_per_s: float | None = reading(Lane.PCIE, "B/s", "PCIe sent")

    power_limit_default_w: float | None = reading(Lane.ONCE, "W", "power limit as shipped")
    power_limit_min_w: float | None = reading(Lane.ONCE, "W", "lowest power limit")
    power_limit_max_w: float | None = reading(Lane.ONCE, "W", "highest power limit")
    sm_clock_max_mhz: int | None = reading(Lane.ONCE, "MHz", "highest SM clock")
    memory_clock_max_mhz: int | None = reading(Lane.ONCE, "MHz", "highest memory clock")
    pcie_generation_max: int | None = reading(Lane.ONCE, "", "PCIe generation of the link at most")
    pcie_width_max: int | None = reading(Lane.ONCE, "lanes", "PCIe width of the link at most")
    temperature_slowdown_c: float | None = reading(Lane.ONCE, "°C", "temperature of slowdown")
    architecture: str | None = reading(Lane.ONCE, "", "architecture")
    compute_capability: str | None = reading(Lane.ONCE, "", "CUDA compute capability")
    vbios_version: str | None = reading(Lane.ONCE, "", "VBIOS")
    numa_node: int | None = reading(Lane.ONCE, "", "NUMA node")


GPU_READINGS = reading_specs(GpuReadings)


@dataclass(frozen=True, slots=True)
class HostReadings:
    """Everything that is read of the host itself. None means absent, as for a GPU."""

    cpu_pct: float | None = reading(Lane.FAST, "%", "CPU in use, of all cores together")
    memory_used_bytes: int | None = reading(Lane.FAST, "B", "memory in use (total less available)")
    load_1m: float | None = reading(Lane.SLOW, "", "load, 1 minute")
    load_5m: float | None = reading(Lane.SLOW, "", "load, 5 minutes")
    load_15m: float | None = reading(Lane.SLOW, "", "load, 15 minutes")
    memory_total_bytes: int | None = reading(Lane.SLOW, "B", "memory")
    swap_used_bytes: int | None = reading(Lane.SLOW, "B", "swap in use")
    swap_total_bytes: int | None = reading(Lane.SLOW, "B", "swap")
    disk_read_bytes_per_s: float | None = reading(Lane.SLOW, "B/s", "read from disks")
    disk_write_bytes_per_s: float | None = reading(Lane.SLOW, "B/s", "written to disks")
    network_rx_bytes_per_s: float | None = reading(Lane.SLOW, "B/s", "received from the network")
    network_tx_bytes_per_s: float | None = reading(Lane.SLOW, "B/s", "sent to the network")
    uptime_s: float | None = reading(Lane.SLOW, "s", "time since boot")
    cpu_count: int | None = reading(Lane.ONCE, "", "CPUs")
    cpu_model: str | None = reading(Lane.ONCE, "", "CPU")
    kernel: str | None = reading(Lane.ONCE, "", "kernel")
    boot_id: str | None = reading(Lane.ONCE, "", "boot id")


HOST_READINGS = reading_specs(HostReadings)


class GpuState(StrEnum):
    """Whether a GPU answers."""

    OK = "ok"
    LOST = "lost"
    """It fell off the bus, or the driver no longer knows it."""
    STUCK = "stuck"
    """A call about it has not come back."""
    ERROR = "error"
    """It answers, but with an error to the basic readings."""


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU at one moment.

    Attributes:
        uuid: Its identity; every other number may change with the next boot.
        index: NVML index, for people.
        read_s: Monotonic time here at which each lane's sample was taken.
        absent: Reading key -> why there is no value.
        held_pct: Event reason name -> share of the last window, in percent, during which it held
            the clocks, from the cumulative counters; without those, from the bits sampled.
        energy_average_w: Mean power of up to a minute, from the energy counter.
        mig_instances: One line a MIG instance (profile and memory), when MIG is on.
    """

    uuid: str
    index: int
    name: str
    bus_id: str
    state: GpuState = GpuState.OK
    state_detail: str = ""
    readings: GpuReadings = GpuReadings()
    absent: Mapping[str, str] = field(default_factory=dict)
    read_s: Mapping[Lane, float] = field(default_factory=dict)
    held_pct: Mapping[str, float] = field(default_factory=dict)
    energy_average_w: float | None = None
    mig_instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a GPU. Known by host, boot id, pid and start time, never by pid alone.

    Attributes:
        start_ticks: Field 22 of /proc/PID/stat; None where the process can't be seen from here.
        memory_bytes: GPU memory it holds, per GPU uuid; None where the driver does not tell.
        model: Model name where its command line tells it.
        container: Container where /proc/PID/cgroup tells it.
        visible: False for a pid that the driver reports and this host's /proc does not have
            (another pid namespace).
    """

    pid: int
    start_ticks: int | None
    user: str | None
    command: str
    memory_bytes: Mapping[str, int | None]
    kind: str = "compute"
    model: str | None = None
    container: str | None = None
    visible: bool = True
    cpu_pct: float | None = None
    started: datetime | None = None


class DriverState(StrEnum):
    """What the GPU driver of a host is like."""

    OK = "ok"
    MISSING = "missing"
    """No driver or no NVML library."""
    MISMATCH = "mismatch"
    """Kernel module and libraries have different versions: reboot or reload."""
    STUCK = "stuck"
    """A call into the driver has not come back."""
    RELOADING = "reloading"
    """It went away and is being waited for."""
    NO_PERMISSION = "no-permission"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The GPU driver of a host, and for how long it has been so (monotonic seconds here)."""

    state: DriverState
    version: str | None = None
    cuda_version: str | None = None
    detail: str = ""
    since_s: float = 0.0


class LinkState(StrEnum):
    """How far the way to a host has come."""

    IDLE = "idle"
    CONNECTING = "connecting"
    HOST_KEY = "host-key"
    """Waits for a person to look at an unknown host key."""
    AUTHENTICATING = "authenticating"
    """Waits for a key, a passphrase or a password."""
    STARTING = "starting"
    """The agent is being sent and started."""
    LIVE = "live"
    STALE = "stale"
    """Connected, but no sample for more than three intervals."""
    LOST = "lost"
    """Down; the next try is at `retry_at_s`."""
    REFUSED = "refused"
    """Will not get better by itself (changed host key, nobody let in): waits for a person."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The way to a host now: state, since when, and in words what went wrong last.

    Attributes:
        transport: `ssh`, `local` or `demo`.
        via: `agent` (python3 on the host), `nvidia-smi` (no python3 there), `tools`
            (neither: no readings), or "" before that.
        attempt: Tries since it was last live.
        round_trip_s: Of the newest heartbeat.
    """

    state: LinkState
    since_s: float
    transport: str = ""
    via: str = ""
    error: str = ""
    hint: str = ""
    attempt: int = 0
    retry_at_s: float | None = None
    round_trip_s: float | None = None


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """What answered on the host."""

    python: str
    pid: int
    user: str
    hostname: str
    boot_id: str
    has_psutil: bool
    nvml_version: str | None
    methods: frozenset[str] = frozenset()


class Severity(StrEnum):
    """How much a finding or an alert matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What readings mean together: one word, the evidence, the next step (backends.verdicts)."""

    word: str
    severity: Severity
    evidence: str
    advice: str = ""
    gpu_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that happened and may have been missed."""

    at: datetime
    host: str
    severity: Severity
    title: str
    detail: str = ""
    gpu_uuid: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A line of the host's kernel log that matters (Xid, AER, OOM)."""

    at: datetime
    kind: str
    text: str
    bus_id: str | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """All that is known of a host at one moment; what widgets and JSON are made from.

    Attributes:
        version: Grows with every change; equal versions are equal snapshots.
        sampled_s: Monotonic time here of the newest fast sample, corrected for the way; None
            before the first.
        sampled_at: The same moment in UTC.
        interval_s: Between fast samples.
        processes_listed: Whether the host has said what runs on its GPUs: before that, and where
            it can't say, `processes` is empty without meaning that nothing runs.
        notes: Standing remarks about what can't be read and why (no python3, containers that hide
            processes, ...).
    """

    host: str
    version: int
    link: LinkStatus
    interval_s: float
    agent: AgentInfo | None = None
    driver: DriverStatus | None = None
    gpus: tuple[GpuStatus, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_listed: bool = False
    readings: HostReadings = HostReadings()
    absent: Mapping[str, str] = field(default_factory=dict)
    sampled_s: float | None = None
    sampled_at: datetime | None = None
    verdicts: tuple[Verdict, ...] = ()
    kernel_events: tuple[KernelEvent, ...] = ()
    notes: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> GpuStatus | None:
        """The GPU of that UUID, or None."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)
