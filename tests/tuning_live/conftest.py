"""A tree for a host, reached through a real sshd with the real agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.session import HostSession
from backends.tuning import apply as applying
from backends.tuning import prepare, rollback
from backends.tuning.engine import evaluate
from backends.tuning.findings import Finding
from backends.tuning.gather import Gathered, Reading, gather, reached
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Result
from backends.tuning.steps import Form, Plan
from tests.sshd import SshLab, ssh_lab
from tests.tuning_live.tree import Tree, make_host

__all__ = ["ssh_lab"]
DEADLINE_S = 60.0


@dataclass
class Bench:
    """A host that is judged and changed below its folder."""

    machines: Machines
    tree: Tree
    below: Tree | None = None
    deadline_s: float = 8.0

    @property
    def reading(self) -> Reading:
        below = "" if self.below is None else str(self.below.folder)
        return Reading(root=str(self.tree.folder), below=below, deadline_s=self.deadline_s)

    async def judge(self) -> tuple[Gathered, dict[str, Finding]]:
        found = await gather(
            self.machines.host,
            hypervisor=self.machines.hypervisor,
            reading=self.reading,
            timeout_s=DEADLINE_S,
        )
        return found, {finding.check: finding for finding in evaluate(found.document)}

    async def plan(self, *ids: str, form: Form = Form.RUNTIME) -> Plan:
        found, findings = await self.judge()
        chosen = prepare.choose(list(findings.values()), ids)
        return await prepare.prepare(self.machines, found, chosen, form=form, reading=self.reading)

    async def carry_out(self, plan: Plan) -> dict[str, Result]:
        results = await applying.apply(self.machines, plan, reading=self.reading)
        found, findings = await self.judge()
        facts = found.document.facts
        verified = applying.verify(results, plan, list(findings.values()), facts)
        return {r.check: r for r in verified}

    async def back(
        self, plan: Plan, results: Sequence[Result], *, force: bool = False
    ) -> list[Result]:
        return await rollback.roll_back(
            self.machines, plan.snapshot, results, force=force, reading=self.reading
        )


async def until(test: Callable[[], object]) -> None:
    """Wait for a condition, with a generous deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not test():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


Open: TypeAlias = Callable[..., AbstractAsyncContextManager[list[HostSession]]]


@pytest.fixture
def open_hosts(ssh_lab: SshLab) -> Open:
    """Sessions of hosts by name, each at an sshd of its own."""

    @asynccontextmanager
    async def opened(
        *hosts: HostConfig, path: str | None = None
    ) -> AsyncIterator[list[HostSession]]:
        for host in hosts:
            ssh_lab.server(host.name, path=path)
        config = Config(hosts=hosts, ssh=ssh_lab.settings())
        async with RoomHub(hosts, config) as hub:
            for session in hub.sessions:
                await reached(session, DEADLINE_S)
            yield list(hub.sessions)

    return opened


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_host(tmp_path / "root")
