"""Findings that were accepted on screen or by command: kept in one file, listed, taken away.

The configuration is only read; what is accepted here stands in a file of its own, which may be
edited by hand. Waivers for everybody belong into a file of checks that the configuration names.
"""

from __future__ import annotations

import datetime
import getpass
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import tomli_w

from backends import paths, toml
from backends.errors import ConfigError, UsageError
from backends.storage.atomic import replacing
from backends.tuning.custom import Waiver

MAX_BYTES: Final = 1 << 20
HEAD: Final = "# Findings accepted in gpuroom: `gpuroom tuning waivers` lists them.\n\n"
_AFTER: Final = re.compile(r"(\d{1,4})\s*d(?:ays?)?")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    waivers: tuple[Waiver, ...] = ()


def file() -> Path:
    """Where they are kept."""
    return paths.data_dir() / "waivers.toml"


def today() -> datetime.date:
    """In UTC, as all records are."""
    return datetime.datetime.now(datetime.UTC).date()


def load() -> tuple[Waiver, ...]:
    """All of them, in the order in which they were accepted.

    Raises:
        ConfigError: The file is not as it was written.
    """
    path = file()
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"cannot read the waivers: {error.strerror}", path=path) from error
    try:
        return toml.decode(data.decode(), _File).waivers
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "correct it, or move it away: then nothing is waived"
        raise ConfigError(f"the waivers cannot be read: {error}", path=path, hint=hint) from error


def accept(host: str, check: str, reason: str, until: datetime.date) -> Waiver:
    """Keep one, in the place of an earlier one of the same finding.

    Raises:
        UsageError: No reason, or an end that is not ahead.
        StorageError: It cannot be kept.
    """
    reason = " ".join(reason.split())
    if not reason:
        raise UsageError("a waiver needs a reason", hint="say why, and who agreed")
    made = Waiver(check, reason[:500], ahead(until), host, _operator())
    _write([*_without(load(), host, check), made])
    return made


def drop(host: str, check: str) -> bool:
    """Take one away; gives whether there was one."""
    kept = load()
    left = _without(kept, host, check)
    if len(left) == len(kept):
        return False
    _write(left)
    return True


def of(host: str, check: str, rule: str) -> Waiver | None:
    """The kept one that holds for a finding of a host."""
    mine = {one.check: one for one in load() if one.host in ("", host)}
    return mine.get(check) or mine.get(rule)


def end_of(text: str) -> datetime.date:
    """A day as people give it: `2027-03-31`, or `90d` from now.

    Raises:
        UsageError: It is neither.
    """
    text = text.strip()
    if after := _AFTER.fullmatch(text):
        return today() + datetime.timedelta(days=int(after[1]))
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        hint = "2027-03-31, or 90d from today"
        raise UsageError(f"{text[:40]!r} is no day", hint=hint) from None


def ahead(day: datetime.date) -> datetime.date:
    """The day itself, where a waiver may end on it.

    Raises:
        UsageError: It is past.
    """
    if day < today():
        raise UsageError(f"{day} is past", hint="a waiver ends on a day ahead: 2027-03-31, 90d")
    return day


def _without(kept: Sequence[Waiver], host: str, check: str) -> list[Waiver]:
    return [one for one in kept if (one.host, one.check) != (host, check)]


def _write(waivers: Sequence[Waiver]) -> None:
    rows = [msgspec.to_builtins(one, builtin_types=(datetime.date,)) for one in waivers]
    with replacing(file()) as opened:
        opened.write((HEAD + tomli_w.dumps({"waivers": rows})).encode())


def _operator() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
