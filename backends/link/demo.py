"""The demo host: its SSH server runs as a child of this process, and is reached like any other.

Only the starting of that child is special. What follows is `SshTransport` with a configuration of
its own: a real connection with real keys, made for this run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backends.config import SshConfig
from backends.errors import LinkError
from backends.link.base import Channel, NobodyToAsk
from backends.link.limiter import Limiter
from backends.link.local import tail_text
from backends.link.ssh import SshTransport
from backends.link.target import SshTarget
from backends.link.threads import in_thread
from backends.sim import scenarios
from backends.sim.profiles import port_of

_ROOT: Final = Path(__file__).resolve().parents[2]
_START_S: Final = 15.0
_END_S: Final = 0.5
_ALIAS: Final = "demo"


class DemoTransport:
    """The way to the demo host.

    Raises:
        UsageError: There is no such scenario.
    """

    kind = "demo"

    def __init__(self, host: str, scenario: str, settings: SshConfig, limiter: Limiter) -> None:
        self._host = host
        self._scenario = scenarios.find(scenario).name
        self._settings = settings
        self._limiter = limiter
        self._child: asyncio.subprocess.Process | None = None
        self._way_in: dict[str, object] = {}
        self._ssh: SshTransport | None = None

    async def connect(self) -> None:
        """Start the demo host unless it runs, and log in.

        Raises:
            LinkError: It does not start.
        """
        if self._child is None or self._child.returncode is not None:
            await self._start()
        # The key lies on disk only until the login is done, readable by the user alone.
        folder = await in_thread(
            lambda: tempfile.TemporaryDirectory(prefix="gpuroom-demo-", ignore_cleanup_errors=True)
        )
        with folder:
            config_file = await in_thread(
                lambda: write_way_in(Path(folder.name), self._way_in, [_ALIAS])
            )
            self._ssh = SshTransport(
                self._host,
                SshTarget(_ALIAS),
                SshConfig(
                    config_file=str(config_file),
                    connect_timeout_s=self._settings.connect_timeout_s,
                    keepalive_s=self._settings.keepalive_s,
                    keepalive_count=self._settings.keepalive_count,
                    compression=self._settings.compression,
                ),
                NobodyToAsk(),
                self._limiter,
            )
            await self._ssh.connect()

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program there."""
        if self._ssh is None:
            raise LinkError(f"There is no link to {self._host}")
        return await self._ssh.open(argv)

    async def closed(self) -> str:
        """Wait until the connection is gone and say why."""
        return "not connected" if self._ssh is None else await self._ssh.closed()

    async def close(self) -> None:
        """Let go of the connection, and end the demo host."""
        ssh, self._ssh = self._ssh, None
        if ssh is not None:
            await ssh.close()
        child, self._child = self._child, None
        if child is not None:
            await _end(child, self._disk())

    def _disk(self) -> list[str]:
        """The folder of the demo host, where it has run."""
        return [str(self._way_in["disk"])] if "disk" in self._way_in else []

    async def _start(self) -> None:
        # The disk: a host that was rebooted is gone, and goes on from that.
        # The client's side of SSH takes as long to import as the server's: do both at once.
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "backends.sim.server",
            self._scenario,
            str(port_of(self._host)),
            *self._disk(),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._child = child
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            async with asyncio.timeout(_START_S):
                warm_up = in_thread(_import_client)
                line, _ = await asyncio.gather(child.stdout.readline(), warm_up)
            self._way_in = json.loads(line)
        except (TimeoutError, ValueError) as error:
            await _end(child)
            said = tail_text(await child.stderr.read())
            raise LinkError("The demo host does not start", said.rpartition("\n")[2]) from error


def _import_client() -> None:
    import backends.link.route  # noqa: F401


def write_way_in(folder: Path, way_in: dict[str, object], names: Sequence[str]) -> Path:
    """Write an SSH configuration that leads to a demo host by each of `names`; gives its path."""
    key = folder / "key"
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(str(way_in["client_key"]))
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(f"{_ALIAS} {way_in['host_key']}\n")
    config_file = folder / "config"
    config_file.write_text(
        f"Host {' '.join(names)}\n"
        "  HostName 127.0.0.1\n"
        f"  Port {way_in['port']}\n"
        f"  HostKeyAlias {_ALIAS}\n"
        f"  IdentityFile {key}\n"
        "  IdentitiesOnly yes\n"
        "  IdentityAgent none\n"
        f"  UserKnownHostsFile {known_hosts}\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    return config_file


async def _end(child: asyncio.subprocess.Process, disk: Sequence[str] = ()) -> None:
    """The end of its input is its order to leave; one that does not is killed, its disk removed."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        for folder in disk:
            await in_thread(functools.partial(_remove, Path(folder)))


def _remove(disk: Path) -> None:
    if not (disk / scenarios.REBOOTING).exists():
        shutil.rmtree(disk, ignore_errors=True)
