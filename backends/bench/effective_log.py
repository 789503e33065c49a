"""What a server runs with by its own log, for engines whose HTTP endpoints do not tell."""

from __future__ import annotations

import asyncio
from typing import Final

from backends.errors import AgentError, UsageError
from backends.servers.effective import EffectiveReader
from backends.servers.engines import EngineId
from backends.servers.host import CommandResult, Host, run_command, unpack
from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.lines import LogLine, LogReader
from backends.servers.logplaces import log_of_process
from backends.text import clean

PIECE_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 8 << 20
"""A server says what it runs with while it starts; so much from the beginning holds that."""
COMMAND_S: Final = 15.0


async def effective_by_log(host: Host, pid: int, engine: EngineId) -> dict[str, str]:
    """What the log of a process tells; empty where it tells nothing.

    Raises:
        UsageError: Its output can't be read from outside.
        AgentError: It can't be read, or the agent is gone.
    """
    place = await log_of_process(host, pid)
    data = await (_of_command(host, place) if place.argv else _of_file(host, place))
    return await asyncio.to_thread(read_effective, data, engine)


def read_effective(data: bytes, engine: EngineId) -> dict[str, str]:
    """Read a log; of several starts in one file each value is the newest's."""
    reader = EffectiveReader(engine)
    lines = LogReader(updates=False)
    for event in (*lines.feed(data), *lines.feed(b"\n")):
        if isinstance(event, LogLine):
            reader.take(event)
    return {clean(name, 100): clean(value, 300) for name, value in reader.merged.items()}


async def _of_file(host: Host, place: LogPlace) -> bytes:
    data = bytearray()
    while len(data) < MAX_BYTES:
        answer = await host.request(
            "files.read",
            {"path": place.path, "offset": place.begins_at + len(data), "size": PIECE_BYTES},
            asked_by="bench",
            what=f"read {place.path}",
            timeout_s=30.0,
        )
        if not isinstance(answer, dict):
            raise AgentError("the agent's answer about a log cannot be read")
        piece = await asyncio.to_thread(unpack, str(answer.get("z", "")))
        if not piece:
            break
        data += piece
    return bytes(data)


async def _of_command(host: Host, place: LogPlace) -> bytes:
    if place.kind not in (LogKind.COMMAND, LogKind.SCREEN):
        raise UsageError(f"{place.words} cannot be read once")
    told: CommandResult = await run_command(
        host, list(place.argv_once), asked_by="bench", what="read the log", timeout_s=COMMAND_S
    )
    # `docker logs` gives the program's standard error as its own.
    return f"{told.out}\n{told.err}".encode()[:MAX_BYTES]
