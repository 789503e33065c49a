"""`gpuroom logs HOST SERVER`: the log of a server without a screen."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.servers.logphases import PhaseFinder
    from backends.servers.logquery import Query
    from backends.servers.logstore import LogStore
    from backends.servers.logtext import Item

EXIT_NOTHING = 1
PHASES = (
    "launching", "downloading", "distributed", "loading-weights", "allocating-memory", "compiling",
    "autotuning", "capturing-graphs", "starting-http", "warming-up", "ready",
)  # fmt: skip
LEVELS = ("debug", "info", "warning", "error", "critical")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose log, and which of its lines."""
    parser.add_argument("host", metavar="HOST", help="alias, user@host:port, local")
    parser.add_argument(
        "server", metavar="SERVER",
        help="profile, pid, word of a server's command line, or absolute path on the host",
    )  # fmt: skip
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended")
    parser.add_argument(
        "-n", "--lines", type=int, metavar="N",
        help="at most the newest N lines (default 100; all with --since, --grep or --phase)",
    )  # fmt: skip
    parser.add_argument(
        "--since", metavar="TIME", help="09:26, '2026-03-14 09:26', or 10m before the newest line"
    )
    parser.add_argument(
        "--grep", metavar="REGEX", help="lines that fit; small letters fit any case"
    )
    parser.add_argument("--level", choices=LEVELS, help="lines of at least that level")
    parser.add_argument("--rank", type=int, metavar="N", help="lines of that process alone")
    parser.add_argument(
        "--phase", choices=PHASES, metavar="NAME",
        help="lines of that phase of a start: " + ", ".join(PHASES),
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.add_argument("--config", type=Path, help="configuration file to use")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS",
        help="give up when the host is not reached by then (default %(default)s)",
    )  # fmt: skip
    parser.epilog = (
        "Exit status: 0 lines were printed, 1 none fits or the log is empty, 2 wrong use, no such "
        "server or file, 3 the host is out of reach, 4 the agent failed there, 130 interrupted."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is wanted."""
    from backends.errors import UsageError
    from backends.servers.logquery import Pattern, Query
    from backends.servers.prefixes import Level

    if arguments.lines is not None and not 0 <= arguments.lines <= 10_000_000:
        raise UsageError("--lines must be between 0 and 10000000")
    query = Query(
        level=Level(arguments.level) if arguments.level else None,
        rank=arguments.rank,
        pattern=Pattern(arguments.grep) if arguments.grep else None,
    )
    return asyncio.run(_logs(arguments, query))


async def _logs(arguments: argparse.Namespace, query: Query) -> int:
    from backends import config as configuration
    from backends.hub import RoomHub
    from backends.servers.catalogue import load_catalogue
    from backends.servers.desk import ServerDesk
    from backends.servers.engines import Phase
    from backends.servers.logphases import PhaseFinder, guess_engine, of_phase
    from backends.servers.logplaces import find_log
    from backends.servers.logquery import Query
    from backends.servers.logstore import LogStore
    from backends.servers.profiles import resolve_profiles
    from backends.tuning.gather import reached
    from tui.cli.prompts import terminal_prompter

    config = configuration.load(arguments.config)
    (host,) = configuration.resolve_hosts(config, [arguments.host])
    profiles = [each for each in resolve_profiles(config.servers) if each.host == host.name]
    async with RoomHub([host], config, terminal_prompter()) as hub:
        (session,) = hub.sessions
        await reached(session, arguments.timeout)
        desk = ServerDesk(session, profiles, await asyncio.to_thread(load_catalogue))
        place = await find_log(desk, arguments.server)
        printer = Printer(as_json=arguments.json)
        store = LogStore(session, place, asked_by="logs")
        try:
            await store.open_end()
            finder = PhaseFinder(await guess_engine(store)) if arguments.phase else None
            at = await _print_old(store, query, arguments, printer, finder)
            printer.flush()
            if arguments.follow:
                if finder is not None:
                    test = of_phase(finder.reader, Phase(arguments.phase))
                    printer.only, query = query, Query(test=test)
                await _print_new(store, query, printer, at)
        finally:
            await store.close()
        return 0 if printer.count else EXIT_NOTHING


async def _print_old(
    store: LogStore, query: Query, arguments: argparse.Namespace, printer: Printer,
    finder: PhaseFinder | None,
) -> int:  # fmt: skip
    """What is in the log by now; gives where to go on. Followed, an unfinished line waits."""
    from backends.servers.engines import Phase
    from backends.servers.logphases import stretches
    from backends.servers.logtimes import TimeSearch

    text = store.text
    end = await store.settle(partial(text.line_start, text.end)) if arguments.follow else text.end
    everything = any((arguments.since, arguments.grep, arguments.phase))
    count = arguments.lines if arguments.lines is not None else None if everything else 100
    start = text.start
    if arguments.since is not None:
        start = await store.find_time(TimeSearch(text, arguments.since))
    wanted = [(start, end)]
    if finder is not None:
        found = await stretches(store, finder, Phase(arguments.phase), end)
        wanted = [(max(start, begin), stop) for begin, stop in found if stop > start]
    if count is None:
        for begin, stop in wanted:
            inside = query.narrowed(between=(begin, stop))
            await store.scan(inside, begin, back=False, on_item=printer.show, until=stop)
        return end
    newest: list[Item] = []
    for begin, stop in reversed(wanted):
        newest = [*await store.last(query, count - len(newest), start=begin, end=stop), *newest]
        if len(newest) >= count:
            break
    for item in newest:
        printer.show(item)
    return end


async def _print_new(store: LogStore, query: Query, printer: Printer, at: int) -> None:
    """What is appended from now on."""
    running = asyncio.create_task(store.run())
    told, over = "", False
    try:
        while not over:
            over = running.done()
            store.changed.clear()
            at = await store.scan_complete(query, at, printer.show)
            printer.flush()
            if store.error != told:
                told = store.error
                print(f"gpuroom: {told or 'the log goes on'}", file=sys.stderr)
            if not over:
                changed = asyncio.create_task(store.changed.wait())
                await asyncio.wait({changed, running}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Printer:
    """Lines on standard output.

    Attributes:
        only: Of the lines that are shown to it, those that are printed; None: all.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.only: Query | None = None
        self.count = 0

    def wants(self, item: Item) -> bool:
        """Whether it would print an item; marks between files always."""
        return self.only is None or item.line is None or self.only.wants(item.line)

    def show(self, item: Item) -> bool:
        """Print an item, if it is wanted."""
        line = item.line
        if not self.wants(item):
            return True
        if line is None:
            if item.mark.strip():
                self._mark(item)
            return True
        self.count += 1
        if self._as_json:
            fields = {
                "offset": item.offset, "text": line.text, "message": line.message,
                "level": line.level, "stamp": line.stamp, "source": line.source,
                "rank": line.rank, "updates": line.updates,
            }  # fmt: skip
            sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(line.text.rstrip("\r") + "\n")
        return True

    def _mark(self, item: Item) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps({"offset": item.offset, "mark": item.mark}) + "\n")
        else:
            self.flush()
            print(f"--- {item.mark}", file=sys.stderr)

    def flush(self) -> None:
        """Hand it on now."""
        sys.stdout.flush()
