"""`gpuroom wait-ready PROFILE`: until it is truly ready, or it is known why not."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.report import server_data
from tui.cli.server_place import add_place, at_profile, follow_start, now_s, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server, and for how long."""
    parser.add_argument(
        "profile", metavar="SERVER", help="a profile; with --host also a found server or its pid"
    )
    add_place(parser, host_option=True)
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS",
        help="give up by then (default: the profile's start_timeout_s, else 3600)",
    )  # fmt: skip
    parser.add_argument(
        "--through-stalls", action="store_true", help="go on waiting although nothing moves"
    )
    parser.epilog = (
        "Exit status: 0 ready, 2 there is no such server, 3 host out of reach, 10 crashed or ended "
        "(the cause is on stderr), 11 stalled, 12 not ready in time."
    )


def run(arguments: argparse.Namespace) -> int:
    """Wait."""
    return asyncio.run(_wait(arguments))


async def _wait(arguments: argparse.Namespace) -> int:
    async with at_profile(arguments, must=False) as place:
        profile = place.profile
        timeout_s = arguments.timeout or (profile.start_timeout_s if profile else 3600.0)
        server = await place.desk.find(arguments.profile)
        async with await place.desk.watch(server, profile) as watch:
            status, _ = await follow_start(
                place, watch, timeout_s, through_stalls=arguments.through_stalls
            )
            if arguments.json:
                print_json(server_data(watch, now_s()))
            return status
