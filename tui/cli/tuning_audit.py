"""`gpuroom tuning audit`: every host judged at once, one line each."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from typing import Final

import msgspec

from backends import config as configuration
from backends.config import Config, HostConfig
from backends.errors import RoomError, UsageError
from backends.hub import RoomHub
from backends.storage.tuning_tables import TuningHistory
from backends.tuning import report
from backends.tuning.audit import Audited, audit
from backends.tuning.engine import Options
from backends.tuning.findings import Verdict
from backends.tuning.runs import keep
from tui.cli.prompts import terminal_prompter
from tui.cli.reading import reading_of
from tui.cli.tuning_live import machines

SELDOM_S: Final = 60.0
"""Between samples of telemetry, which nobody looks at here."""
SHOWN: Final = (
    Verdict.FAIL, Verdict.WARN, Verdict.INCONCLUSIVE, Verdict.UNKNOWN, Verdict.INFO, Verdict.PASS
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Judge the hosts named, or all that are configured."""
    config = configuration.load(arguments.config)
    names = arguments.hosts or [host.name for host in config.hosts]
    if not names:
        raise UsageError("no hosts", hint="name them, or configure [[hosts]]")
    pairs = [machines(config, name) for name in dict.fromkeys(names)]
    return asyncio.run(_audit(config, pairs, arguments))


async def _audit(
    config: Config,
    pairs: list[tuple[HostConfig, HostConfig | None]],
    arguments: argparse.Namespace,
) -> int:
    from tui.cli.tuning import options_of

    def options(name: str) -> Options:
        return options_of(config, name, arguments)

    reading = reading_of(arguments)
    hosts = {
        host.name: msgspec.structs.replace(host, interval_s=SELDOM_S)
        for pair in pairs
        for host in pair
        if host is not None
    }
    found: list[Audited] = []
    async with RoomHub(list(hosts.values()), config, terminal_prompter()) as hub:
        sessions = {session.name: session for session in hub.sessions}
        rows = [
            (sessions[host.name], None if below is None else sessions[below.name])
            for host, below in pairs
        ]
        judged = audit(rows, options, reading=reading, timeout_s=arguments.timeout)
        async with contextlib.aclosing(judged):
            async for one in judged:
                found.append(one)
                if not arguments.json:
                    print(line(one), flush=True)
    try:
        with contextlib.closing(TuningHistory.at_home()) as history:
            for one in found:
                if one.gathered is not None:
                    keep(history, one.gathered, list(one.findings))
    except RoomError as error:  # the hosts are judged all the same
        print(f"note: these runs are not kept: {error}", file=sys.stderr)
    if arguments.json:
        order = {host.name: place for place, (host, _) in enumerate(pairs)}
        found.sort(key=lambda one: order[one.host])
        print(json.dumps([as_dict(one) for one in found], indent=2, ensure_ascii=False))
    unread = sum(one.gathered is None for one in found)
    if unread:
        print(f"{unread} of {len(found)} hosts could not be read", file=sys.stderr)
    codes = [report.exit_code(one.findings) for one in found]
    return max([*codes, report.EXIT_FAIL if unread else 0])


def line(one: Audited) -> str:
    """A host in a line: how many of what, and where to begin."""
    if one.error is not None:
        return f"{one.host:<20} not read: {one.error}"
    counts = " ".join(f"{one.counts[v]:>3} {v.value}" for v in SHOWN if one.counts.get(v))
    worst = one.worst
    first = f"  {worst.check}: {worst.evidence[:80]}" if worst else ""
    return f"{one.host:<20}{counts}{first}"


def as_dict(one: Audited) -> dict[str, object]:
    """A host as JSON: counts by verdict, findings as `gpuroom tuning HOST --json` has them."""
    return {
        "host": one.host,
        "error": None if one.error is None else str(one.error),
        "counts": {verdict.value: count for verdict, count in sorted(one.counts.items())},
        "findings": [report.as_dict(finding) for finding in one.findings],
    }
