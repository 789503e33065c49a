"""A host with fake GPUs: libcuda, NVML and the tools are ours, sshd and the agent are real."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from backends.agent import loader
from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.session import HostSession
from backends.tuning.gather import reached
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
DEADLINE_S = 60.0
HERE = Path(__file__).parent
GPUS = ("0000:01:00.0", "0000:02:00.0")


class FakeGpus:
    """A python whose libcuda is `fake_cuda`, and a folder of tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values: dict[str, Any] = {"gpus": list(GPUS)}
        self.world = folder / "cuda.json"
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            (HERE / "fake_cuda.py").read_text(encoding="utf-8"), encoding="utf-8"
        )
        shutil.copytree(HERE / "fake_torch", site / "torch")
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.python = self.tool(
            "python-with-gpus",
            f"export FAKE_CUDA={shlex.quote(str(self.world))}\n"
            f"export PYTHONPATH={shlex.quote(str(site))}\n"
            f'exec {shlex.quote(sys.executable)} "$@"',
        )
        self.set()

    def set(self, **values: Any) -> None:
        """Change the GPUs."""
        self.values.update(values)
        new = self.world.with_suffix(".new")
        new.write_text(json.dumps(self.values))
        new.replace(self.world)

    def tool(self, name: str, script: str) -> str:
        """A program of the host, in sh; gives its path."""
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def prints(self, name: str, text: str, status: int = 0) -> None:
        """A tool that prints this."""
        printed = self.folder / f"{name}.txt"
        printed.write_text(text)
        self.tool(name, f"cat {shlex.quote(str(printed))}; exit {status}")


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    folder = tmp_path / "gpus"
    folder.mkdir()
    return FakeGpus(folder)


@pytest.fixture
def nvml(gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpus]:
    """The same GPUs in NVML."""
    text = (HERE / "fake_nvml.py").read_text(encoding="utf-8")
    text = text.replace("@@WORLD@@", str(gpus.world))
    monkeypatch.setattr(loader, "_pynvml_source", lambda: text)
    loader._modules.cache_clear()
    yield gpus
    loader._modules.cache_clear()


Reach: TypeAlias = Callable[..., AbstractAsyncContextManager[HostSession]]


@pytest.fixture
def at_host(ssh_lab: SshLab, gpus: FakeGpus) -> Reach:
    """A session of a host, through an sshd of its own, whose PATH begins with the tools."""

    @asynccontextmanager
    async def opened(**config: Any) -> AsyncIterator[HostSession]:
        host = HostConfig(name="gpu01", **config)
        ssh_lab.server(host.name, path=f"{gpus.tools}:/usr/bin:/bin")
        whole = Config(hosts=(host,), ssh=ssh_lab.settings())
        async with RoomHub([host], whole) as hub:
            (session,) = hub.sessions
            await reached(session, DEADLINE_S)
            yield session

    return opened
