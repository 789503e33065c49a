"""Parse the first word, import that command's module alone, run it, turn errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from tui import VERSION as VERSION
from tui.cli.commands import COMMANDS, ROOM, Command, find

EXIT_INTERRUPTED = 130


class CommandModule(Protocol):
    """What a command's module offers."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str]) -> int:
    """Run gpuroom with `argv` (without the program's name) and return its exit status."""
    if argv and argv[0] == "--version":
        print(f"gpuroom {VERSION}")
        return 0
    if argv and argv[0] in ("-h", "--help"):
        print(overview())
        return 0
    # Commands of two words (`bench list`) are entries of the table like any other.
    command = find(" ".join(argv[:2])) if len(argv) > 1 else None
    if command is not None:
        return run_command(command, argv[2:])
    command = find(argv[0]) if argv else None
    if command is None:
        # The first word is a host, or an option of the room.
        return run_command(ROOM, argv)
    return run_command(command, argv[1:])


def run_command(command: Command, argv: Sequence[str]) -> int:
    """Import the command's module, parse its arguments, run it."""
    from backends.errors import RoomError

    module = cast(CommandModule, importlib.import_module(command.module))
    parser = argparse.ArgumentParser(
        prog=f"gpuroom {command.name}".removesuffix(" room"), description=command.help
    )
    module.add_arguments(parser)
    try:
        return module.run(parser.parse_args(argv))
    except RoomError as error:
        report(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, a pager) has left: nothing more to say, and no traceback at exit.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def report(error: BaseException) -> None:
    """Say an error on stderr: what, where, what to do."""
    title = getattr(error, "title", str(error))
    print(f"gpuroom: {title}", file=sys.stderr)
    for part in (getattr(error, "detail", ""), getattr(error, "hint", "")):
        if part:
            print(f"  {part}", file=sys.stderr)


def overview() -> str:
    """The text of `gpuroom --help`."""
    width = max((len(command.name) for command in COMMANDS), default=0)
    lines = [f"  {command.name:<{width}}  {command.help}" for command in COMMANDS]
    return "\n".join(
        [
            "usage: gpuroom [HOST ...] [options]   open the control room of these hosts, or of all",
            "                                      that are configured",
            "       gpuroom COMMAND [options]      do one thing without a screen",
            "",
            "HOST is an alias of ~/.ssh/config, user@host:port, a name from the configuration,",
            "`local` (this machine), `demo` or `demo:SCENARIO` (a simulated host).",
            "",
            "commands:",
            *lines,
            "",
            "`gpuroom COMMAND --help` and `gpuroom room --help` say more.",
            "exit status: 0 done, 1 failed, 2 wrong use, 3 host out of reach, 4 agent failed,",
            "5 read-only, 130 interrupted; a command's own help names others.",
        ]
    )
