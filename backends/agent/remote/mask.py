"""Hides secrets in environments and argument vectors before anything is written or sent."""

from __future__ import annotations

import functools
import re
from typing import Dict, List, Match, Tuple

HIDDEN = "***"
SECRET_NAME = re.compile(
    r"(?i)(?:^|[_.-])(?:token|secrets?|passw(?:or)?ds?|passphrase|pwd|credentials?|auth|"
    r"authorization|bearer|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?|keys?)"
    r"(?:$|[_.-](?!(?:id|file|path|dir)$))"
    r"|passw(?:or)?ds?$|(?:access|auth|bearer|api|hf|refresh|session|id)tokens?$|secretkey$"
)
"""Names of secrets. Numbers of tokens (`--max-num-batched-tokens`) are none."""
SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|nvapi-[A-Za-z0-9_-]{8,}"
    r"|AKIA[A-Z0-9]{12,}|xox[abprs]-[A-Za-z0-9-]{8,})"
)
ASSIGNMENT = re.compile(r"((?:--?[A-Za-z][A-Za-z-]*=)?([A-Za-z_][A-Za-z0-9_]*)=).+", re.DOTALL)
"""A variable that is set in an argument: `-e NAME=V`, `--env=NAME=V`."""
QUERY = re.compile(r"([?&;]([A-Za-z0-9_.-]{1,64})=)([^&;#\s\"']+)")
"""A parameter of a URL."""
SIGNATURE = re.compile(r"(?i)(?:^|[_.-])(?:sig|signature)$")
CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}")
"""What follows `Authorization:`."""
URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]+):([^/\s@]+)@")


def text(value: str) -> str:
    """A value with what looks like a secret in it hidden."""
    value = URL_PASSWORD.sub(r"\1:%s@" % HIDDEN, SECRET_VALUE.sub(HIDDEN, value))
    value = CREDENTIALS.sub(r"\1\2" + HIDDEN, value)
    return QUERY.sub(_parameter, value)


def _parameter(found: Match[str]) -> str:
    name = found.group(2)
    secret = SECRET_NAME.search(name) or SIGNATURE.search(name)
    return found.group(1) + (HIDDEN if secret else found.group(3))


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


def line(words: List[str]) -> str:
    """An argument vector in one line, secrets hidden; the same ones are asked for all the time."""
    return _line(tuple(words))


@functools.lru_cache(maxsize=64)
def _line(words: Tuple[str, ...]) -> str:
    return " ".join(argv(list(words)))
