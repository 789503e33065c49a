"""The server with a known schedule, and this machine as the host of a room, with a real agent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest_asyncio

from backends.config import Config, HostConfig
from backends.hub import HostSession, RoomHub
from tests.bench.conftest import scheduled

__all__ = ["scheduled"]
DEADLINE_S = 60.0


@pytest_asyncio.fixture
async def here() -> AsyncIterator[HostSession]:
    """This machine as a host of the room."""
    config = HostConfig(name="here", target="local", python=sys.executable)
    async with RoomHub([config], Config()) as hub:
        session = hub.session("here")
        async with asyncio.timeout(DEADLINE_S):
            while session.snapshot.sampled_s is None:  # noqa: ASYNC110 - the room is polled
                await asyncio.sleep(0.02)
        yield session
