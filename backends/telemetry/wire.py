"""The notifications of an agent (docs/agent.md), as far as their outline is checked here.

Rows stay untyped on purpose: one bad value or one bad GPU must not cost the rest of a sample, so
`backends.telemetry.cells` looks at each value by itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from backends.text import clean

T = TypeVar("T", bound=Struct)

MAX_GPUS = 256
MAX_PROCESSES = 1024
MAX_REASONS = 256

UNREADABLE = "unreadable-"
"""What the name of a GPU begins with that could not even be asked who it is."""

Stamp = Annotated[int, Meta(ge=0, le=2**62)]
Rows = Annotated[list[Any], Meta(max_length=MAX_GPUS)]
Reasons = dict[str, Any]


class Hello(Struct):
    """The first message."""

    python: str = ""
    pid: int = 0
    user: str = ""
    hostname: str = ""
    boot_id: str = ""
    has_psutil: bool = False
    nvml_version: str | None = None
    methods: list[str] = field(default_factory=list)
    columns: dict[str, dict[str, list[str]]] = field(default_factory=dict)


class GpuEntry(Struct):
    """One GPU of `gpus`."""

    uuid: Annotated[str, Meta(min_length=1, max_length=96)]
    index: Annotated[int, Meta(ge=0, le=4096)] = 0
    name: str = ""
    bus_id: str = ""
    once: dict[str, Any] = field(default_factory=dict)
    absent: Reasons = field(default_factory=dict)


class Gpus(Struct):
    """Which GPUs there are; `h` has what is read once of the host."""

    gpus: Rows
    h: dict[str, Any] | None = None


class Sample(Struct):
    """`fast`, `slow` and `pcie`."""

    t: Stamp
    g: Rows = field(default_factory=list)
    h: list[Any] | None = None
    m: dict[str, Any] | list[Any] | None = None


class Absent(Struct):
    """Why values are null."""

    g: list[Any] | dict[str, Any] = field(default_factory=list)
    h: Reasons = field(default_factory=dict)


class GpuStateChange(Struct):
    """Whether a GPU answers."""

    uuid: Annotated[str, Meta(max_length=96)]
    state: str
    detail: str = ""


class Driver(Struct):
    """What the driver is like."""

    state: str
    version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    detail: str | None = None
    age_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0


class Processes(Struct):
    """Who holds the GPUs."""

    p: Annotated[list[Any], Meta(max_length=MAX_PROCESSES)]
    t: Stamp | None = None


class Process(Struct):
    """One of `processes`."""

    pid: Annotated[int, Meta(ge=0, le=2**32)]
    start_ticks: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    user: str | None = None
    command: str | None = None
    memory_bytes: dict[str, Any] = field(default_factory=dict)
    kind: str = "compute"
    model: str | None = None
    container: str | None = None
    visible: bool = True
    cpu_pct: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    started: Annotated[float, Meta(ge=0, le=2e11)] | None = None


class Kernel(Struct):
    """Lines of the kernel log."""

    events: Annotated[list[Any], Meta(max_length=1000)]


class KernelLine(Struct):
    """One of `kernel`."""

    at: Annotated[float, Meta(ge=0, le=2e11)]
    kind: str
    text: str
    bus_id: str | None = None
    xid: Annotated[int, Meta(ge=0, le=100_000)] | None = None


class Note(Struct):
    """What can't be read on this host."""

    text: str


def convert(raw: object, kind: type[T]) -> T | None:
    """`raw` as `kind`, or None where it is not one."""
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def reasons(raw: object, known: object) -> dict[str, str]:
    """Reading key -> why it is absent, cleaned; keys that are no readings are dropped."""
    if not isinstance(raw, dict) or not isinstance(known, dict):
        return {}
    return {
        key: clean(reason, 200)
        for key, reason in list(raw.items())[:MAX_REASONS]
        if key in known and isinstance(reason, str) and reason
    }


def text_or_none(raw: str | None, limit: int = 256) -> str | None:
    """A cleaned text, or None where there is none."""
    return clean(raw, limit) if raw else None


def is_one_of(kind: type[StrEnum], raw: str) -> bool:
    """Whether `raw` is a value of the closed set `kind`."""
    return any(member.value == raw for member in kind)
