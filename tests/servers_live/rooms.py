"""A real session on this machine, and the desk of its servers."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.servers.catalogue import load_catalogue
from backends.servers.desk import ServerDesk
from backends.servers.lifecycle import Assessment, Policy, State
from backends.servers.profiles import Profile, resolve_profiles
from backends.servers.watch import ServerWatch
from backends.session import HostSession
from backends.storage.starts import StartHistory
from backends.tuning.gather import reached
from tests.sshd import free_port

DEADLINE_S = 60.0
LLAMA = str(Path(__file__).with_name("llama.py"))
QUICK = str(Path(__file__).with_name("quick.py"))
SCRIPTED = str(Path(__file__).with_name("scripted.py"))


def profile_of(name: str = "tiny", **more: object) -> Profile:
    table = {"name": name, "host": "here", "engine": "custom", "command": ["true"], **more}
    (profile,) = resolve_profiles([table])
    return profile


OF_THIS_RUN = f"-{os.getpid()}"
"""Ends names that are compared with what the whole machine has: others may run the same tests."""


def llama_profile(model: Path, name: str = f"tiny{OF_THIS_RUN}", **more: object) -> Profile:
    port = free_port()
    command = [sys.executable, LLAMA, "--model", str(model), "--port", str(port)]
    return profile_of(name, engine="llamacpp", command=command, port=port, **more)


def quick_profile(name: str = "quick", *words: str, **more: object) -> Profile:
    """A server that is ready within a moment, and says so on /health."""
    port = free_port()
    command = [sys.executable, QUICK, "--port", str(port), *words]
    ready = {"path": "/health"}
    return profile_of(name, command=command, port=port, ready=ready, **more)


class Play:
    """A server whose log and answers a test writes while it runs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "play.json"
        self._told: dict[str, object] = {}
        self.port = free_port()
        self.now()

    def now(self, **told: object) -> None:
        """From now on: `say`, `answers`, `busy`, each as a whole."""
        self._told |= told
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._told))
        new.replace(self._path)

    def profile(self, engine: str, *, port: bool = True, workers: Sequence[str] = (),
                **more: object) -> Profile:  # fmt: skip
        """A profile that starts it."""
        command = [sys.executable, SCRIPTED, str(self._path)]
        command += [word for title in workers for word in ("--worker", title)]
        if port:
            command += ["--port", str(self.port)]
            more["port"] = self.port
        return profile_of("played", engine=engine, command=command, stop_grace_s=3, **more)


@contextlib.asynccontextmanager
async def watching(
    profile: Profile, *, policy: Policy | None = None, starts: StartHistory | None = None
) -> AsyncIterator[ServerWatch]:
    """Started and watched; stopped at the end."""
    async with desk_of(profile, policy=policy, starts=starts) as desk:
        run = await desk.start(profile)
        try:
            async with await desk.watch(run, profile) as watch:
                yield watch
        finally:
            await desk.stop(run, grace_s=1)


@contextlib.asynccontextmanager
async def desk_of(
    *profiles: Profile,
    host: HostConfig | None = None,
    config: Config | None = None,
    starts: StartHistory | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[ServerDesk]:
    """The desk of a host that is reached; by default of this machine."""
    host = host or HostConfig(name="here", target="local", python=sys.executable)
    async with RoomHub([host], config or Config()) as hub:
        session: HostSession = hub.sessions[0]
        await reached(session, DEADLINE_S)
        yield ServerDesk(session, profiles, load_catalogue(), starts, policy=policy)


def is_state(*states: State) -> Callable[[Assessment], bool]:
    return lambda found: found.state in states


def members_alive(*run_ids: str) -> list[int]:
    """Processes of this machine that carry the marker of one of these runs."""
    wanted = {f"GPUROOM_RUN={run_id}".encode() for run_id in run_ids}
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted & set(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                    found.append(int(entry))
    return found


def toml_of(path: Path, **table: object) -> Path:
    import tomli_w

    path.write_text(tomli_w.dumps(json.loads(json.dumps({"servers": [table]}))))
    return path
