"""Where a load comes from, and what goes with it.

Beside the server is the way to measure. From this machine, directly, is how its users have it,
network and all; through the SSH connection is for a server that only its own host can reach, and
costs what a result then says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Protocol, runtime_checkable

from backends.bench.agent_channel import AgentChannel
from backends.bench.endpoint import Endpoint, Fetch, direct
from backends.bench.gpuwindow import GpuSampler
from backends.bench.onhost import ASKED_BY, HostGenerator, through
from backends.bench.preflight import Room, local_room
from backends.bench.process import Generator, LocalGenerator
from backends.bench.results import Environment, Finding, Severity
from backends.errors import NoSession, RoomError, UsageError
from backends.link.base import Channel, Forward
from backends.model import HostSnapshot
from backends.servers.host import Host

NO_LIMIT: Final = 1 << 30
"""Descriptors of a host are not known here; the generator looks for itself."""
TRIES: Final = 5


class Origin(StrEnum):
    """Where the load comes from."""

    HOST = "host"
    JUMPBOX = "jumpbox"
    TUNNEL = "tunnel"


@runtime_checkable
class HostSession(Host, Protocol):
    """What is needed of a host of the room, beyond being asked."""

    @property
    def peer(self) -> str | None:
        """Its address, where it is reached directly."""
        ...

    async def open(self, argv: Sequence[str], *, asked_by: str, what: str) -> Channel:
        """Start a program there."""
        ...

    async def forward(self, address: str, port: int, *, asked_by: str, what: str) -> Forward:
        """Lead a port of this machine to an address as seen from there."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the load comes from.

    Attributes:
        generator: Sends the load.
        fetch: Small requests to the server, from there.
        room: What the machine has for the generator.
        environment: What is known of the server's host.
        endpoint: The server, as seen from where the load comes from.
        gpus: Watches the host's GPUs; None where they are out of sight.
        session: The server's host; None where it is out of sight.
        findings: What the way to the server costs.
    """

    generator: Generator
    fetch: Fetch
    room: Room
    environment: Environment
    endpoint: Endpoint
    gpus: GpuSampler | None = None
    session: HostSession | None = None
    findings: tuple[Finding, ...] = field(default=())


def here(endpoint: Endpoint, version: str) -> Place:
    """From this machine; nothing is known of the server's host."""
    return Place(
        LocalGenerator(), direct(endpoint), local_room(), Environment(gpuroom=version), endpoint
    )


def beside(session: HostSession, endpoint: Endpoint, version: str, python: str) -> Place:
    """From the host itself; `endpoint` is the server as seen from there.

    Raises:
        UsageError: The server speaks TLS.
    """

    async def opener(argv: Sequence[str]) -> Channel:
        return await open_beside(session, argv, "start the load generator")

    snapshot = session.snapshot
    readings = snapshot.readings
    room = Room(
        NO_LIMIT,
        None,
        readings.cpu_count or 1,
        readings.load_1m if readings.cpu_count is not None else None,
    )
    return Place(
        HostGenerator(opener, python),
        through(session, endpoint),
        room,
        environment_of(snapshot, version),
        endpoint,
        gpus_of(session),
        session,
    )


async def open_beside(session: HostSession, argv: Sequence[str], what: str) -> Channel:
    """Start a program on the host: in a session of its own, else in the agent's.

    Raises:
        NoSession: There is no further session, and no agent that could start it.
        LinkError: There is no link.
    """
    try:
        return await session.open(argv, asked_by=ASKED_BY, what=what)
    except NoSession as error:
        try:
            return await AgentChannel.start(session, argv, asked_by=ASKED_BY, what=what)
        except RoomError:
            raise error from None


def from_here(session: HostSession, endpoint: Endpoint, version: str) -> Place:
    """From this machine, over the network, to a server of the host.

    Args:
        session: The server's host: its GPUs and all that produced the figures are in sight.
        endpoint: The server as seen from its host; a loopback address becomes the host's own.
        version: Of gpuroom.

    Raises:
        UsageError: The host's own address is not known here.
    """
    if is_loopback(endpoint.host):
        # This machine as a host is reached by no SSH, and loopback is right.
        address = session.peer if session.snapshot.link.transport != "local" else endpoint.host
        if address is None:
            raise UsageError(
                f"the address of {session.name} is not known from here",
                "it is reached through a jump host",
                "give the server's address as seen from here: --url http://ADDRESS:PORT",
            )
        endpoint = replace(endpoint, host=address)
    return Place(
        LocalGenerator(where="local"),
        direct(endpoint),
        local_room(),
        environment_of(session.snapshot, version),
        endpoint,
        gpus_of(session),
        session,
    )


@contextlib.asynccontextmanager
async def tunnelled(session: HostSession, endpoint: Endpoint, version: str) -> AsyncIterator[Place]:
    """From this machine, through the SSH connection, for as long as the block lasts.

    `endpoint` is the server as seen from the host. What the tunnel adds to a request is measured.

    Raises:
        LinkError: The host is not reached by SSH, or its sshd forbids forwarding.
        UsageError: The server speaks TLS.
    """
    if endpoint.tls:
        hint = "its certificate is for its own name: --from jumpbox"
        raise UsageError("a server under TLS is not measured through a tunnel", hint=hint)
    what = "forward a port for the benchmark"
    forward = await session.forward(endpoint.host, endpoint.port, asked_by=ASKED_BY, what=what)
    try:
        near = replace(endpoint, host="127.0.0.1", port=forward.port, shown=endpoint.url)
        fetch = direct(near)
        yield Place(
            LocalGenerator(where="tunnel"),
            fetch,
            local_room(),
            environment_of(session.snapshot, version),
            near,
            gpus_of(session),
            session,
            (await _cost(fetch),),
        )
    finally:
        await forward.close()


async def _cost(fetch: Fetch) -> Finding:
    """What the tunnel costs a small request, at least, with what is known of larger loads."""
    taken = []
    for _ in range(TRIES):
        began_s = time.perf_counter()
        try:
            await fetch("GET", "/v1/models", timeout_s=10.0)
        except RoomError:
            break
        taken.append(time.perf_counter() - began_s)
    least = f"; a small request takes {min(taken) * 1e3:.1f} ms at least" if taken else ""
    return Finding(
        key="tunnel",
        severity=Severity.WARNING,
        text="the load goes through the SSH connection, which delays every token and carries a "
        f"limited load{least}: measure on the host where you can",
    )


def gpus_of(session: HostSession) -> GpuSampler:
    """Watches the GPUs of a host, energy counters included."""

    async def refresh() -> object:
        what = "read the energy counters"
        return await session.request("refresh", asked_by=ASKED_BY, what=what, timeout_s=2.0)

    return GpuSampler(lambda: session.snapshot, time.monotonic, refresh)


def is_loopback(host: str) -> bool:
    """Whether a name or address means the machine itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


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
