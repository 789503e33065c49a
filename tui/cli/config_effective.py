"""`gpuroom config PROFILE --effective`: what a server was asked beside what it runs with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

EXIT_DIFFERS: Final = 13
_HEADS: Final = {
    "differs": "asked, and it runs with something else",
    "unasked": "nobody asked for it",
    "not-reported": "asked, and the engine does not say what it made of it",
    "same": "asked, and taken",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server. Light: `gpuroom config` has other verbs that reach no host."""
    parser.add_argument(
        "profile", metavar="PROFILE", help="a profile; with --host also a found server or its pid"
    )
    parser.add_argument(
        "--effective", action="store_true", help="also what the running server says (needs a host)"
    )
    parser.add_argument("--host", metavar="HOST", help="another host than the profile names")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file to use")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--connect-timeout", type=float, default=30.0, metavar="SECONDS",
        help="give up when the host is not reached by then (default %(default)s)",
    )  # fmt: skip
    parser.epilog = (
        "Exit status: 0 as asked, 2 no such server, 3 host out of reach, 13 something differs or "
        "was not asked for."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one table a standing, what differs first."""
    import asyncio

    return asyncio.run(_effective(arguments) if arguments.effective else _asked(arguments))


async def _asked(arguments: argparse.Namespace) -> int:
    from backends import config as configuration
    from backends.errors import UsageError
    from backends.servers.configuration import read_argv
    from backends.servers.profiles import resolve_profiles
    from tui.cli.server_place import print_json

    profiles = {p.name: p for p in resolve_profiles(configuration.load(arguments.config).servers)}
    profile = profiles.get(arguments.profile)
    if profile is None:
        hint = configuration.nearest(arguments.profile, profiles) if profiles else "see [[servers]]"
        raise UsageError(f"no server {arguments.profile!r} is configured", hint=hint)
    asked = read_argv(profile.engine, profile.command).options
    if arguments.json:
        print_json({"profile": profile.name, "asked": dict(asked)})
    else:
        width = max((len(name) for name in asked), default=0)
        for name, value in asked.items():
            print(f"{name:<{width}}  {value}")
    return 0


async def _effective(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from backends.servers.configuration import Standing, compare, read_argv
    from tui.cli.server_place import at_profile, print_json

    async with at_profile(arguments, must=False) as place:
        server = await place.desk.find(arguments.profile)
        async with await place.desk.watch(server, place.profile) as watch:
            await watch.hear(8.0)
            effective = await place.desk.effective(watch)
        engine = watch.watched.engine
        argv = place.profile.command if place.profile is not None else server.argv
        rows = compare(engine, read_argv(engine, argv), effective)
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        width = max((len(row.name) for row in rows), default=0)
        head = None
        for row in rows:
            if row.standing is not head:
                head = row.standing
                print(f"{_HEADS[row.standing.value]}:")
            have = "" if row.effective is None else row.effective
            asked = "-" if row.asked is None else row.asked
            default = f"  (default {row.default})" if row.default is not None else ""
            print(f"  {row.name:<{width}}  {asked}  ->  {have or '?'}{default}")
    wrong = any(row.standing in (Standing.DIFFERS, Standing.UNASKED) for row in rows)
    return EXIT_DIFFERS if wrong else 0
