"""`gpuroom tuning waivers`, `gpuroom tuning HOST waive|unwaive ID`: findings that were accepted."""

from __future__ import annotations

import argparse
import json

from backends import config as configuration
from backends.errors import UsageError
from backends.tuning import waivers
from backends.tuning.custom import Waiver, known_check
from backends.tuning.settings import options_for

EXIT_NONE: int = 1
"""There was none to take back."""


def change(arguments: argparse.Namespace) -> int:
    """Accept a finding of a host, or take that back."""
    if not arguments.what:
        raise UsageError(
            f"{arguments.then} needs a check", hint=f"`gpuroom tuning {arguments.host}` has the ids"
        )
    if arguments.then == "unwaive":
        there = waivers.drop(arguments.host, arguments.what)
        print("taken back" if there else f"no waiver of {arguments.what} on {arguments.host}")
        return 0 if there else EXIT_NONE
    config = configuration.load(arguments.config)
    (host,) = configuration.resolve_hosts(config, [arguments.host])
    known_check(arguments.what, {one.id for one in options_for(config, host).checks}, None, None)
    if not arguments.until:
        raise UsageError("a waiver needs an end", hint="--until 2027-03-31, or --until 90d")
    until = waivers.end_of(arguments.until)
    print(line(waivers.accept(arguments.host, arguments.what, arguments.reason, until)))
    return 0


def show(arguments: argparse.Namespace) -> int:
    """All that were accepted on screen or by command."""
    kept = waivers.load()
    if arguments.json:
        rows = [
            {
                "host": one.host, "check": one.check, "reason": one.reason,
                "until": one.until.isoformat(), "by": one.by, "ended": one.until < waivers.today(),
            }
            for one in kept
        ]  # fmt: skip
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    print("\n".join(map(line, kept)) or f"none; they would be kept in {waivers.file()}")
    return 0


def line(waiver: Waiver) -> str:
    """One in a line."""
    over = " (ended)" if waiver.until < waivers.today() else ""
    by = f", {waiver.by}" if waiver.by else ""
    where = waiver.host or "every host"
    return f"{where}: {waiver.check} until {waiver.until}{over}: {waiver.reason}{by}"
