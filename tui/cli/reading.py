"""Options of commands that read the facts of a host."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from backends.errors import UsageError

if TYPE_CHECKING:
    from backends.tuning.gather import Reading


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How a host is reached and read."""
    group = parser.add_argument_group("how the host is reached and read")
    group.add_argument("--config", type=Path, help="configuration file to use")
    group.add_argument(
        "--sudo", action="store_true", help="use `sudo -n` for what only root may read"
    )
    group.add_argument(
        "--ask-password", action="store_true", help="ask for sudo's password; it is kept nowhere"
    )
    group.add_argument(
        "--root", default="/", metavar="FOLDER", help="a folder on the host in the place of /"
    )
    group.add_argument(
        "--root-below", default="", metavar="FOLDER", help="the same on the hypervisor below it"
    )
    group.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS",
        help="give up when the host is not reached by then (default %(default)s)",
    )  # fmt: skip


def reading_of(arguments: argparse.Namespace) -> Reading:
    """What the options say about reading, with the password asked for.

    Raises:
        UsageError: A password is to be asked for, and there is no terminal.
    """
    from backends.tuning.gather import Reading

    password = None
    if arguments.ask_password:
        if not sys.stdin.isatty():
            raise UsageError("--ask-password needs a terminal")
        password = getpass.getpass("sudo password on the host: ", sys.stderr)
    below = getattr(arguments, "root_below", "")
    if not arguments.root.startswith("/") or not (below or "/").startswith("/"):
        raise UsageError("--root and --root-below must be absolute paths")
    return Reading(sudo=arguments.sudo, password=password, root=arguments.root, below=below)
