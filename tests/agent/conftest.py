"""A real agent on this machine, with a pynvml that a test makes ill."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.agent.client import AgentClient
from backends.link.local import LocalTransport

FAKE = (Path(__file__).parent / "fake_nvml.py").read_text(encoding="utf-8")
DEADLINE_S = 30.0


class Told:
    """What an agent said, and waiting for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self._news = asyncio.Event()

    def __call__(self, method: str, params: Mapping[str, object]) -> None:
        self.messages.append((method, dict(params)))
        self._news.set()

    def of(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.messages if name == method]

    def last(self, method: str) -> dict[str, Any]:
        return self.of(method)[-1]

    def here(self) -> int:
        return len(self.messages)

    async def until(
        self,
        method: str,
        test: Callable[[dict[str, Any]], bool] = lambda params: True,
        since: int = 0,
    ) -> dict[str, Any]:
        """The first notification after `since` that passes the test."""
        seen = since
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for name, params in self.messages[seen:]:
                    if name == method and test(params):
                        return params
                seen = len(self.messages)
                self._news.clear()
                await self._news.wait()


class World:
    """The control file of the fake pynvml."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "world.json"
        self.values: dict[str, Any] = {}
        self.set()

    def set(self, **values: Any) -> None:
        self.values.update(values)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.values))
        new.replace(self.path)


class Room:
    """An agent, its world, and what it said."""

    def __init__(self, client: AgentClient, world: World, told: Told) -> None:
        self.client = client
        self.world = world
        self.told = told

    def row(self, lane: str, index: int) -> dict[str, Any]:
        """The newest row of a GPU, by key."""
        return self.keyed(self.told.last(lane), lane, index)

    def keyed(self, params: dict[str, Any], lane: str, index: int) -> dict[str, Any]:
        columns = self.told.of("hello")[-1]["columns"][lane]["g"]
        return dict(zip(columns, params["g"][index], strict=True))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest_asyncio.fixture
async def start(world: World) -> AsyncIterator[Callable[..., Any]]:
    """Start an agent with `interval_s` and, where needed, another python."""
    clients: list[AgentClient] = []

    async def begin(python: str = "", **settings: object) -> Room:
        told = Told()
        chosen = {"interval_s": 0.2, "control": str(world.path), **settings}
        client = AgentClient(
            LocalTransport(),
            python=python or "python3",
            on_notification=told,
            settings=chosen,
            pynvml_source=FAKE,
        )
        clients.append(client)
        await client.start(DEADLINE_S)
        return Room(client, world, told)

    yield begin
    for client in clients:
        await client.close()
