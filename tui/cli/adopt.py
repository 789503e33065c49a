"""`gpuroom adopt HOST PID`: look at a process that gpuroom did not start as at any other server."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.report import cause_lines, failed, progress_words, server_data, witness_lines
from tui.cli.server_place import EXIT_CRASHED, add_place, at_host, now_s, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The process."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("pid", metavar="PID", type=int)
    add_place(parser)
    parser.epilog = (
        "Exit status: 0 it lives, 2 wrong use, 3 host out of reach, 4 no such process, 10 crashed."
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch it until every witness was heard, and say what they say."""
    return asyncio.run(_adopt(arguments))


async def _adopt(arguments: argparse.Namespace) -> int:
    async with at_host(arguments, arguments.host) as place:
        server = await place.desk.adopt(arguments.pid)
        async with await place.desk.watch(server) as watch:
            await watch.hear(8.0)
            found = watch.assessment
            if arguments.json:
                print_json(server_data(watch, now_s()))
            else:
                print(f"{server.profile}: {progress_words(found)}")
                log = server.log.path if server.log is not None else "none that can be followed"
                print(f"  {watch.watched.engine.id.value}, port {server.port}, log {log}")
                for line in cause_lines(found, watch.verdict) if failed(found) else ():
                    print(f"  {line}")
                for line in witness_lines(found, now_s()):
                    print(f"  {line}")
                print(f"  stop it with `gpuroom stop {server.pid} --host {place.session.name}`,")
                print(f"  keep it with `gpuroom servers import {place.session.name} {server.pid}`")
            return EXIT_CRASHED if failed(found) else 0
