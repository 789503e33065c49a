"""A snapshot as JSON, for `gpuroom top --json` and scripts (docs/top-json.md).

Every reading has a key of its own in the object it belongs to, in the units of its name: a number,
a text, a truth value, or null. Where it is null, `absent` beside it says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from backends.model import (
    DriverStatus,
    GpuProcess,
    GpuReadings,
    GpuStatus,
    HostReadings,
    HostSnapshot,
    LinkStatus,
    Verdict,
)
from backends.telemetry.rates import HELD_BITS, reason_names

Json = dict[str, Any]

GPU_KEYS: Final = tuple(field.name for field in fields(GpuReadings))
_NEEDS_ANOTHER: Final = "needs a second sample"
HOST_KEYS: Final = tuple(field.name for field in fields(HostReadings))


def snapshot_json(snapshot: HostSnapshot, now_s: float) -> Json:
    """A host, its GPUs, processes and verdicts.

    Args:
        snapshot: What is known.
        now_s: Monotonic seconds here, for ages.

    Returns:
        What `json.dumps` takes as it is; no value in it is NaN or infinite.
    """
    age_s = None if snapshot.sampled_s is None else _seconds(now_s - snapshot.sampled_s)
    by_gpu: dict[str, list[Json]] = {}
    for process in snapshot.processes:
        for uuid, held in process.memory_bytes.items():
            by_gpu.setdefault(uuid, []).append({"pid": process.pid, "memory_bytes": held})
    return {
        "host": snapshot.host,
        "time": _time(snapshot.sampled_at),
        "age_s": age_s,
        "interval_s": snapshot.interval_s,
        "link": _link_json(snapshot.link, now_s),
        "agent": None
        if snapshot.agent is None
        else {
            "python": snapshot.agent.python,
            "user": snapshot.agent.user,
            "hostname": snapshot.agent.hostname,
            "nvml_version": snapshot.agent.nvml_version,
        },
        "driver": None if snapshot.driver is None else _driver_json(snapshot.driver, now_s),
        "gpus": [
            gpu_json(gpu, now_s, _about(snapshot.verdicts, gpu.uuid), by_gpu.get(gpu.uuid, ()))
            for gpu in snapshot.gpus
        ],
        "readings": {key: getattr(snapshot.readings, key) for key in HOST_KEYS}
        | {"absent": dict(snapshot.absent)},
        "processes": [_process_json(process) for process in snapshot.processes],
        "verdicts": _about(snapshot.verdicts, None),
        "kernel_events": [
            {
                "time": _time(event.at),
                "kind": event.kind,
                "text": event.text,
                "bus_id": event.bus_id,
                "xid": event.xid,
            }
            for event in snapshot.kernel_events
        ],
        "notes": list(snapshot.notes),
    }


def gpu_json(
    gpu: GpuStatus,
    now_s: float,
    verdicts: Iterable[Json] = (),
    processes: Iterable[Json] = (),
) -> Json:
    """One GPU: who it is, every reading, why some are absent, what follows from them."""
    bits = gpu.readings.event_reasons
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "bus_id": gpu.bus_id,
        "state": gpu.state.value,
        "state_detail": gpu.state_detail,
        **{key: getattr(gpu.readings, key) for key in GPU_KEYS},
        "event_reason_names": None if bits is None else list(reason_names(bits)),
        "held_pct": {name: _percent(gpu.held_pct.get(name)) for name in HELD_BITS},
        "energy_average_w": None
        if gpu.energy_average_w is None
        else round(gpu.energy_average_w, 1),
        "absent": dict(gpu.absent) | _absent_derived(gpu),
        "age_s": {lane.value: _seconds(now_s - at_s) for lane, at_s in gpu.read_s.items()},
        "mig_instances": list(gpu.mig_instances),
        "processes": list(processes),
        "verdicts": list(verdicts),
    }


def _absent_derived(gpu: GpuStatus) -> dict[str, str]:
    """Why values that follow from several readings are absent."""
    absent = {}
    no_reasons = gpu.absent.get("event_reasons")
    if gpu.readings.event_reasons is None and no_reasons:
        absent["event_reason_names"] = no_reasons
    if any(name not in gpu.held_pct for name in HELD_BITS):
        absent["held_pct"] = no_reasons or _NEEDS_ANOTHER
    if gpu.energy_average_w is None:
        absent["energy_average_w"] = gpu.absent.get("energy_j") or _NEEDS_ANOTHER
    return absent


def _about(verdicts: Iterable[Verdict], uuid: str | None) -> list[Json]:
    return [
        {
            "word": verdict.word,
            "severity": verdict.severity.value,
            "evidence": verdict.evidence,
            "advice": verdict.advice,
        }
        for verdict in verdicts
        if verdict.gpu_uuid == uuid
    ]


def _link_json(link: LinkStatus, now_s: float) -> Json:
    return {
        "state": link.state.value,
        "for_s": _seconds(now_s - link.since_s),
        "transport": link.transport,
        "via": link.via,
        "error": link.error,
        "hint": link.hint,
        "round_trip_s": link.round_trip_s,
    }


def _driver_json(driver: DriverStatus, now_s: float) -> Json:
    return {
        "state": driver.state.value,
        "version": driver.version,
        "cuda_version": driver.cuda_version,
        "detail": driver.detail,
        "for_s": _seconds(now_s - driver.since_s),
    }


def _process_json(process: GpuProcess) -> Json:
    memory: Mapping[str, int | None] = process.memory_bytes
    hidden = None if process.visible else "not visible from this host's /proc"
    reasons = {
        "start_ticks": hidden,
        "started": hidden,
        "user": hidden,
        "model": hidden or "its command line names none",
        "container": hidden or "it runs in none that its cgroup names",
        "cpu_pct": hidden or "it needs two looks at the process",
    }
    found: Json = {
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "started": _time(process.started),
        "user": process.user,
        "command": process.command,
        "kind": process.kind,
        "model": process.model,
        "container": process.container,
        "visible": process.visible,
        "cpu_pct": process.cpu_pct,
        "memory_bytes": dict(memory),
    }
    found["absent"] = {
        key: reason or "not read" for key, reason in reasons.items() if found[key] is None
    } | {
        f"memory_bytes.{uuid}": "the driver does not tell"
        for uuid, held in memory.items()
        if held is None
    }
    return found


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(seconds: float) -> float:
    return round(max(0.0, seconds), 3)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share, 2)
