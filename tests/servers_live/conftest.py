"""A real agent on this machine, with a state folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.agent.client import AgentClient
from backends.link.local import LocalTransport
from backends.sim import nvml

DEADLINE_S = 40.0
NVML_SOURCE = Path(nvml.__file__).read_text(encoding="utf-8")


class Host:
    """An agent and what tests ask of it."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self._runs = 0

    async def ask(self, method: str, **params: object) -> Any:
        return await self.client.request(method, params, timeout_s=DEADLINE_S)

    async def start(self, profile: str, *argv: str, **more: object) -> Any:
        self._runs += 1
        run_id = f"{profile}-{id(self)}-{self._runs}"
        return await self.ask(
            "servers.start", profile=profile, run_id=run_id, argv=list(argv), by="me", **more
        )

    async def python(self, profile: str, code: str, **more: object) -> Mapping[str, Any]:
        """Start a python program as a server and give its record."""
        answer = await self.start(profile, sys.executable, "-c", code, **more)
        assert "started" in answer, answer
        record: Mapping[str, Any] = answer["started"]
        return record

    async def stop(self, folder: str, **params: object) -> list[Any]:
        """Every piece that a stop sends, the last one being `done`."""
        async with contextlib.aclosing(
            self.client.stream("servers.stop", {"dir": folder, "by": "me", **params})
        ) as pieces:
            return [piece async for piece in pieces]

    async def until(self, folder: str, test: Any, **params: object) -> Any:
        """Look at a run until `test(state)`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                state = await self.ask("servers.look", dir=folder, **params)
                if test(state):
                    return state
                await asyncio.sleep(0.05)


async def new_host() -> Host:
    """Another operator's agent on the same host."""
    client = AgentClient(
        LocalTransport(),
        python=sys.executable,
        on_notification=lambda method, params: None,
        pynvml_source=NVML_SOURCE,
    )
    await client.start(DEADLINE_S)
    return Host(client)


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started here is kept in a folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest_asyncio.fixture
async def host(tmp_path: Path, own_state: None) -> AsyncIterator[Host]:
    found = await new_host()
    yield found
    with contextlib.suppress(Exception):
        for state in await found.ask("servers.list"):
            if state["record"]["dir"].startswith(str(tmp_path)):
                await found.stop(state["record"]["dir"], grace_s=0)
    await found.client.close()
