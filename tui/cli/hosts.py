"""`gpuroom hosts`: every host of the configuration, whether it can be reached, and why not."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from backends import config as configuration
from backends import paths
from backends.errors import LinkError
from backends.reachability import Reachability, reach_all
from tui.cli.prompts import terminal_prompter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Hosts and output."""
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="only these; else all configured")
    parser.add_argument("--config", type=Path, help="configuration file to use")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument(
        "--timeout",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="give up on hosts that have not answered by then (default %(default)s)",
    )
    parser.epilog = "Exit status: 0 every host was reached, 2 wrong use, 3 at least one was not."


def run(arguments: argparse.Namespace) -> int:
    """Try all at once, print what came of it."""
    config = configuration.load(arguments.config)
    hosts = configuration.resolve_hosts(config, arguments.hosts)
    if not hosts:
        path = arguments.config or paths.config_file()
        way = (
            f"add a [[hosts]] table to {path}"
            if path.exists()
            else "`gpuroom config init` writes a sample"
        )
        print(f"no host is configured; {way}, or name one", file=sys.stderr)
    found = asyncio.run(reach_all(hosts, config, terminal_prompter(), arguments.timeout))
    if arguments.json:
        print(json.dumps([asdict(entry) for entry in found], indent=2, ensure_ascii=False))
    else:
        _print_table(found)
    return 0 if all(entry.reachable for entry in found) else LinkError.exit_code


def _print_table(found: Sequence[Reachability]) -> None:
    width = max((len(entry.host) for entry in found), default=0)
    for entry in found:
        if entry.reachable:
            print(f"{entry.host:<{width}}  ok    {entry.took_s * 1000:.0f} ms  {entry.address}")
        else:
            print(f"{entry.host:<{width}}  FAIL  {entry.error}")
            if entry.hint:
                print(f"{'':<{width}}        -> {entry.hint}")
