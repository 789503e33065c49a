"""`gpuroom restart PROFILE`: stop it, wholly, then start it."""

from __future__ import annotations

import argparse
import asyncio

from tui.cli.start import add_start, restart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As for a start."""
    add_start(parser)
    parser.epilog = (
        "Exit status: those of `gpuroom start`, and 9 when something of the old run remains; "
        "then nothing is started."
    )


def run(arguments: argparse.Namespace) -> int:
    """Stop, then start."""
    return asyncio.run(restart(arguments))
