"""Where the load comes from, over a real sshd: host, this machine, tunnel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from backends.bench.place import Place, beside, from_here, tunnelled
from backends.bench.results import RunResult, RunStatus
from backends.bench.runner import Run, prepare_run
from backends.config import Config, HostConfig
from backends.hub import RoomHub
from tests.bench.conftest import Scheduled, closed
from tests.bench_live.conftest import DEADLINE_S
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]


def room(lab: SshLab) -> RoomHub:
    config = HostConfig(name="gpu01", target="gpu01", python=sys.executable)
    return RoomHub([config], Config(ssh=lab.settings()))


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not test():  # noqa: ASYNC110 - sessions are polled
            await asyncio.sleep(0.02)


async def measure(there: Place, requests: int = 8) -> RunResult:
    prepared = await prepare_run(closed(2, requests), there.endpoint, there.fetch, room=there.room)
    prepared.findings.extend(there.findings)
    run = Run(
        prepared, there.generator, there.fetch, gpus=there.gpus, environment=there.environment
    )
    async with asyncio.timeout(DEADLINE_S):
        return await run.execute()


@pytest.mark.parametrize("options", [(), ("MaxSessions 2",)])
async def test_from_the_host_from_here_and_through_the_connection(
    ssh_lab: SshLab, scheduled: Scheduled, options: tuple[str, ...]
) -> None:
    ssh_lab.server(options=options)
    endpoint = scheduled.endpoint()
    async with room(ssh_lab) as hub:
        session = hub.session("gpu01")
        await until(lambda: session.snapshot.sampled_s is not None)
        results = [await measure(beside(session, endpoint, "t", sys.executable))]
        results.append(await measure(from_here(session, endpoint, "t")))
        async with tunnelled(session, endpoint, "t") as there:
            assert there.endpoint.port != endpoint.port
            results.append(await measure(there))
    assert [result.client.where for result in results] == ["host", "local", "tunnel"]
    assert {result.target.url for result in results} == {endpoint.url}
    for result in results:
        assert result.status is RunStatus.COMPLETE
        assert (result.steps[0].succeeded, result.steps[0].failures) == (8, {})
        assert result.environment.host == "gpu01"
    assert "tunnel" in {finding.key for finding in results[2].findings}
