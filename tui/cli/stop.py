"""`gpuroom stop PROFILE`: no process left, port free, GPU memory given back; or what remains."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.report import run_data, stop_data
from tui.cli.server_place import (
    add_place,
    add_yes,
    allow_changes,
    at_profile,
    print_json,
    say,
    say_step,
    say_stopped,
    say_what_ends,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server, and how long it may take."""
    parser.add_argument(
        "profile", metavar="SERVER", help="a profile; with --host also a found server or its pid"
    )
    add_place(parser, host_option=True)
    add_yes(parser)
    parser.add_argument(
        "--grace", type=float, metavar="SECONDS",
        help="how long it may take to end by itself (default: the profile's stop_grace_s)",
    )  # fmt: skip
    parser.epilog = (
        "Exit status: 0 nothing of it is left, 2 there is no such server, 5 production host and "
        "nobody said yes, 7 somebody else is stopping it, 9 something remains (named on stderr)."
    )


def run(arguments: argparse.Namespace) -> int:
    """Stop it."""
    return asyncio.run(_stop(arguments))


async def _stop(arguments: argparse.Namespace) -> int:
    async with at_profile(arguments, must=False) as place:
        server = await place.desk.find(arguments.profile)
        allow_changes(arguments, place.session)
        await say_what_ends(place, server, arguments.grace)
        result = await place.desk.stop(server, say_step, grace_s=arguments.grace)
        status = say_stopped(result)
        if not status:
            say(f"{server.profile} is stopped: nothing of it is left")
        if arguments.json:
            print_json({**run_data(server), **stop_data(result)})
        return status
