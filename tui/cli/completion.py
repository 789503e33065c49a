"""`gpuroom completion SHELL`: a script that completes commands, their options and host names."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
from pathlib import Path

from tui.cli.commands import COMMANDS

_BASH = """\
_gpuroom() {{
    local words
    words=$(gpuroom completion words -- "${{COMP_WORDS[@]:1:COMP_CWORD-1}}" 2>/dev/null)
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _gpuroom gpuroom
"""
_ZSH = """\
#compdef gpuroom
_gpuroom() {{
    local -a candidates
    candidates=(${{(f)"$(gpuroom completion words -- "${{(@)words[2,CURRENT-1]}}" 2>/dev/null)"}})
    compadd -a candidates
}}
compdef _gpuroom gpuroom
"""
_FISH = """\
complete -c gpuroom -f -a '(gpuroom completion words -- (commandline -opc)[2..-1] 2>/dev/null)'
"""
SCRIPTS = {"bash": _BASH.format(), "zsh": _ZSH.format(), "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell's name."""
    parser.epilog = "bash: source <(gpuroom completion bash)"
    parser.add_argument("shell", choices=[*SCRIPTS, "words"], help="bash, zsh or fish")
    parser.add_argument("typed", nargs="*", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the script, or the candidates for what has been typed."""
    if arguments.shell == "words":
        print("\n".join(candidates(arguments.typed)))
    else:
        print(SCRIPTS[arguments.shell], end="")
    return 0


def candidates(typed: list[str]) -> list[str]:
    """What may follow `typed`: commands, sub-commands and options, host names."""
    hosts = host_names()
    if not typed:
        return sorted({*(c.name.split()[0] for c in COMMANDS), *hosts})
    named = {c.name: c for c in COMMANDS}
    command = named.get(" ".join(typed[:2])) or named.get(typed[0])
    if command is None:
        return hosts
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(command.module).add_arguments(parser)
    below = [c.name.split()[1] for c in COMMANDS if c.name.startswith(f"{typed[0]} ")]
    options = below if len(typed) == 1 else []
    for word in ["", *typed[1:]]:
        # argparse offers no public way to list what it takes; these two have been stable for years.
        for action in list(parser._actions):
            if isinstance(action, argparse._SubParsersAction) and word in action._name_parser_map:
                parser = action._name_parser_map[word]
    for action in parser._actions:
        options += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            # Not `choices`, which is None where any other first word is a name.
            options += list(action._name_parser_map)
    return [*options, *hosts]


def host_names() -> list[str]:
    """Configured hosts, aliases of ~/.ssh/config without patterns, `local` and `demo`."""
    from backends import config
    from backends.errors import RoomError

    names = ["local", "demo"]
    with contextlib.suppress(RoomError):  # a broken configuration must not break the shell
        names += [host.name for host in config.load().hosts]
    try:
        text = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in re.findall(r"(?im)^\s*host\s+(.+)$", text):
        names += [word for word in line.split() if not set(word) & set("*?!")]
    return list(dict.fromkeys(names))
