"""`gpuroom servers import HOST PID`: write a profile from a process that runs."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from backends import toml
from backends.errors import UsageError
from backends.servers.launchers.base import Run
from backends.servers.profiles import resolve_profiles
from backends.servers.report import plain_name, profile_table
from tui.cli.server_place import add_place, at_host, print_json, say


class _Configuration(msgspec.Struct):
    """What matters here of the file that a profile is added to."""

    servers: tuple[dict[str, object], ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The process, and where its profile goes."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("pid", metavar="PID", type=int)
    add_place(parser)
    parser.add_argument("--name", help="name of the profile (default: the model's)")
    parser.add_argument(
        "--append", type=Path, metavar="FILE", help="add it to this file; else it is printed"
    )
    parser.epilog = "Exit status: 0 done, 2 wrong use, 3 host out of reach, 4 no such process."


def run(arguments: argparse.Namespace) -> int:
    """Describe it as TOML."""
    return asyncio.run(_import(arguments))


async def _import(arguments: argparse.Namespace) -> int:
    import tomli_w

    async with at_host(arguments, arguments.host) as place:
        server = await place.desk.adopt(arguments.pid)
        engine = place.desk.engine_of(server).id.value
        name = arguments.name or plain_name(server.profile)
        table = dict(profile_table(name, place.session.name, engine, server))
        _say_what_is_hidden(server)
    text = tomli_w.dumps(table, multiline_strings=False)
    if arguments.append is not None:
        _append(arguments.append, text)
        say(f"added to {arguments.append}: {name}")
    if arguments.json:
        print_json(table)
    elif arguments.append is None:
        print(text, end="")
    return 0


def _say_what_is_hidden(server: Run) -> None:
    hidden = [word for word in server.argv if "***" in word]
    hidden += [name for name, value in (server.env or {}).items() if value == "***"]
    if hidden:
        say("secrets are not shown; fill in what says ***")
    damaged = [number for number, word in enumerate(server.argv) if "\ufffd" in word]
    if damaged:
        # What comes from a host is cleaned, also where it was meant as it is.
        where = ", ".join(str(number) for number in damaged)
        say(f"arguments {where} hold line breaks or control characters: write these yourself")
    if server.env is None:
        say("its environment may not be read by this account: `env` is left out")


def _append(path: Path, text: str) -> None:
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        both = f"{old.rstrip()}\n\n{text}" if old.strip() else text
        resolve_profiles(toml.decode(both, _Configuration).servers, path=path)
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if old and not old.endswith("\n\n") else "") + text)
    except (OSError, UnicodeError, msgspec.DecodeError) as error:
        raise UsageError(f"cannot add to {path}", str(error)) from None
