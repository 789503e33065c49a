"""Hides secrets in environments and argument vectors before anything is written or sent."""

from __future__ import annotations

import re
from typing import Dict, List

HIDDEN = "***"
SECRET_NAME = re.compile(
    r"(?i)(?:^|[_.-])(?:token|secret|passw(?:or)?d|passphrase|credentials?|auth|api[_-]?key|"
    r"access[_-]?key|private[_-]?key|key)s?(?:$|[_.-](?!(?:id|file|path|dir)$))"
)
SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|nvapi-[A-Za-z0-9_-]{8,}"
    r"|AKIA[A-Z0-9]{12,}|xox[abprs]-[A-Za-z0-9-]{8,})"
)
ASSIGNMENT = re.compile(r"((?:--?[A-Za-z][A-Za-z-]*=)?([A-Za-z_][A-Za-z0-9_]*)=).+", re.DOTALL)
"""A variable that is set in an argument: `-e NAME=V`, `--env=NAME=V`."""
URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]+):([^/\s@]+)@")


def text(value: str) -> str:
    """A value with what looks like a secret in it hidden."""
    return URL_PASSWORD.sub(r"\1:%s@" % HIDDEN, SECRET_VALUE.sub(HIDDEN, value))


def environment(values: Dict[str, str]) -> Dict[str, str]:
    """An environment with the values of secrets hidden."""
    return {
        name: HIDDEN if SECRET_NAME.search(name) and value else text(value)
        for name, value in values.items()
    }


def argv(words: List[str]) -> List[str]:
    """An argument vector with the values of secret options and variables hidden.

    That is `--key V`, `--key=V`, `-e KEY=V` and `--env=KEY=V`.
    """
    shown: List[str] = []
    hide_next = False
    for word in words:
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
            hide_next = False
            continue
        hide_next = False
        name, equals, _ = word.partition("=")
        if name.startswith("-") and SECRET_NAME.search(name.lstrip("-")):
            hide_next = not equals
            shown.append(name + "=" + HIDDEN if equals else word)
            continue
        assigned = ASSIGNMENT.fullmatch(word)
        secret = assigned is not None and SECRET_NAME.search(assigned.group(2))
        shown.append(assigned.group(1) + HIDDEN if assigned and secret else text(word))
    return shown
