"""The one place where an argument vector becomes the text that SSH wants.

SSH carries a command as a string that the login shell of the far side parses, and that shell may
be sh, bash, zsh or fish. So every argument is quoted for all of them at once: single quotes, with
each backslash taken out into double quotes, since fish gives backslashes a meaning within single
quotes and the POSIX shells do not.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command_line(argv: Sequence[str]) -> str:
    """`exec` and the quoted arguments, for the login shell of the far side.

    Raises:
        ValueError: No argument, or one with a NUL in it.
    """
    if not argv:
        raise ValueError("an empty argument vector")
    if any("\x00" in argument for argument in argv):
        raise ValueError("a NUL in an argument")
    return "exec " + " ".join(_quote(argument) for argument in argv)


def _quote(argument: str) -> str:
    if "\\" not in argument:
        return shlex.quote(argument)
    return '"\\\\"'.join(shlex.quote(part) if part else "" for part in argument.split("\\"))
