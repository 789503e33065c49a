"""GPUs with what else is known of them: verdict, what runs there, age; sums. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backends.model import (
    DriverState,
    GpuProcess,
    GpuState,
    GpuStatus,
    HostSnapshot,
    Lane,
    LinkState,
    Severity,
    Verdict,
)

SEVERITY_TOKENS = {
    Severity.INFO: "good",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "critical",
}

CALM_WORDS = frozenset({"IDLE", "BUSY", "MIG", "MIG-BUSY", "UNKNOWN"})
"""What a GPU does; anything else that is said of it is news and comes before it."""

FRESH = frozenset({LinkState.LIVE})


@dataclass(frozen=True, slots=True)
class GpuItem:
    """One GPU with what else a row needs."""

    gpu: GpuStatus
    verdict: Verdict | None = None
    runs: str = ""
    marked: bool = False
    stale_s: float | None = None

    @property
    def token(self) -> str:
        """The token that says its state."""
        if self.gpu.state is not GpuState.OK:
            return "critical"
        if self.verdict is None:
            return "busy"
        if self.verdict.word in ("IDLE", "MIG", "UNKNOWN"):
            return "idle"
        if self.verdict.severity is Severity.INFO:
            return "busy"
        return SEVERITY_TOKENS[self.verdict.severity]


def items_of(snapshot: HostSnapshot, now_s: float, marked: frozenset[str]) -> list[GpuItem]:
    """Every GPU of a host, in the order of its indices."""
    verdicts: dict[str, Verdict] = {}
    for verdict in snapshot.verdicts:
        uuid = verdict.gpu_uuid
        if uuid is not None and _matters_more(verdict, verdicts.get(uuid)):
            verdicts[uuid] = verdict
    runs: dict[str, list[GpuProcess]] = {}
    for process in snapshot.processes:
        for uuid in process.memory_bytes:
            runs.setdefault(uuid, []).append(process)
    stale_s = stale_for(snapshot, now_s)
    return [
        GpuItem(
            gpu,
            verdicts.get(gpu.uuid),
            runs_text(runs.get(gpu.uuid, ())),
            gpu.uuid in marked,
            _age_of(gpu, now_s) if gpu.state is GpuState.STUCK else stale_s,
        )
        for gpu in snapshot.gpus
    ]


SEVERITY_RANKS = {severity: number for number, severity in enumerate(Severity)}


def _matters_more(verdict: Verdict, than: Verdict | None) -> bool:
    if than is None:
        return True
    mine = (SEVERITY_RANKS[verdict.severity], verdict.word not in CALM_WORDS)
    return mine > (SEVERITY_RANKS[than.severity], than.word not in CALM_WORDS)


def _age_of(gpu: GpuStatus, now_s: float) -> float:
    """Age of the newest sample of one GPU."""
    return max(0.0, now_s - gpu.read_s.get(Lane.FAST, now_s))


def stale_for(snapshot: HostSnapshot, now_s: float) -> float | None:
    """Age of the newest sample when the host no longer gives new ones, else None."""
    if snapshot.sampled_s is None:
        return None
    age_s = max(0.0, now_s - snapshot.sampled_s)
    stuck = snapshot.driver is not None and snapshot.driver.state is not DriverState.OK
    if snapshot.link.state not in FRESH or stuck or age_s > 3 * snapshot.interval_s + 1:
        return age_s
    return None


def program_name(process: GpuProcess) -> str:
    """The model it serves where that is known, else the program's own name."""
    if process.model:
        return process.model.rstrip("/").rpartition("/")[2]
    words = process.command.split()
    names = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    if len(names) > 1 and names[0].startswith("python"):
        return names[1]
    return names[0] if names else f"pid {process.pid}"


def runs_text(processes: Sequence[GpuProcess]) -> str:
    """What runs on a GPU, in few words."""
    if not processes:
        return ""
    biggest = max(
        processes, key=lambda p: max((m or 0 for m in p.memory_bytes.values()), default=0)
    )
    name = program_name(biggest) if biggest.visible else f"pid {biggest.pid}"
    return name if len(processes) == 1 else f"{name} +{len(processes) - 1}"


def short_name(gpu: GpuStatus) -> str:
    """The card without its maker."""
    return gpu.name.removeprefix("NVIDIA ")


def share_of(value: float | None, limit: float | None) -> float | None:
    """The share that a value has of its limit, where both are there."""
    return None if value is None or not limit else value / limit


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over GPUs; a sum counts only what was read, and says of how many."""

    count: int = 0
    answering: int = 0
    power_w: float | None = None
    cap_w: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    hottest_c: float | None = None
    by_word: Mapping[str, int] = field(default_factory=dict)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def totals_of(gpus: Sequence[GpuStatus]) -> Totals:
    """Add up the GPUs of a host; one that is stuck counts with what it read last."""
    rows = [gpu.readings for gpu in gpus if gpu.state in (GpuState.OK, GpuState.STUCK)]
    answering = sum(gpu.state is GpuState.OK for gpu in gpus)
    utilization = [r.utilization_gpu_pct for r in rows if r.utilization_gpu_pct is not None]
    temperatures = [r.temperature_gpu_c for r in rows if r.temperature_gpu_c is not None]
    return Totals(
        count=len(gpus),
        answering=answering,
        power_w=_sum([r.power_w for r in rows]),
        cap_w=_sum([r.power_limit_enforced_w for r in rows]),
        utilization_pct=sum(utilization) / len(utilization) if utilization else None,
        memory_used_bytes=_sum([r.memory_used_bytes for r in rows]),
        memory_total_bytes=_sum([r.memory_total_bytes for r in rows]),
        hottest_c=max(temperatures, default=None),
    )
