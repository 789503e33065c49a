"""Logs of NCCL, the fabric manager and eBPF tools, and the errors that CUDA prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact, Vantage
from backends.tuning.readers.excerpt import Excerpt, Line

_BUCKET: Final = re.compile(r"^\s*(\d{1,12})\s*->\s*(\d{1,12})\s*:\s*(\d{1,15})")
_UNITS_TO_MS: Final = {"msecs": 1.0, "usecs": 1e-3, "nsecs": 1e-6, "secs": 1e3}
_CUDA_ERRORS: Final = {
    "CUDA_ERROR_UNKNOWN": 999,
    "CUDA_ERROR_SYSTEM_NOT_READY": 802,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": 804,
    "CUDA_ERROR_NO_DEVICE": 100,
    "CUDA_ERROR_INVALID_DEVICE": 101,
    "CUDA_ERROR_NOT_INITIALIZED": 3,
    "cudaErrorSystemNotReady": 802,
    "cudaErrorSystemDriverMismatch": 803,
}


def read_nccl(excerpt: Excerpt) -> Iterator[Fact]:
    """What NCCL's log says about shared memory, peer access and RDMA."""
    guest = Excerpt(excerpt.name, Vantage.GUEST, excerpt.lines, excerpt.heading)
    for line in excerpt.lines:
        text = line.text
        if "NCCL" not in text:
            continue
        if "/dev/shm" in text and "No space left on device" in text:  # noqa: S108 - a log
            size = re.search(r"(?:size|to) (\d{1,15})", text)
            yield guest.fact("nccl/shm_error", int(size[1]) if size else 0, line)
        elif "GPU Direct RDMA Enabled" in text:
            yield excerpt.fact("nccl/gdr", True, line)
        elif "GPU Direct RDMA Disabled" in text:
            yield excerpt.fact("nccl/gdr", False, line)
        elif re.search(r"NCCL WARN .*?(NUMA balancing|numa_balancing)", text):
            yield excerpt.fact("log/numa_balancing_enabled", True, line)


def read_histogram(excerpt: Excerpt) -> Iterator[Fact]:
    """A latency histogram of bcc's funclatency or bpftrace for the kernel's NUMA balancing."""
    function = unit = ""
    slowest: tuple[str, Line] | None = None
    for line in excerpt.lines:
        text = line.text
        if match := re.search(
            r"(?:funclatency|bpftrace|Tracing|Function)\b.*?\b(task_numa_work|"
            r"migrate_misplaced_\w+|do_numa_page)",
            text,
        ):
            function = match[1]
            if span := re.search(r"-d (\d{1,6})\b", text):
                yield excerpt.fact(f"trace/{function}_seconds", int(span[1]), line)
        elif match := re.match(r"\s*(msecs|usecs|nsecs|secs)\s*:\s*count", text):
            unit = match[1]
            slowest = None
        elif unit and (match := _BUCKET.match(text)):
            if int(match[3]):
                scale = _UNITS_TO_MS[unit]
                slowest = (f"{int(match[1]) * scale:g}-{int(match[2]) * scale:g}", line)
        elif (
            function
            and unit
            and (
                match := re.match(
                    r"\s*avg = \d+ \w+, total: (\d{1,18}) \w+, count: (\d{1,18})", text
                )
            )
        ):
            total = int(int(match[1]) * _UNITS_TO_MS[unit])
            yield excerpt.fact(f"trace/{function}_total_ms", total, line)
            yield excerpt.fact(f"trace/{function}_count", int(match[2]), line)
            if slowest:
                yield excerpt.fact(f"trace/{function}_slowest", slowest[0], slowest[1])


def read_fabric_manager(excerpt: Excerpt) -> Iterator[Fact]:
    """What the fabric manager's unit and start script wrote."""
    for line in excerpt.lines:
        text = line.text
        if not re.search(r"fabric-?manager", text, re.IGNORECASE):
            continue
        if "NV_WARN_NOTHING_TO_DO" in text or re.search(
            r"no NVSwitch|NVSwitch(?:es)? (?:not|were not) (?:found|detected)", text, re.IGNORECASE
        ):
            yield excerpt.fact("nvswitch/present", False, line)
        if re.search(r"status=\d+/FAILURE|Failed with result|Failed to start|failed!", text):
            yield excerpt.fact("unit/nvidia-fabricmanager/active", "failed", line)
        elif re.search(r"Started .*fabric|Successfully configured all the available", text):
            yield excerpt.fact("unit/nvidia-fabricmanager/active", "active", line)
        elif re.search(r"not (?:active|running)|inactive|is stopped", text):
            yield excerpt.fact("unit/nvidia-fabricmanager/active", "inactive", line)
        if match := _FM_VERSIONS.search(text):
            if match["driver"]:
                yield excerpt.fact("driver/version", match["driver"], line)
            yield excerpt.fact("fabric_manager/version", match["own"], line)


_FM_VERSIONS: Final = re.compile(
    r"version (?P<own>\d{3}\.\d+(?:\.\d+)?) (?:does ?n.t|don.t|not) match\w*"
    r"(?:.{0,40}?version (?P<driver>\d{3}\.\d+(?:\.\d+)?))?"
)


_UNREACHED: Final = re.compile(
    r"Unable to (?:determine|detect) the device handle for (?:gpu ?(?:\d{1,3}(?=:\s))?:?\s*)"
    r"(?P<gpu>\d{1,3}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(?P<error>Unknown Error|GPU is lost|Not Found|GPU requires reset)",
    re.IGNORECASE,
)


def read_cuda(excerpt: Excerpt) -> Iterator[Fact]:
    """Return codes of cuInit and friends, and NVML's refusals, as programs print them."""
    for line in excerpt.lines:
        text = line.text
        if (
            match := re.search(
                r"\bcuInit\b(?:\(0\))?\D{0,40}?(?:returned|failed|rc|=|:|->)\D{0,20}?(\d{1,4})\b",
                text,
            )
        ) or (match := re.search(r"\bError (3|100|101|80[234]|999): [a-z]", text)):
            yield excerpt.fact("cuda/init", int(match[1]), line)
        else:
            for name, code in _CUDA_ERRORS.items():
                if name in text:
                    yield excerpt.fact("cuda/init", code, line)
        if "Driver/library version mismatch" in text:
            yield excerpt.fact("nvml/error", "Driver/library version mismatch", line)
        elif "Failed to initialize NVML" in text:
            match = re.search(r"Failed to initialize NVML: (.+)$", text)
            yield excerpt.fact("nvml/error", match[1] if match else "unknown", line)
        elif "couldn't communicate with the NVIDIA driver" in text:
            yield excerpt.fact("nvml/error", "Driver Not Loaded", line)
        elif "couldn't find libnvidia-ml.so" in text:
            yield excerpt.fact("nvml/error", "nvidia-smi finds no libnvidia-ml.so", line)
        elif text.strip() in ("No devices were found", "No devices found."):
            yield excerpt.fact("nvml/error", "No devices were found", line)
        if match := _UNREACHED.search(text):
            yield excerpt.fact(f"nvml/unreached/{match['gpu']}", match["error"].strip(" ."), line)
        if match := re.search(
            r"\b(?:NVML library|library) version:?\s*(\d{3}\.\d+(?:\.\d+)?)", text
        ):
            yield excerpt.fact("nvml/library_version", match[1], line)
