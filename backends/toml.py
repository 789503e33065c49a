"""TOML from people: whatever is wrong with a text is one kind of error, which names the line."""

from __future__ import annotations

import datetime
import re
import tomllib
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

_LONG_NUMBER: Final = re.compile(r"[0-9a-fA-F_]{4000}")


def loads(text: str) -> dict[str, object]:
    """Read TOML.

    Raises:
        TOMLDecodeError: It is none, is nested too deeply, or holds a number without end.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        lines = text.split("\n")
        deepest = max(range(len(lines)), key=lambda n: lines[n].count("[") + lines[n].count("{"))
        raise tomllib.TOMLDecodeError(f"Nested too deeply (at line {deepest + 1})") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        found = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        raise tomllib.TOMLDecodeError(f"Number too long (at line {line})") from None


def decode(text: str, kind: type[T]) -> T:
    """Read TOML into a type.

    Raises:
        DecodeError: See `loads`.
        ValidationError: It is TOML, of another kind.
    """
    try:
        table = loads(text)
    except tomllib.TOMLDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    dates = (datetime.datetime, datetime.date, datetime.time)
    return msgspec.convert(table, kind, builtin_types=dates, str_keys=True)
