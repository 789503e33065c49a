"""Everything about one GPU as rows, in groups. A pure function of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from backends.model import (
    GPU_READINGS,
    EventReasons,
    GpuProcess,
    GpuState,
    HostSnapshot,
    Lane,
    ReadingSpec,
)
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row
from tui.widgets.gpu_columns import HELD_NAMES, REASON_NAMES, state_text
from tui.widgets.gpu_items import GpuItem, program_name
from tui.widgets.host_state import wrap

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("power", (
        "power_w", "power_average_w", "power_limit_enforced_w", "power_limit_default_w",
        "power_limit_min_w", "power_limit_max_w", "energy_j",
    )),
    ("use", ("utilization_gpu_pct", "utilization_memory_pct", "performance_state")),
    ("memory", ("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes")),
    ("temperature", (
        "temperature_gpu_c", "temperature_memory_c", "temperature_margin_c",
        "temperature_slowdown_c", "fan_pct",
    )),
    ("clocks", ("sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz", "memory_clock_max_mhz")),
    ("held back", (
        "event_reasons", "time_power_cap_us", "time_thermal_us", "time_power_brake_us",
        "time_sync_boost_us",
    )),
    ("link", (
        "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max",
        "pcie_replay_count", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_links_active",
        "nvlink_links_total", "nvlink_error_count",
    )),
    ("health", (
        "ecc_enabled", "ecc_corrected_count", "ecc_uncorrected_count", "remapped_rows_corrected",
        "remapped_rows_uncorrected", "remapped_rows_pending", "remapped_rows_failed",
    )),
    ("modes", ("mig_enabled", "persistence_enabled", "compute_mode")),
    ("card", ("architecture", "compute_capability", "vbios_version", "numa_node")),
)  # fmt: skip
"""Readings by what they are about. Whatever no group names comes last, under `other`."""

SPECS = {spec.key: spec for spec in GPU_READINGS}
BAD_IF_MORE_THAN_NONE = frozenset(
    {"ecc_uncorrected_count", "remapped_rows_uncorrected", "nvlink_error_count"}
)
BAD_IF_TRUE = frozenset({"remapped_rows_pending", "remapped_rows_failed"})


def grouped() -> list[tuple[str, tuple[str, ...]]]:
    """The groups, complete."""
    named = {key for _, keys in GROUPS for key in keys}
    rest = tuple(spec.key for spec in GPU_READINGS if spec.key not in named)
    return [*GROUPS, ("other", rest)] if rest else list(GROUPS)


def fact_rows(
    item: GpuItem,
    snapshot: HostSnapshot,
    running: Sequence[GpuProcess],
    width: int,
    now_s: float,
    glyphs: Glyphs,
) -> list[Row]:
    """State and verdict first, then what runs, then every reading."""
    gpu = item.gpu
    rows = [
        Line().add(f" GPU {gpu.index} ", "strong").add(gpu.name, "text").row(width),
        Line().add(f" {gpu.uuid}  {gpu.bus_id}", "dim").row(width),
    ]
    word, token = state_text(item)
    if word:
        glyph = glyphs.ok if token in ("good", "busy", "idle") else glyphs.warning
        line = Line().add(f" {glyph} {word}", token)
        rows.append(line.row(width))
        texts = [gpu.state_detail] if gpu.state is not GpuState.OK else []
        if item.verdict is not None:
            texts += [item.verdict.evidence, item.verdict.advice]
        for number, text in enumerate(t for t in texts if t):
            for piece in wrap(text, width - 4):
                rows.append(Line().add("   ").add(piece, "dim" if number else "text").row(width))
    if item.stale_s is not None:
        age = f" values are {fmt.duration(item.stale_s)} old"
        rows.append(Line().add(age, "warning").row(width))
    for name, share in sorted(gpu.held_pct.items(), key=lambda pair: -pair[1]):
        if share >= 0.05:
            held = f" held by {HELD_NAMES.get(name, name)} {share:.1f} % of the last minute"
            rows.append(Line().add(held, "warning").row(width))
    for instance in gpu.mig_instances:
        rows.append(Line().add(f" MIG {instance}", "info").row(width))
    for process in running[:6]:
        held_bytes = process.memory_bytes.get(gpu.uuid)
        line = Line().add(f" {fmt.size(held_bytes):>6} ", "strong")
        name = program_name(process) if process.visible else "not visible from here"
        line.add(name, "text").add(f"  pid {process.pid}", "dim")
        rows.append(line.add(f"  {process.user or ''}", "dim").row(width))
    stale = item.stale_s is not None
    for title, keys in grouped():
        rows.append(Line().add(f" {title}", "title").row(width))
        rows += [_fact(item, SPECS[key], width, stale=stale) for key in keys]
    return rows


def _fact(item: GpuItem, spec: ReadingSpec, width: int, *, stale: bool) -> Row:
    gpu = item.gpu
    value = getattr(gpu.readings, spec.key)
    label = min(30, max(18, width - 22))
    line = Line().add("   ").cell(spec.title, label, "dim").add(" ")
    if value is None:
        reason = gpu.absent.get(spec.key) or _why_not(item, spec)
        return line.add(fmt.ABSENT, "faint").add(f"  {reason}", "dim").row(width)
    text = reasons_text(value) if spec.key == "event_reasons" else fmt.plain(value, spec.unit)
    token = "text"
    if (spec.key in BAD_IF_MORE_THAN_NONE and value) or (spec.key in BAD_IF_TRUE and value is True):
        token = "critical"
    return line.add(text, "stale" if stale else token).row(width)


def _why_not(item: GpuItem, spec: ReadingSpec) -> str:
    if item.gpu.state is not GpuState.OK:
        return item.gpu.state_detail or f"the GPU is {item.gpu.state.value}"
    if spec.lane is Lane.PCIE:
        return "not asked for (refresh.pcie_throughput)"
    return "not read yet"


def reasons_text(bits: int) -> str:
    """Event reasons in words."""
    words = [word for reason, word, _ in REASON_NAMES if bits & reason]
    if bits & EventReasons.IDLE:
        words.append("idle")
    return ", ".join(dict.fromkeys(words)) or "none"
