"""A host and the hypervisor below it, as changes see them; when one is to be handled with care."""

from __future__ import annotations

from dataclasses import dataclass

from backends.model import GpuProcess
from backends.session import HostSession
from backends.tuning.facts import Vantage


@dataclass(frozen=True, slots=True)
class Machines:
    """A host, and the hypervisor below it where there is one."""

    host: HostSession
    hypervisor: HostSession | None = None

    def at(self, vantage: Vantage) -> HostSession:
        """The session that changes are made through."""
        if vantage is Vantage.HOST and self.hypervisor is not None:
            return self.hypervisor
        return self.host

    @property
    def vantages(self) -> dict[Vantage, str]:
        """Names by vantage."""
        if self.hypervisor is None:
            return {Vantage.HOST: self.host.name}
        return {Vantage.GUEST: self.host.name, Vantage.HOST: self.hypervisor.name}

    @property
    def sessions(self) -> tuple[HostSession, ...]:
        """The host, then its hypervisor."""
        return (self.host,) if self.hypervisor is None else (self.host, self.hypervisor)


def holders(session: HostSession) -> list[GpuProcess]:
    """Processes that compute on a host's GPUs: a server that serves is one of them."""
    return [p for p in session.snapshot.processes if p.kind == "compute"]


def needs_name(machines: Machines) -> str:
    """Why the host's name must be typed before a change; empty where a yes is enough.

    A host whose GPUs may be at work for somebody who can't be seen is taken for one that serves.
    """
    for session in machines.sessions:
        if session.config.production:
            return f"{session.name} is marked production"
        holding = holders(session)
        if holding:
            return (
                f"{len(holding)} processes hold GPUs of {session.name}: {holding[0].command[:60]}"
            )
        snapshot = session.snapshot
        if snapshot.gpus and not snapshot.processes_listed:
            return f"what runs on the GPUs of {session.name} is not known"
        for verdict in snapshot.verdicts:
            if verdict.word == "GHOST":
                return f"a GPU of {session.name} is in use: {verdict.evidence}"
    return ""
