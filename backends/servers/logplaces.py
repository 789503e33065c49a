"""Where the log of a server is, by profile, pid, the name it is known by, or path."""

from __future__ import annotations

from collections.abc import Sequence

from backends.errors import UsageError
from backends.servers.desk import ServerDesk
from backends.servers.host import Host
from backends.servers.launchers.base import LogKind, LogPlace, Run
from backends.servers.launchers.foundlog import log_of
from backends.servers.launchers.inspected import describe
from backends.text import clean


async def find_log(desk: ServerDesk, server: str) -> LogPlace:
    """The log of a server of a host.

    Args:
        desk: The servers of the host.
        server: An absolute path (or one that begins with `~`), a pid, a profile, or the model of
            a server that runs there; else a word of the command line of one that listens there.

    Raises:
        UsageError: There is no such server, or its output can't be read from outside.
    """
    if server.startswith(("/", "~")):
        return LogPlace(LogKind.FILE, server)
    if server.isdigit():
        return await log_of_process(desk.host, int(server))
    runs = await desk.runs()
    mine = [run for run in runs if run.profile == server]
    if mine:
        return _log_of_run(max(mine, key=lambda run: run.started_at or 0.0))
    answer = await desk.host.request(
        "servers.candidates", {}, asked_by="logs", what="look for servers"
    )
    pids = [
        entry["pid"]
        for entry in (answer if isinstance(answer, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("pid"), int)
        and _says(entry.get("argv"), server)
    ]  # fmt: skip
    if len(pids) == 1:
        return await log_of_process(desk.host, pids[0])
    if pids:
        raise UsageError(
            f"{len(pids)} servers on {desk.host.name} fit {server!r}",
            f"pids {', '.join(map(str, pids))}",
            "give a pid",
        )
    known = sorted({clean(run.profile) for run in runs})
    raise UsageError(
        f"no server {server!r} on {desk.host.name}",
        f"there are: {', '.join(known)}" if known else "",
        "give a profile, a pid, or the absolute path of a log file on the host",
    )


async def log_of_process(host: Host, pid: int) -> LogPlace:
    """The log of a process, wherever its output goes.

    Raises:
        UsageError: It can't be read from outside.
        AgentError: There is no such process.
    """
    told = await describe(host, pid)
    place = await log_of(host, told)
    if place is None:
        where = told.stderr or told.stdout or "nowhere visible"
        raise UsageError(
            f"the output of pid {pid} can't be read from outside",
            f"it goes to {where}",
            "a terminal or a pipe keeps nothing; give the path of its log file",
        )
    return place


def _log_of_run(run: Run) -> LogPlace:
    if run.log is None:
        raise UsageError(
            f"the output of {run.profile} can't be read from outside",
            f"pid {run.pid}" if run.pid else "",
            "a terminal or a pipe keeps nothing; give the path of its log file",
        )
    return run.log


def _says(argv: object, word: str) -> bool:
    words: Sequence[object] = argv if isinstance(argv, list) else []
    return any(word.lower() in str(part).lower() for part in words)
