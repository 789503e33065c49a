"""Facts of a host without python3: files by `find` and `grep`, commands as they are.

Only argument vectors travel; what `find` finds it hands to `grep` itself, so no shell takes part.
Registers of PCI devices, NVML, CUDA and attempts to open a node cannot be had this way: what
rests on them stays UNKNOWN, and a note says so.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from backends.errors import LinkError
from backends.session import HostSession
from backends.tuning.facts import Fact, Value, Vantage
from backends.tuning.probes import Probe, ProbeKind
from backends.tuning.view import expression

MAX_BYTES: Final = 8 << 20
AT_ONCE: Final = 3
"""Programs at a time: sshd allows ten sessions a connection, and others use some."""
FILES_AT_ONCE: Final = 150
NOTE: Final = "no python3 there: read with find, grep and stat; registers, NVML and CUDA were not"
_REFUSED: Final = re.compile(
    r"(?:grep|ls|stat|find): (?:cannot \w+ )?['\u2018]?(?P<path>/[^:'\u2019]+)['\u2019]?"
    r"(?: for reading)?: (?P<words>No such file or directory|Permission denied|Not a directory)"
)
_ERRNO: Final = {
    "No such file or directory": "ENOENT",
    "Permission denied": "EACCES",
    "Not a directory": "ENOTDIR",
}


async def gather_posix(
    session: HostSession, probes: Sequence[Probe], vantage: Vantage, root: str = "/"
) -> list[Fact]:
    """What can be read without python3, as the agent would give it.

    Args:
        session: A host with a link; its source need not be the agent.
        probes: Those that are for this vantage; kinds that need python are left out.
        vantage: From where it is seen.
        root: A folder that stands for `/` on the host.

    Raises:
        LinkError: The link is gone.
    """
    reader = _Reader(session, vantage, root.rstrip("/"))
    await asyncio.gather(*(reader.run(job) for job in _jobs(probes)))
    return list(reader.facts.values())


def _jobs(probes: Sequence[Probe]) -> Iterable[tuple[ProbeKind, tuple[Probe, ...]]]:
    files = [p for p in probes if p.kind is ProbeKind.FILE]
    for begin in range(0, len(files), FILES_AT_ONCE):
        yield ProbeKind.FILE, tuple(files[begin : begin + FILES_AT_ONCE])
    folders: dict[str, list[Probe]] = defaultdict(list)
    for probe in probes:
        if probe.kind is ProbeKind.GLOB:
            folders[_base(probe.target)].append(probe)
        elif probe.kind in (ProbeKind.LINK, ProbeKind.STAT, ProbeKind.LISTING, ProbeKind.COMMAND):
            yield probe.kind, (probe,)
    for below in folders.values():
        yield ProbeKind.GLOB, tuple(below)


def _base(pattern: str) -> str:
    """The folder above the first part with a star."""
    parts = pattern.split("/")
    first = next(n for n, part in enumerate(parts) if re.search(r"[*?\[]", part))
    return "/".join(parts[:first])


class _Reader:
    def __init__(self, session: HostSession, vantage: Vantage, root: str) -> None:
        self._session = session
        self._vantage = vantage
        self._root = root
        self._free = asyncio.Semaphore(AT_ONCE)
        self._at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.facts: dict[str, Fact] = {}

    def _keep(self, key: str, value: Value | None, source: str, error: str | None = None) -> None:
        self.facts[key] = Fact(key, value, source, error, self._at, self._vantage)

    async def run(self, job: tuple[ProbeKind, tuple[Probe, ...]]) -> None:
        kind, probes = job
        how = {
            ProbeKind.FILE: self._files,
            ProbeKind.GLOB: self._glob,
            ProbeKind.LINK: self._link,
            ProbeKind.STAT: self._stat,
            ProbeKind.LISTING: self._listing,
            ProbeKind.COMMAND: self._command,
        }[kind]
        async with self._free:
            await how(probes)

    async def _program(self, argv: Sequence[str]) -> tuple[int | None, str, str]:
        """Status, output and the end of the error output of a program."""
        channel = await self._session.open(
            ("env", "LC_ALL=C", *argv), asked_by="tuning", what="read facts"
        )
        try:
            data = bytearray()
            while len(data) < MAX_BYTES and (chunk := await channel.read()):
                data += chunk
            status = await channel.wait(5.0)
            return status, data.decode("utf-8", "replace"), await channel.stderr_tail()
        finally:
            await channel.close()

    def _lines(self, text: str, wanted: Sequence[Probe], errors: str) -> None:
        """Lines of `grep -H`, as the values of their files."""
        found: dict[str, list[str]] = defaultdict(list)
        for line in text.split("\n"):
            path, colon, content = line.partition(":")
            # Addresses of PCI devices hold colons: the path ends where grep put a zero byte.
            if "\0" in line:
                path, colon, content = line.partition("\0")
            if colon and path.startswith(self._root + "/"):
                found[path.removeprefix(self._root)].append(content)
        tests = [expression(probe.target) for probe in wanted]
        for path, rows in found.items():
            if any(test.fullmatch(path) for test in tests):
                self._keep(path, "\n".join(rows), path)
        for refused in _REFUSED.finditer(errors):
            path = refused["path"].removeprefix(self._root)
            if path not in self.facts and any(test.fullmatch(path) for test in tests):
                self._keep(path, None, path, _ERRNO[refused["words"]])

    async def _files(self, probes: Sequence[Probe]) -> None:
        paths = [self._root + probe.target for probe in probes]
        _, text, errors = await self._program(["grep", "-H", "-Z", "", "--", *paths])
        self._lines(text, probes, errors)

    async def _glob(self, probes: Sequence[Probe]) -> None:
        base = _base(probes[0].target)
        deep = max(probe.target.count("/") for probe in probes) - base.count("/")
        names = sorted({probe.target.rsplit("/", 1)[1] for probe in probes})
        either: list[str] = []
        for name in names:
            either += ["-o", "-name", name] if either else ["-name", name]
        # Folders of sysfs classes hold links; elsewhere following them would go round in circles.
        follow = "-L" if base.startswith(("/sys/bus", "/sys/class", "/sys/block")) else "-H"
        _, text, errors = await self._program(
            ["find", follow, self._root + base, "-maxdepth", str(deep), "-type", "f",
             "(", *either, ")", "-exec", "grep", "-H", "-Z", "", "{}", "+"]
        )  # fmt: skip
        self._lines(text, probes, errors)

    async def _link(self, probes: Sequence[Probe]) -> None:
        (probe,) = probes
        target = probe.target
        base = _base(target) if "*" in target else target.rsplit("/", 1)[0]
        deep = target.count("/") - base.count("/")
        _, text, _ = await self._program(
            ["find", self._root + base + "/", "-maxdepth", str(deep + 1), "-type", "l",
             "-printf", "%p\\t%l\\n"]
        )  # fmt: skip
        test = expression(target)
        for line in text.split("\n"):
            path, tab, goal = line.partition("\t")
            path = path.removeprefix(self._root).replace("//", "/")
            if tab and test.fullmatch(path):
                self._keep(path, goal, path)

    async def _stat(self, probes: Sequence[Probe]) -> None:
        (probe,) = probes
        base = _base(probe.target) if "*" in probe.target else probe.target.rsplit("/", 1)[0]
        _, text, _ = await self._program(
            ["find", self._root + base + "/", "-maxdepth", "2", "-type", "c",
             "-exec", "stat", "-c", "%n %t %T %a %U %G", "{}", "+"]
        )  # fmt: skip
        test = expression(probe.target)
        for line in text.split("\n"):
            words = line.split()
            path = words[0].removeprefix(self._root).replace("//", "/") if words else ""
            if len(words) == 6 and test.fullmatch(path):
                major, minor = (int(word, 16) for word in words[1:3])
                told = f"{major}:{minor} {words[3]:0>4} {words[4]} {words[5]}"
                self._keep(f"node/{path}", told, f"stat {path}")

    async def _listing(self, probes: Sequence[Probe]) -> None:
        (probe,) = probes
        path = probe.target
        status, text, errors = await self._program(["ls", "-1A", "--", self._root + path])
        if status == 0:
            self._keep(path, sorted(name for name in text.split("\n") if name), path)
        elif refused := _REFUSED.search(errors):
            self._keep(path, None, path, _ERRNO[refused["words"]])

    async def _command(self, probes: Sequence[Probe]) -> None:
        (probe,) = probes
        key, words = f"cmd/{probe.target}", probe.target
        argv = list(probe.argv)
        if self._root:
            argv[0] = f"{self._root}/usr/bin/{argv[0]}"
        try:
            status, text, errors = await self._program(argv)
        except LinkError as error:
            self._keep(key, None, words, str(error))
            return
        if status == 127:
            self._keep(key, None, words, "ENOENT")
        elif text or status == 0:
            self._keep(key, text, words)
        else:
            refused = re.search(r"[Pp]ermission denied|Operation not permitted", errors)
            last = errors.strip().split("\n")[-1][:300]
            self._keep(key, None, words, "EACCES" if refused else last or f"exit status {status}")
