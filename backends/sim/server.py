"""The demo host: a real SSH server on loopback whose NVML is simulated.

`python -m backends.sim.server SCENARIO PORT [DISK]` makes its keys, listens at a free port of
loopback, prints one line of JSON that says how to get in, and ends when its standard input ends,
with the temporary folder that stands for its disk and its /proc. PORT is its first server's. It
also ends when somebody reboots the host: then the folder stays, and whoever starts it again with
it as DISK has the same host after a boot.

Whoever logs in may run programs, as with any sshd. What is special about this host is its NVML and
its /proc: where a program is the agent's stub, `backends.sim.nvml` takes the place of `pynvml`
among the modules that were sent to it, and it is told where to look for processes. So both ends of
the link are the real ones, and nothing on the near side knows.

Its servers are real processes under the agent's real supervisors; what they run, `sglang` of the
host's PATH, is `backends.sim.engine`. One runs from the start where the scenario has load.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

import asyncssh

from backends.agent.loader import STUB
from backends.sim import boot, host_tree
from backends.sim.engine import STATE_FILE
from backends.sim.machine import DemoServers, environment
from backends.sim.nvml import SETUPS
from backends.sim.proc_tree import CPUS, KERNEL_LOG, ProcTree
from backends.sim.profiles import port_of
from backends.sim.scenarios import REBOOTING, nvml_source

PROC: Final = "proc"
HOST: Final = "host"
"""The folder that stands for `/` when the checklist reads or changes the demo host."""
PREFIX: Final = "gpuroom-demo-"
_MAX_PAYLOAD: Final = 8 << 20
_CHUNK: Final = 65536
_PROC_EVERY_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.25
SOMEBODY: Final = "reboot"
"""The scenario in which somebody reboots the host."""
PATIENCE_S: Final = 20.0
"""For how long nothing must have changed before they do."""


def simulated_modules(piece: bytes, scenario: str) -> bytes:
    """The modules that were sent to an agent (deflated JSON), with the simulated NVML in them.

    Raises:
        ValueError: It is not what an agent is sent.
    """
    return _packed({**_table(piece), "pynvml": nvml_source(scenario)})


def simulated_settings(piece: bytes, proc_root: Path) -> bytes:
    """The settings that were sent to an agent, with the places of the simulated /proc in them.

    The simulated driver writes to the kernel log, and learns from here where that is.

    Raises:
        ValueError: It is not what an agent is sent.
    """
    places = {
        "proc_root": str(proc_root),
        "kernel_log": str(proc_root / KERNEL_LOG),
        "engine_state": str(proc_root.parent / STATE_FILE),
        "root": str(proc_root.parent / HOST),
    }
    return _packed({**_table(piece), **places})


def _table(piece: bytes) -> dict[str, object]:
    try:
        found = json.loads(zlib.decompress(piece))
    except (zlib.error, ValueError) as error:
        raise ValueError(f"not what an agent is sent: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not what an agent is sent: no table")
    return found


def _packed(table: dict[str, object]) -> bytes:
    return zlib.compress(json.dumps(table).encode("ascii"))


class DemoServer(asyncssh.SSHServer):
    """Lets in whoever has the key of this run."""

    def __init__(self, client_key: asyncssh.SSHKey) -> None:
        self._client_key = client_key

    def begin_auth(self, username: str) -> bool:
        """Nobody gets in without a key."""
        return True

    def public_key_auth_supported(self) -> bool:
        """The only method."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether it is the key of this run."""
        return key == self._client_key


class Host:
    """Runs what a session asks for."""

    def __init__(self, scenario: str, folder: Path) -> None:
        self._scenario = scenario
        self._proc_root = folder / PROC
        self._root = folder / HOST
        self._environment = environment(folder)
        self.processes: set[asyncio.subprocess.Process] = set()

    async def serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the command of one session, as sshd does: by a shell, with three pipes."""
        command = session.command
        if command is None:
            session.exit(1)
            return
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=self._environment,
        )
        self.processes.add(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        forward = asyncio.create_task(self._forward_input(session, process.stdin, command))
        try:
            await asyncio.gather(
                _pump(process.stdout, session.stdout), _pump(process.stderr, session.stderr)
            )
            status = await process.wait()
            session.exit(status if status >= 0 else 128 - status)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the near side has left: the program sees the end of its input
        finally:
            forward.cancel()
            await asyncio.gather(forward, return_exceptions=True)
            self.processes.discard(process)
            session.close()

    async def _forward_input(
        self,
        session: asyncssh.SSHServerProcess[bytes],
        stdin: asyncio.StreamWriter,
        command: str,
    ) -> None:
        try:
            if STUB in command:
                await self._swap_payload(session, stdin)
            while data := await session.stdin.read(_CHUNK):
                boot.put_back(self._root)  # before whoever wrote it can look again
                stdin.write(data)
                await stdin.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncssh.Error):
            pass  # either side has gone: all that remains is the end of input
        finally:
            stdin.close()

    async def _swap_payload(
        self, session: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter
    ) -> None:
        program = await _counted(session)
        sent_modules = await _counted(session)
        settings = simulated_settings(await _counted(session), self._proc_root)
        modules = await asyncio.to_thread(simulated_modules, sent_modules, self._scenario)
        for piece in (program, modules, settings):
            stdin.write(b"%d\n" % len(piece) + piece)
        await stdin.drain()

    def end(self) -> None:
        """End every program that still runs."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


async def _counted(session: asyncssh.SSHServerProcess[bytes]) -> bytes:
    size = int(await session.stdin.readline())
    if not 0 <= size <= _MAX_PAYLOAD:
        raise ValueError(f"a piece of {size} bytes")
    return await session.stdin.readexactly(size)


async def _pump(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()


async def _end_of_input() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(_CHUNK):
        pass
    transport.close()


async def _keep_current(tree: ProcTree) -> None:
    while True:
        await asyncio.sleep(_PROC_EVERY_S)
        await asyncio.to_thread(tree.update)


async def _told_to_reboot(root: Path, scenario: str) -> None:
    """Wait until the host is told to boot again, by a program on it or by somebody."""
    while not boot.wants_reboot(root):
        await asyncio.sleep(_LOOK_EVERY_S)
        if scenario == SOMEBODY and (boot.changed_for_s(root) or 0.0) > PATIENCE_S:
            return


async def run(scenario: str, port: int, disk: Path | None = None) -> None:
    """Serve until standard input ends, or the host is rebooted."""
    again = disk is not None and (disk / REBOOTING).exists()
    folder = disk if disk is not None and again else Path(tempfile.mkdtemp(prefix=PREFIX))
    stays = False
    try:
        stays = await _up(scenario, port, folder, again=again)
    finally:
        if not stays:
            shutil.rmtree(folder, ignore_errors=True)


async def _up(scenario: str, port: int, folder: Path, *, again: bool) -> bool:
    """From one boot to the end of it; gives whether another one follows."""
    (folder / REBOOTING).unlink(missing_ok=True)
    (folder / PROC).mkdir(exist_ok=True)
    tree = ProcTree(folder / PROC, scenario, host=folder / HOST, again=again)
    tree.write()
    if again:
        boot.begin(folder / HOST)
    else:
        host_tree.write(folder / HOST, folder / PROC, CPUS, SETUPS[scenario].cards)
    keepers = [asyncio.create_task(_keep_current(tree))]
    servers = DemoServers(folder)
    if SETUPS[scenario].load > 0 and not again:
        keepers.append(asyncio.create_task(asyncio.to_thread(servers.start_first, port)))
    reboot = asyncio.create_task(_told_to_reboot(folder / HOST, scenario))
    try:
        return await _serve(Host(scenario, folder), reboot, folder)
    finally:
        for keeper in (*keepers, reboot):
            keeper.cancel()
        await asyncio.gather(*keepers, reboot, return_exceptions=True)
        servers.end()


async def _serve(host: Host, reboot: asyncio.Task[None], folder: Path) -> bool:
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: DemoServer(client_key.convert_to_public()),
        server_host_keys=[host_key],
        process_factory=host.serve,
        encoding=None,
        compression_algs=["zlib@openssh.com", "none"],
        allow_scp=False,
        sftp_factory=None,
    )
    way_in = {
        "port": server.get_port(),
        "host_key": host_key.export_public_key().decode("ascii").strip(),
        "client_key": client_key.export_private_key().decode("ascii"),
        "disk": str(folder),
    }
    print(json.dumps(way_in), flush=True)
    left = asyncio.create_task(_end_of_input())
    try:
        await asyncio.wait({left, reboot}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            return False
        (folder / REBOOTING).touch()  # before anybody can see that it is gone
        return True
    finally:
        left.cancel()
        host.end()
        server.close()


def main() -> int:
    """`python -m backends.sim.server SCENARIO PORT [DISK]`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the room
    scenario = sys.argv[1] if len(sys.argv) > 1 else "healthy"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else port_of("demo")
    asyncio.run(run(scenario, port, Path(sys.argv[3]) if len(sys.argv) > 3 else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
