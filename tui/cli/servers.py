"""`gpuroom servers HOST`: every server of a host, in which state, and who says so."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.report import cause_lines, failed, progress_words, server_data, witness_lines
from backends.servers.watch import ServerWatch
from tui.cli.server_place import Place, add_place, at_host, now_s, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The host."""
    parser.add_argument("host", metavar="HOST")
    add_place(parser)
    parser.epilog = (
        "`gpuroom servers import HOST PID` writes the profile of a server that runs. "
        "Exit status: 0 listed, 2 wrong use, 3 host out of reach, 4 agent failed."
    )


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    return asyncio.run(_list(arguments))


async def _list(arguments: argparse.Namespace) -> int:
    async with at_host(arguments, arguments.host) as place:
        runs = await place.desk.runs()
        watches = [await place.desk.watch(found) for found in runs]
        await asyncio.gather(*(_listen(watch) for watch in watches))
        started = {watch.watched.run.profile for watch in watches}
        never = [name for name in place.desk.profiles if name not in started]
        if arguments.json:
            print_json(
                {
                    "host": place.session.name,
                    "servers": [server_data(watch, now_s()) for watch in watches],
                    "never_started": never,
                }
            )
        else:
            _print(place, watches, never)
        return 0


async def _listen(watch: ServerWatch) -> None:
    """Watch until every witness has been heard once."""
    async with watch:
        await watch.hear(6.0)


def _print(place: Place, watches: list[ServerWatch], never: list[str]) -> None:
    for watch in watches:
        server, found = watch.watched.run, watch.assessment
        who = "found running" if server.adopted else f"started by {server.by} from {server.origin}"
        port = f", port {server.port}" if server.port is not None else ""
        print(f"{server.profile}: {progress_words(found)}")
        print(f"  {watch.watched.engine.id.value}, pid {server.pid}{port}, {who}")
        for line in cause_lines(found, watch.verdict) if failed(found) else ():
            print(f"  {line}")
        for line in witness_lines(found, now_s()):
            print(f"  {line}")
        for warned in watch.verdict.warnings:
            print(f"  warning     {warned.title} (line {warned.line})")
    for name in never:
        print(f"{name}: never started here")
    if not watches and not never:
        print(f"no server runs on {place.session.name}, and none is configured for it")
