"""GPUs for hosts of tests: a driver that a control file steers, on the product's own way."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path

import pytest

from backends.agent.client import AgentClient
from backends.servers.desk import ServerDesk

FAKE_NVML = Path(__file__).parent.parent / "agent" / "fake_nvml.py"
GIB = 1 << 30


class Gpus:
    """The control file (tests/agent/fake_nvml.py says what it may hold)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.now(gpus=2)

    def now(self, **world: object) -> None:
        """From now on."""
        known = json.loads(self._path.read_text()) if self._path.exists() else {}
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(known | world))
        new.replace(self._path)


def install(path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Every agent that is started from now on finds these GPUs."""
    text = FAKE_NVML.read_text(encoding="utf-8")
    source = text.replace('SETTINGS.get("control", "")', repr(str(path)))
    assert source != text
    monkeypatch.setattr(
        "backends.sources.AgentClient", functools.partial(AgentClient, pynvml_source=source)
    )
    return Gpus(path)


async def seen(desk: ServerDesk) -> None:
    """Until the first sample of the GPUs is there."""
    async with asyncio.timeout(30):
        while not desk.host.snapshot.gpus:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
