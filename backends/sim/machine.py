"""What is on the demo host besides its cards: its PATH, and the servers that run on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from backends.sim.profiles import SERVER, command

FIRST_RUN: Final = "20260101-000000-demo"
AGE_S: Final = 5 * 3600 + 1234.0
"""For how long the first server has been up when the demo begins."""


def environment(folder: Path) -> dict[str, str]:
    """Variables of every program on the demo host; makes its `sglang`.

    Args:
        folder: The demo host's own; what is started there is kept in it.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    source = resources.files("backends.sim").joinpath("engine.py").read_text(encoding="utf-8")
    program = programs / "sglang"
    program.write_text(source, encoding="utf-8")
    program.chmod(0o755)
    path = (str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "XDG_STATE_HOME": str(folder / "state"),
        "GPUROOM_DEMO": str(folder),
        "GPUROOM_DEMO_PID": str(os.getpid()),
    }


class DemoServers:
    """The servers of a demo host.

    Args:
        folder: The demo host's own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = folder / "state" / "gpuroom" / "servers"

    def start_first(self, port: int) -> None:
        """Have one run as if somebody had started it hours ago; takes some tenths of a second."""
        from backends.agent.remote import servers

        os.environ.update(environment(self._folder))
        servers.start(
            {
                "profile": SERVER,
                "run_id": FIRST_RUN,
                "argv": list(command(port)),
                "env": {"GPUROOM_DEMO_AT_ONCE": "1"},
                "port": port,
                "engine": "sglang",
                "by": "anna",
                "origin": "jumpbox",
            }
        )
        path = self._home / SERVER / FIRST_RUN / "id.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        record["started_at"] -= AGE_S
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(path)

    def end(self) -> None:
        """Switch the machine off: nothing that was started on it goes on."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _pids(self) -> Iterator[int]:
        from backends.agent.remote import members

        for path in self._home.glob("*/*/id.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text(encoding="utf-8"))
                if members.is_alive(record["pid"], record["start_ticks"]):
                    yield int(record["pid"])
