"""The server's host before and after a run: what serves, who is beside it, tuning, clock.

Nothing here stops a run from being made: what cannot be found out is a finding.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.bench import hostchecks, tuning_digest
from backends.bench.effective_log import effective_by_log
from backends.bench.identify import Server
from backends.bench.onhost import ASKED_BY
from backends.bench.place import HostSession
from backends.bench.provenance import Provenance, engine_of, what_serves
from backends.bench.results import Environment, Finding, RunResult, RunStatus, Severity
from backends.errors import RoomError
from backends.servers.host import CommandResult, run_command
from backends.servers.launchers.inspected import describe, inspect

ASK_S: Final = 5.0
STILL_S: Final = 3.0
"""A complete result is not kept waiting for longer."""
OUT_OF_SIGHT: Final = CommandResult()


async def look_at_host(
    session: HostSession, port: int, server: Server, environment: Environment
) -> Provenance:
    """Find what serves on `port`, and check the host around it.

    Args:
        session: The server's host.
        port: Of the server, there.
        server: As its answers tell it.
        environment: What is known already.

    Returns:
        The environment with process, arguments, packages, configuration and tuning; the findings.
    """
    found = await what_serves(session, port, server.engine, environment)
    told = found.environment
    findings = list(found.findings)
    members: set[int] | None = None
    if found.pid is not None:
        try:
            about = await describe(session, found.pid)
            look = await inspect(
                session, "the server", found.pid, start_ticks=about.start_ticks, port=port
            )
            members = {found.pid, *(member.pid for member in look.members)}
            told = msgspec.structs.replace(
                told,
                server_pid=found.pid,
                server_start_ticks=about.start_ticks,
                server_started_unix_s=about.started,
            )
        except RoomError as error:
            findings.append(_note("server_unseen", f"the server's process is not known: {error}"))
        if server.config:
            told = msgspec.structs.replace(told, effective_source="http")
        else:
            told, notes = await _configuration(session, found.pid, server, told)
            findings += notes
    findings += hostchecks.neighbours(
        session.snapshot, members, engine_of(server.engine, told.server_argv)
    )
    told, notes = await _tuning(session, told)
    findings += notes
    findings += await _clock(session)
    return replace(found, environment=told, findings=tuple(findings))


async def still_served(session: HostSession, port: int, result: RunResult) -> RunResult:
    """The result with a finding where another process serves now than before the run."""
    before = result.environment
    if before.server_pid is None or before.server_start_ticks is None:
        return result
    if result.status is not RunStatus.COMPLETE:
        return result
    try:
        async with asyncio.timeout(STILL_S):
            look = await inspect(
                session,
                "the server",
                before.server_pid,
                start_ticks=before.server_start_ticks,
                port=port,
            )
    except (RoomError, TimeoutError) as error:
        text = f"whether the same process still serves is not known: {str(error) or 'no answer'}"
        found = _note("server_unseen", text)
    else:
        owners = look.port.owners if look.port is not None else ()
        ours = {before.server_pid, *(member.pid for member in look.members)}
        if look.alive and (not owners or ours & {owner.pid for owner in owners}):
            return result
        now = ", ".join(f"{owner.command[:40]} (pid {owner.pid})" for owner in owners)
        text = (
            f"the server of the beginning (pid {before.server_pid}) is gone: port {port} is "
            f"{now or 'nobody'}'s now"
        )
        found = Finding(key="server_changed", severity=Severity.ERROR, text=text)
    return msgspec.structs.replace(result, findings=(*result.findings, found))


async def _configuration(
    session: HostSession, pid: int, server: Server, told: Environment
) -> tuple[Environment, Sequence[Finding]]:
    """What the server runs with by its log, where its HTTP endpoints tell none."""
    try:
        values = await effective_by_log(session, pid, engine_of(server.engine, told.server_argv))
    except RoomError as error:
        why = f"{error}"
    else:
        if values:
            return msgspec.structs.replace(
                told, effective_config=values, effective_source="log"
            ), ()
        why = "its log tells none either"
    words = f"what the server runs with is not known: no HTTP endpoint tells it, and {why}"
    return told, [_note("effective_config", words)]


async def _tuning(session: HostSession, told: Environment) -> tuple[Environment, Sequence[Finding]]:
    """The digest of the newest checklist, and what to know of it."""
    try:
        run = await asyncio.to_thread(tuning_digest.newest, session.name)
    except (RoomError, OSError) as error:
        return told, [tuning_digest.unreadable(error)]
    if run is not None:
        told = msgspec.structs.replace(told, tuning=tuning_digest.digest(run))
    now = datetime.now(UTC)
    return told, tuning_digest.findings_of(run, session.name, told.boot_id, now)


async def _clock(session: HostSession) -> list[Finding]:
    before_s = time.time()
    date = await _run(session, ["date", "+%s.%N"])
    after_s = time.time()
    ntp = await _run(session, ["timedatectl", "show", "-p", "NTPSynchronized"])
    return hostchecks.clock(
        hostchecks.clock_offset(date, before_s, after_s), hostchecks.synchronised(ntp)
    )


async def _run(session: HostSession, argv: list[str]) -> CommandResult:
    try:
        return await run_command(
            session, argv, asked_by=ASKED_BY, what="read the clock", timeout_s=ASK_S
        )
    except RoomError:
        return OUT_OF_SIGHT


def _note(key: str, text: str) -> Finding:
    return Finding(key=key, severity=Severity.INFO, text=text)
