"""`gpuroom facts HOST`: everything that the tuning checks look at, as one JSON document."""

from __future__ import annotations

import argparse
import asyncio
import sys

from tui.cli.reading import add_reading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The host, and how it is read."""
    parser.add_argument("host", metavar="HOST", help="alias, user@host:port, local")
    parser.add_argument("--json", action="store_true", help="JSON, which is the only form")
    add_reading(parser)
    parser.epilog = (
        "Nothing is changed on the host. `gpuroom tuning read` judges what this prints. "
        "Exit status: 0 done, 2 wrong use, 3 the host is out of reach, 4 the agent failed there."
    )


def run(arguments: argparse.Namespace) -> int:
    """Gather and print."""
    from backends import config as configuration
    from backends.tuning.facts import encode
    from tui.cli.tuning_live import gather_host

    config = configuration.load(arguments.config)
    gathered = asyncio.run(gather_host(config, arguments))
    for note in gathered.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.buffer.write(encode(gathered.document))
    sys.stdout.buffer.flush()
    return 0
