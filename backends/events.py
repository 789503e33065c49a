"""Rare facts about hosts that must reach whoever looks one by one: named in the past tense.

Readings travel as the newest value and may be merged; these may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from backends.model import Alert, DriverState, GpuState, HostSnapshot, Severity


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that happened at a host.

    Attributes:
        host: Its name in the room.
        at: When it was noticed, UTC.
    """

    host: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LinkLost(HostEvent):
    """The link went down after it had been live; it is being tried again."""

    why: str


@dataclass(frozen=True, slots=True)
class LinkRestored(HostEvent):
    """The link is live again."""

    down_s: float


@dataclass(frozen=True, slots=True)
class LinkRefused(HostEvent):
    """The link will not come about by itself: a person has to act."""

    why: str
    hint: str


@dataclass(frozen=True, slots=True)
class HostKeyRefused(LinkRefused):
    """The host answered with a key that is not trusted."""


@dataclass(frozen=True, slots=True)
class AgentRestarted(HostEvent):
    """The agent had ended or hung, and runs again on the same connection."""

    why: str


@dataclass(frozen=True, slots=True)
class HostRebooted(HostEvent):
    """The host came back with another boot id."""


@dataclass(frozen=True, slots=True)
class GpuLost(HostEvent):
    """A GPU stopped answering."""

    uuid: str
    index: int
    state: GpuState
    detail: str


@dataclass(frozen=True, slots=True)
class GpuReturned(HostEvent):
    """A GPU answers again."""

    uuid: str
    index: int


@dataclass(frozen=True, slots=True)
class DriverStuck(HostEvent):
    """A call into the driver does not come back."""

    detail: str


@dataclass(frozen=True, slots=True)
class DriverFailed(HostEvent):
    """The driver is missing, mismatched, reloading or in error."""

    state: DriverState
    detail: str


@dataclass(frozen=True, slots=True)
class DriverRecovered(HostEvent):
    """The driver answers again."""


@dataclass(frozen=True, slots=True)
class XidReported(HostEvent):
    """The kernel log has an Xid, the driver's word for a GPU error."""

    xid: int
    text: str
    uuid: str | None


def changes(before: HostSnapshot | None, after: HostSnapshot, at: datetime) -> Iterator[HostEvent]:
    """What happened between two snapshots of a host.

    Args:
        before: The earlier one; None for a host that was never seen.
        after: The later one.
        at: The time now, UTC.
    """
    yield from _driver_changes(before, after, at)
    yield from _gpu_changes(before, after, at)
    if before is None:
        return
    if before.agent and after.agent and before.agent.boot_id != after.agent.boot_id:
        yield HostRebooted(after.host, at)
    seen = set(before.kernel_events)
    by_bus = {gpu.bus_id: gpu.uuid for gpu in after.gpus}
    for event in after.kernel_events:
        if event.xid is not None and event not in seen:
            uuid = by_bus.get(event.bus_id) if event.bus_id else None
            yield XidReported(after.host, at, event.xid, event.text, uuid)


def _driver_changes(
    before: HostSnapshot | None, after: HostSnapshot, at: datetime
) -> Iterator[HostEvent]:
    if after.driver is None:
        return
    was = before.driver.state if before and before.driver else None
    now = after.driver.state
    if now is was:
        return
    if now is DriverState.OK:
        if was is not None:
            yield DriverRecovered(after.host, at)
    elif now is DriverState.STUCK:
        yield DriverStuck(after.host, at, after.driver.detail)
    else:
        yield DriverFailed(after.host, at, now, after.driver.detail)


def _gpu_changes(
    before: HostSnapshot | None, after: HostSnapshot, at: datetime
) -> Iterator[HostEvent]:
    was = {gpu.uuid: gpu.state for gpu in before.gpus} if before else {}
    for gpu in after.gpus:
        old = was.get(gpu.uuid, GpuState.OK)
        if gpu.state is old:
            continue
        if gpu.state is GpuState.OK:
            yield GpuReturned(after.host, at, gpu.uuid, gpu.index)
        elif old is GpuState.OK:
            yield GpuLost(after.host, at, gpu.uuid, gpu.index, gpu.state, gpu.state_detail)


def alert_of(event: HostEvent) -> Alert | None:
    """The notice that an event is worth by itself.

    What verdicts say of a link, a driver or a GPU becomes a notice with them (`backends.alerts`).
    """
    match event:
        case LinkRefused(why=why, hint=hint):
            return Alert(event.at, event.host, Severity.CRITICAL, why, hint)
        case AgentRestarted(why=why):
            return Alert(event.at, event.host, Severity.WARNING, "Agent restarted", why)
        case HostRebooted():
            return Alert(event.at, event.host, Severity.WARNING, "Host has been rebooted")
        case _:
            return None
