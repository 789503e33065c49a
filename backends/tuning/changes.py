"""Asks hosts what files hold, and has steps carried out: the agent's `changes` area.

A host without python3 is asked and changed by its own programs (`changes_posix`).

Answers are untrusted: converted, cleaned and bounded here, once.
"""

from __future__ import annotations

import base64
import getpass
import platform
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from backends.errors import AgentError
from backends.text import clean
from backends.tuning import changes_posix
from backends.tuning.changed import Carried, Done, Looked, RootNeeded
from backends.tuning.facts import Vantage
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.steps import File, Step

STEP_S: Final = 180.0
NOT_ALLOWED: Final = "not allowed as root"
"""What the agent says when sudo refuses."""
Converted = TypeVar("Converted", bound=msgspec.Struct)


class _Looked(msgspec.Struct):
    data: str | None = None
    mode: int | None = None
    error: str = ""


class _Files(msgspec.Struct):
    boot_id: str = ""
    files: dict[str, _Looked] = {}


class _StepDone(msgspec.Struct):
    ok: bool
    error: str = ""
    output: str = ""
    status: int = 0
    after: str | None = None


class _Answer(msgspec.Struct):
    refused: str = ""
    steps: list[_StepDone] = []
    kernel: list[str] = []


async def read(
    machines: Machines, vantage: Vantage, paths: Sequence[str], reading: Reading
) -> Looked:
    """What files hold now.

    Raises:
        LinkError: There is no link.
        RootNeeded: It may not read as root.
        AgentError: It did not answer.
    """
    params = {"paths": list(paths), **_as_root(machines, vantage, reading)}
    session = machines.at(vantage)
    if changes_posix.without_python(session):
        return await _hands(machines, vantage, reading).read(paths)
    try:
        answer = await session.request(
            "changes.read", params, asked_by="tuning", what="read what would change", timeout_s=60.0
        )
    except AgentError as error:
        raise _refused(error, session.name) from error
    got = _converted(answer, _Files, session.name)
    return Looked(got.boot_id, {path: _file(got.files.get(path)) for path in paths})


async def carry_out(
    machines: Machines, vantage: Vantage, steps: Sequence[Step], boot_id: str, reading: Reading
) -> Carried:
    """Have the steps of one fix carried out; the first that fails ends it.

    Raises:
        ReadOnlyError: The host is read-only here.
        LinkError: There is no link; nothing was sent.
        RootNeeded: It may not act as root.
        AgentError: It did not answer: whether anything was done is not known.
    """
    session = machines.at(vantage)
    if changes_posix.without_python(session):
        return await _hands(machines, vantage, reading).carry_out(steps, boot_id)
    rows: list[dict[str, object]] = []
    for step in steps:
        row: dict[str, object] = {"kind": step.kind}
        if step.kind == "command":
            row["argv"] = list(step.argv)
        else:
            row |= {"path": step.path, "data": _encoded(step.goal), "mode": step.mode}
            if step.compare:
                row["expect"] = _encoded(step.old)
        rows.append(row)
    try:
        answer = await session.request(
            "changes.carry_out",
            {
                "steps": rows,
                "boot_id": boot_id,
                "by": f"{operator()} at {platform.node() or 'another machine'}",
                **_as_root(machines, vantage, reading),
            },
            asked_by="tuning",
            what="change settings",
            changes_host=True,
            timeout_s=STEP_S,
        )
    except AgentError as error:
        raise _refused(error, session.name) from error
    got = _converted(answer, _Answer, session.name)
    done = tuple(
        Done(
            one.ok,
            clean(one.error, 300),
            "\n".join(clean(line, 300) for line in one.output.split("\n")[-20:]),
            None if one.after is None else base64.b64decode(one.after),
        )
        for one in got.steps
    )
    return Carried(clean(got.refused, 300), done, tuple(clean(k, 300) for k in got.kernel[:40]))


def operator() -> str:
    """Who uses this gpuroom."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _hands(machines: Machines, vantage: Vantage, reading: Reading) -> changes_posix.Hands:
    root = reading.roots(machines.vantages)[vantage]
    return changes_posix.Hands(machines.at(vantage), root, reading.password)


def _refused(error: AgentError, name: str) -> AgentError:
    """The agent's refusal with what to do about it; any other error as it is."""
    words = str(error).partition(NOT_ALLOWED)[2]
    if not words:
        return error
    return RootNeeded(
        f"not allowed as root on {name}",
        words.lstrip(": "),
        "log in as root, allow `sudo -n`, or give the password (--ask-password)",
    )


def _as_root(machines: Machines, vantage: Vantage, reading: Reading) -> dict[str, object]:
    root = reading.roots(machines.vantages)[vantage]
    params: dict[str, object] = {"root": root, "sudo": True}
    if reading.password is not None:
        params["password"] = reading.password
    return params


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _file(looked: _Looked | None) -> File:
    if looked is None:
        return File(None)
    data = None if looked.data is None else base64.b64decode(looked.data)
    return File(data, looked.mode, clean(looked.error, 300))


def _converted(answer: object, kind: type[Converted], name: str) -> Converted:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"{name} answered with something else", clean(str(error))) from error
