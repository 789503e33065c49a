"""Where a load comes from, and what goes with it: this machine, or the server's own host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from backends.bench.endpoint import Endpoint, Fetch, direct
from backends.bench.gpuwindow import GpuSampler
from backends.bench.onhost import ASKED_BY, Asker, HostGenerator, through
from backends.bench.preflight import Room, local_room
from backends.bench.process import Generator, LocalGenerator
from backends.bench.results import Environment
from backends.link.base import Channel
from backends.model import HostSnapshot

NO_LIMIT: Final = 1 << 30
"""Descriptors of a host are not known here; the generator looks for itself."""


@runtime_checkable
class HostSession(Asker, Protocol):
    """What is needed of a host of the room."""

    @property
    def name(self) -> str:
        """Its name in the room."""
        ...

    @property
    def snapshot(self) -> HostSnapshot:
        """All that is known of it now."""
        ...

    async def open(self, argv: Sequence[str], *, asked_by: str, what: str) -> Channel:
        """Start a program there."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the load comes from.

    Attributes:
        generator: Sends the load.
        fetch: Small requests to the server, from there.
        room: What the machine has for the generator.
        environment: What is known of the server's host.
        gpus: Watches the host's GPUs; None where they are out of sight.
        session: The server's host; None where it is out of sight.
    """

    generator: Generator
    fetch: Fetch
    room: Room
    environment: Environment
    gpus: GpuSampler | None = None
    session: HostSession | None = None


def here(endpoint: Endpoint, version: str) -> Place:
    """From this machine; nothing is known of the server's host."""
    return Place(LocalGenerator(), direct(endpoint), local_room(), Environment(gpuroom=version))


def beside(session: HostSession, endpoint: Endpoint, version: str, python: str) -> Place:
    """From the host itself; `endpoint` is the server as seen from there.

    Raises:
        UsageError: The server speaks TLS.
    """

    async def opener(argv: Sequence[str]) -> Channel:
        return await session.open(argv, asked_by=ASKED_BY, what="start the load generator")

    snapshot = session.snapshot
    readings = snapshot.readings
    return Place(
        HostGenerator(opener, python),
        through(session, endpoint),
        Room(
            NO_LIMIT,
            None,
            readings.cpu_count or 1,
            readings.load_1m if readings.cpu_count is not None else None,
        ),
        environment_of(snapshot, version),
        GpuSampler(lambda: session.snapshot, time.monotonic),
        session,
    )


def environment_of(snapshot: HostSnapshot, version: str) -> Environment:
    """What the room knows of a host, as a result keeps it."""
    driver = snapshot.driver
    gpus: list[dict[str, str | int | float | None]] = [
        {
            "uuid": gpu.uuid,
            "name": gpu.name,
            "bus_id": gpu.bus_id,
            "power_limit_w": gpu.readings.power_limit_enforced_w,
            "power_limit_default_w": gpu.readings.power_limit_default_w,
            "power_limit_max_w": gpu.readings.power_limit_max_w,
            "memory_total_bytes": gpu.readings.memory_total_bytes,
            "sm_clock_max_mhz": gpu.readings.sm_clock_max_mhz,
            "memory_clock_max_mhz": gpu.readings.memory_clock_max_mhz,
            "vbios_version": gpu.readings.vbios_version,
        }
        for gpu in snapshot.gpus
    ]
    return Environment(
        gpuroom=version,
        host=snapshot.host,
        kernel=snapshot.readings.kernel,
        driver=driver.version if driver is not None else None,
        cuda=driver.cuda_version if driver is not None else None,
        boot_id=snapshot.readings.boot_id,
        gpus=tuple(gpus),
    )
