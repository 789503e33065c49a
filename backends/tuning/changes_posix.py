"""Changes on a host without python3: its own programs, each by its argument vector.

Contents travel over standard input into `dd`, which takes a number of bytes and ends; no shell
takes part and nothing is assembled. A value is one write, a file is made beside its place and
renamed. What was shown is compared once more just before; unlike the agent this takes no lock, so
a change in that very moment by somebody else is seen only by the reading afterwards.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Sequence
from typing import Final

from backends.agent.remote.changes import LINE, SEARCHED
from backends.errors import AgentError, RoomError
from backends.session import HostSession
from backends.text import clean
from backends.tuning.changed import Carried, Done, Looked, RootNeeded
from backends.tuning.steps import File, Step

MAX_BYTES: Final = 1 << 20
PROGRAM_S: Final = 120.0
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
NO_SUCH_NAME: Final = re.compile(
    r"(?:Permission denied|Operation not permitted|Invalid argument|File name too long"
    r"|not supported)$",
    re.MULTILINE,
)
NOT_THERE: Final = re.compile(r"No such file or directory$", re.MULTILINE)


def without_python(session: HostSession) -> bool:
    """Whether this host is read by its own programs alone."""
    return session.snapshot.link.via in ("nvidia-smi", "tools")


class Hands:
    """Reads and changes files of one host, and runs commands there.

    Args:
        session: Of the host.
        root: A folder that stands for `/` there.
        password: For sudo; there is no way to give one here, and it is refused with its reason.
    """

    def __init__(self, session: HostSession, root: str, password: str | None = None) -> None:
        self._session = session
        self._root = root.rstrip("/")
        self._password = password
        self._sudo: tuple[str, ...] | None = None

    async def read(self, paths: Sequence[str]) -> Looked:
        """What files hold now, and which boot runs.

        Raises:
            LinkError: There is no link.
            RootNeeded: It may not read as root.
        """
        await self._become_root()
        files = {path: await self._look(path) for path in paths}
        return Looked(await self._boot_id(), files)

    async def carry_out(self, steps: Sequence[Step], boot_id: str) -> Carried:
        """The steps of one fix; the first that fails ends it.

        Raises:
            ReadOnlyError: The host is read-only here.
            LinkError: There is no link.
            RootNeeded: It may not act as root.
        """
        await self._become_root()
        now = await self._boot_id()
        if not now or now != boot_id:
            words = f"the host runs another boot ({now or 'unknown'}) than was shown"
            return Carried(words, (), ())
        for step in steps:
            if step.kind != "command" and step.compare:
                found = (await self._look(step.path)).data
                if found not in (step.old, step.goal):
                    return Carried(f"{step.path} is no longer as it was shown", (), ())
        began_s = await self._uptime_s()
        done: list[Done] = []
        for step in steps:
            done.append(await self._step(step))
            if not done[-1].ok:
                return Carried("", tuple(done), await self._kernel_since(began_s))
        return Carried("", tuple(done), ())

    async def _step(self, step: Step) -> Done:
        if step.kind == "command":
            status, output = await self._command(step.argv)
            error = "" if status == 0 else f"exit status {status}"
            return Done(status == 0, error, _tail(output), None)
        try:
            if step.kind == "write":
                await self._fill(step.path, step.new, "nocreat")
            elif step.kind == "file":
                await self._install(step.path, step.new, step.mode)
            else:
                await self._must("rm", "--", self._at(step.path))
            error = ""
        except _Failed as failed:
            error = str(failed)
        found = await self._look(step.path)
        if found.error and not error:
            error = f"written, but can't be read: {found.error}"
        return Done(not error, error, "", found.data)

    async def _look(self, path: str) -> File:
        status, told, errors = await self._program(
            "stat", "-L", "-c", "%F|%a", "--", self._at(path)
        )
        if status != 0:
            return File(None, error="" if NOT_THERE.search(errors) else _last(errors))
        kind, _, mode = told.decode("utf-8", "replace").strip().partition("|")
        if not kind.startswith("regular"):
            return File(None, error="not a file")
        status, data, errors = await self._program(
            "head", "-c", str(MAX_BYTES + 1), "--", self._at(path)
        )
        if status != 0:
            return File(None, error=_last(errors))
        if len(data) > MAX_BYTES:
            return File(None, error="EFBIG")
        return File(data, int(mode, 8) if re.fullmatch(r"[0-7]{3,4}", mode) else None)

    async def _fill(self, path: str, data: bytes, *flags: str) -> None:
        """All of it in one write."""
        if not data:
            if "nocreat" in flags:
                raise _Failed("nothing to write")
            return
        await self._must(
            "dd", f"of={self._at(path)}", f"bs={len(data)}", "count=1", "iflag=fullblock",
            f"conv={','.join(flags)}", "status=none", given=data,
        )  # fmt: skip

    async def _install(self, path: str, data: bytes, mode: int | None) -> None:
        """The whole file at once; one that is there keeps its mode and owner."""
        status, told, _ = await self._program("readlink", "-f", "--", self._at(path))
        place = told.decode("utf-8", "replace").strip() if status == 0 else self._at(path)
        path = place.removeprefix(self._root)
        there = await self._look(path)
        mode = there.mode if there.mode is not None else mode
        folder, name = posixpath.split(path)
        if there.data is None:
            await self._must("mkdir", "-p", "--", self._at(folder))
        new = f"{folder}/.{name}.gpuroom-new"
        status, _, errors = await self._program(
            "install", "-m", "600", "/dev/null", self._at(new), changes=True
        )
        if status != 0:
            if not NO_SUCH_NAME.search(errors):  # full or read-only: it would be left in part
                raise _Failed(_last(errors) or f"install: exit status {status}")
            # A file system of its own kind (/etc/pve) may take no such name: write in place.
            await self._fill(path, data, "fsync")
            return
        try:
            await self._fill(new, data, "fsync")
            if there.data is not None:
                await self._must("chown", f"--reference={self._at(path)}", "--", self._at(new))
            await self._must("chmod", f"{0o644 if mode is None else mode:o}", "--", self._at(new))
            await self._must("mv", "-f", "-T", "--", self._at(new), self._at(path))
        except _Failed:
            await self._program("rm", "-f", "--", self._at(new), changes=True)
            raise
        await self._program("sync", self._at(folder))

    async def _command(self, argv: Sequence[str]) -> tuple[int | None, str]:
        words = ["LC_ALL=C", "PATH=" + ":".join(self._root + folder for folder in SEARCHED)]
        program = argv[0]
        if self._root:
            words.append(f"GPUROOM_ROOT={self._root}")
            program = self._at(program) if program.startswith("/") else program
        status, data, errors = await self._program("env", *words, program, *argv[1:], changes=True)
        return status, data.decode("utf-8", "replace") + errors

    async def _must(self, *argv: str, given: bytes = b"") -> None:
        status, _, errors = await self._program(*argv, given=given, changes=True)
        if status != 0:
            raise _Failed(_last(errors) or f"{argv[0]}: exit status {status}")

    async def _become_root(self) -> None:
        """Find out once whether we are root, or sudo lets us be."""
        if self._sudo is not None:
            return
        self._sudo = ()
        _, told, _ = await self._program("id", "-u")
        if told.strip() == b"0":
            return
        name = self._session.name
        why = "a password can't be given to sudo there without python3"
        allowed = False
        if self._password is None:
            status, _, errors = await self._program("sudo", "-n", "true")
            allowed, why = status == 0, _last(errors)
        if not allowed:
            hint = "log in as root, or allow `sudo -n`"
            raise RootNeeded(f"not allowed as root on {name}", why, hint)
        self._sudo = ("sudo", "-n")

    async def _boot_id(self) -> str:
        data = (await self._look(BOOT_ID)).data
        return clean((data or b"").decode("utf-8", "replace").strip(), 64)

    async def _uptime_s(self) -> float:
        _, data, _ = await self._program("cat", "/proc/uptime")
        match = re.match(rb"(\d+\.\d+)", data)
        return float(match[1]) if match else 0.0

    async def _kernel_since(self, began_s: float) -> tuple[str, ...]:
        """The kernel's own lines since then; empty where it may not be read."""
        try:
            status, output = await self._command(("dmesg",))
        except RoomError:
            return ()
        lines = [
            clean(line, 300)
            for line in (output.split("\n") if status == 0 else [])
            if (match := LINE.match(line)) and float(match[1]) >= began_s - 0.5
        ]
        return tuple(lines[-40:])

    def _at(self, path: str) -> str:
        return self._root + path

    async def _program(
        self, *argv: str, given: bytes = b"", changes: bool = False
    ) -> tuple[int | None, bytes, str]:
        """Status, output and the end of the error output of a program.

        Raises:
            LinkError: There is no link, or it was lost: whether it was done is not known.
            AgentError: It did not end in time.
        """
        what = "change settings" if changes else "read what would change"
        whole = (*(self._sudo or ()), "env", "LC_ALL=C", *argv)
        channel = await self._session.open(
            whole, asked_by="tuning", what=what, changes_host=changes
        )
        try:
            async with asyncio.timeout(PROGRAM_S):
                if given:
                    await channel.write(given)
                data = bytearray()
                while len(data) <= MAX_BYTES and (chunk := await channel.read()):
                    data += chunk
                status = await channel.wait(5.0)
                return status, bytes(data), await channel.stderr_tail()
        except TimeoutError:
            raise AgentError(f"{argv[0]} did not end on {self._session.name}") from None
        finally:
            await channel.close()


class _Failed(Exception):
    """A program that a step needs ended with an error; its own words."""


def _last(errors: str) -> str:
    return clean(errors.strip().split("\n")[-1], 300)


def _tail(output: str) -> str:
    return "\n".join(clean(line, 300) for line in output.split("\n")[-20:])
