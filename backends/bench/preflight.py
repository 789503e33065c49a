"""Checks before a run: findings, not silence."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from backends.bench.identify import READY_PATHS, Server
from backends.bench.plan import Choice, Length, Plan, Uniform
from backends.bench.results import Finding, Severity
from backends.bench.servermetrics import Reading, difference
from backends.bench.steps import StepSpec

DESCRIPTORS_BESIDE = 64
"""What the generator holds besides its connections."""
TOKENS_PER_CORE = 40_000
"""Tokens a second that one worker reads event by event (`benchmarks/loadgen_accuracy.py`)."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the machine that sends the load has.

    Attributes:
        descriptors: Most open files of a process.
        ports: Ephemeral ports, or None where unknown.
        cpus: Processors the generator may use.
        load: Processes that ran or wanted to in the last minute, or None.
    """

    descriptors: int
    ports: int | None
    cpus: int
    load: float | None


def local_room() -> Room:
    """This machine's."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ports = None
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = file.read().split()
        ports = int(high) - int(low) + 1
    except (OSError, ValueError):
        pass
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    return Room(
        descriptors=hard if hard != resource.RLIM_INFINITY else 1 << 30,
        ports=ports,
        cpus=cpus or 1,
        load=load,
    )


def client_room(room: Room, steps: Sequence[StepSpec]) -> list[Finding]:
    """Whether the machine that sends the load can carry it."""
    findings = []
    streams = max((step.concurrency or 0 for step in steps), default=0)
    if streams + DESCRIPTORS_BESIDE > room.descriptors:
        findings.append(
            Finding(
                key="descriptors",
                severity=Severity.ERROR,
                text=f"{streams} streams need as many descriptors, and {room.descriptors} are "
                "allowed: raise the hard limit (ulimit -Hn)",
            )
        )
    if room.ports is not None and streams > room.ports * 0.8:
        findings.append(
            Finding(
                key="ports",
                severity=Severity.ERROR,
                text=f"{streams} streams to one server need as many ports, and the system has "
                f"{room.ports} (net.ipv4.ip_local_port_range)",
            )
        )
    if room.load is not None and room.load > max(1.0, 0.5 * room.cpus):
        findings.append(
            Finding(
                key="client_busy",
                severity=Severity.WARNING,
                text=f"this machine is busy: load {room.load:.1f} on {room.cpus} processors",
            )
        )
    workers = min(room.cpus, math.ceil(streams / 512)) if streams else 1
    if streams > 1024 * room.cpus:
        findings.append(
            Finding(
                key="client_cores",
                severity=Severity.WARNING,
                text=f"{streams} streams on {workers} worker(s): one reads some "
                f"{TOKENS_PER_CORE} tokens a second event by event; set `sample` in the plan",
            )
        )
    return findings


def fits(plan: Plan, server: Server) -> list[Finding]:
    """Whether the plan's lengths fit the server."""
    findings: list[Finding] = []
    least = max((_least(part.input) + _least(part.output) for part in plan.parts), default=0)
    most = max((_most(part.input) + _most(part.output) for part in plan.parts), default=0)
    if server.context is not None and least > server.context:
        findings.append(
            Finding(
                key="context",
                severity=Severity.ERROR,
                text=f"requests of {least} tokens do not fit a context of {server.context}",
            )
        )
    elif server.context is not None and most > server.context:
        findings.append(
            Finding(
                key="context",
                severity=Severity.WARNING,
                text=f"requests of up to {most} tokens are among those of the plan, and the "
                f"context is {server.context}: they will fail",
            )
        )
    if server.engine == "unknown":
        findings.append(
            Finding(
                key="unknown_engine",
                severity=Severity.WARNING,
                text="the server does not say which engine it is: only the OpenAI routes are used, "
                "and nothing of its own metrics is known",
            )
        )
    return findings


def _least(length: Length) -> int:
    """Tokens that every request of a part has."""
    if isinstance(length, int):
        return length
    return min(length.values) if isinstance(length, Choice) else length.low


def _most(length: Length) -> int:
    """Tokens that some requests of a part will have; where nothing cuts them off, the mean."""
    if isinstance(length, int):
        return length
    if isinstance(length, Choice):
        return max(length.values)
    if isinstance(length, Uniform):
        return length.high
    return length.high or round(length.mean)


def idle(readings: Sequence[Reading], error: str | None) -> list[Finding]:
    """Whether somebody else uses the server, by two readings of its own metrics."""
    if not readings:
        return [
            Finding(
                key="no_server_metrics",
                severity=Severity.INFO,
                text=f"foreign load cannot be told: {error or 'the server has no metrics'}",
            )
        ]
    last = readings[-1]
    busy = []
    for name, words in (("running", "requests running"), ("waiting", "waiting")):
        value = last.get(name)
        if value:
            busy.append(f"{value:g} {words}")
    made = difference(readings, "output_tokens")
    if made:
        seconds = readings[-1].at_s - readings[0].at_s
        busy.append(f"{made / max(seconds, 1e-9):.0f} output tokens/s")
    if not busy:
        return []
    return [
        Finding(
            key="foreign_load",
            severity=Severity.ERROR,
            text="somebody else is using the server: " + ", ".join(busy),
        )
    ]


def ready_path(server: Server) -> str | None:
    """The route that says whether the server is ready, where there is one."""
    return READY_PATHS.get(server.engine)


def not_ready(path: str, status: int) -> Finding:
    """The server answers, and says that it is not ready."""
    return Finding(
        key="not_ready",
        severity=Severity.ERROR,
        text=f"the server is not ready: {path} answers with {status}",
    )


def refuses(findings: Sequence[Finding]) -> list[Finding]:
    """The findings with which a run would be worthless."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]
