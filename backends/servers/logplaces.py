"""Where the log of a server lies on its host: by path, pid, or the name it is known by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.errors import UsageError
from backends.servers.logstore import LogHost
from backends.text import clean


async def find_log(host: LogHost, server: str, *, asked_by: str) -> str:
    """The path of a log file on the host.

    Args:
        host: The host.
        server: An absolute path (or one that begins with `~`), a pid, or the profile of a run that
            gpuroom started there; else a word of the command line of a server that listens there.
        asked_by: Who asks.

    Raises:
        UsageError: There is no such server, or its output goes to no file.
    """
    if server.startswith(("/", "~")):
        return server
    if server.isdigit():
        return await log_of_process(host, int(server), asked_by=asked_by)
    runs = _records(
        await host.request("servers.list", {}, asked_by=asked_by, what="look for servers")
    )
    mine = [record for record in runs if record.get("profile") == server]
    if mine:
        newest = max(mine, key=lambda record: _float(record.get("started_at")))
        return str(newest.get("log", ""))
    found = await host.request("servers.candidates", {}, asked_by=asked_by, what="look for servers")
    pids = [
        _int(entry.get("pid"))
        for entry in (found if isinstance(found, list) else [])
        if isinstance(entry, dict) and _says(entry.get("argv"), server)
    ]
    if len(pids) == 1:
        return await log_of_process(host, pids[0], asked_by=asked_by)
    profiles = sorted({clean(str(record.get("profile"))) for record in runs})
    if pids:
        raise UsageError(
            f"{len(pids)} servers on {host.name} fit {server!r}",
            f"pids {', '.join(map(str, pids))}",
            "give a pid",
        )
    raise UsageError(
        f"no server {server!r} on {host.name}",
        f"started from here: {', '.join(profiles)}" if profiles else "",
        "give a profile, a pid, or the absolute path of a log file on the host",
    )


async def log_of_process(host: LogHost, pid: int, *, asked_by: str) -> str:
    """The file that a process writes its output to.

    Raises:
        UsageError: It writes to no file.
        AgentError: There is no such process.
    """
    told = await host.request(
        "servers.describe", {"pid": pid}, asked_by=asked_by, what=f"look at pid {pid}"
    )
    facts: Mapping[object, object] = told if isinstance(told, dict) else {}
    names = [facts.get("stderr"), facts.get("stdout")]
    for name in names:
        if isinstance(name, str) and name.startswith("/") and not name.startswith("/dev/"):
            return name.removesuffix(" (deleted)")
    where = next((clean(name) for name in names if isinstance(name, str)), "nowhere visible")
    raise UsageError(
        f"the output of pid {pid} goes to no file",
        f"it goes to {where}",
        "a terminal or a pipe can't be read from outside; give the path of its log file",
    )


def _records(answer: object) -> list[Mapping[str, object]]:
    states = answer if isinstance(answer, list) else []
    records = [state.get("record") for state in states if isinstance(state, dict)]
    return [record for record in records if isinstance(record, dict)]


def _says(argv: object, word: str) -> bool:
    words: Sequence[object] = argv if isinstance(argv, list) else []
    return any(word.lower() in str(part).lower() for part in words)


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
