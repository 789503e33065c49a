"""A process and all that belongs to it, looked at by pid: what every launcher but one needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from backends.servers.host import Host, MemberFacts, PortFacts, StopAsked, convert
from backends.servers.launchers.base import RunLook

ASKED_BY = "servers"


class Inspected(msgspec.Struct, frozen=True):
    """What the agent tells of a process and its tree (`servers.inspect`)."""

    alive: bool
    start_ticks: int | None = None
    members: tuple[MemberFacts, ...] = ()
    cpu_s: float | None = None
    read_bytes: int | None = None
    port: PortFacts | None = None
    stop: StopAsked | None = None


async def inspect(
    host: Host, what: str, pid: int, *, start_ticks: int | None = None, port: int | None = None,
    cgroup: str | None = None, held: str | None = None,
) -> RunLook:  # fmt: skip
    """The process, its descendants and its cgroup now; `held` is the name it is held by."""
    answer = await host.request(
        "servers.inspect",
        {"pid": pid, "start_ticks": start_ticks, "port": port, "cgroup": cgroup, "held": held},
        asked_by=ASKED_BY,
        what=f"look at {what}",
        timeout_s=15.0,
    )
    told = convert(answer, Inspected, what)
    return RunLook(
        alive=told.alive,
        pid=pid if told.alive else None,
        members=told.members,
        cpu_s=told.cpu_s,
        read_bytes=told.read_bytes,
        port=told.port,
        stop=told.stop,
    )


class Described(msgspec.Struct, frozen=True):
    """What the agent tells of any process (`servers.describe`)."""

    pid: int
    start_ticks: int
    boot_id: str = ""
    argv: tuple[str, ...] = ()
    user: str | None = None
    container: str | None = None
    cwd: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    env: Mapping[str, str] | None = None
    env_differs: tuple[str, ...] = ()
    program: str | None = None
    ports: tuple[int, ...] = ()
    started: float | None = None
    age_s: float | None = None


async def describe(host: Host, pid: int) -> Described:
    """What is known of a process.

    Raises:
        AgentError: There is none of that pid.
    """
    answer = await host.request(
        "servers.describe", {"pid": pid}, asked_by=ASKED_BY, what=f"look at pid {pid}"
    )
    return convert(answer, Described, f"pid {pid}")


async def remaining(host: Host, members: Sequence[MemberFacts]) -> tuple[MemberFacts, ...]:
    """Which of these very processes still live."""
    if not members:
        return ()
    answer = await host.request(
        "servers.remaining",
        {"members": [[member.pid, member.start_ticks] for member in members]},
        asked_by=ASKED_BY,
        what="look what is left",
    )
    return convert(answer, tuple[MemberFacts, ...], "what is left")


class _Check(msgspec.Struct, frozen=True):
    port: PortFacts | None = None


async def port_facts(host: Host, port: int | None) -> PortFacts | None:
    """Who has a port."""
    if port is None:
        return None
    answer = await host.request(
        "servers.check", {"port": port}, asked_by=ASKED_BY, what=f"look at port {port}"
    )
    return convert(answer, _Check, f"port {port}").port
