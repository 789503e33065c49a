"""What was there before a change, and what came of it; also as a plain shell script."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

import msgspec

from backends.errors import RoomError
from backends.paths import data_dir
from backends.storage.atomic import replacing
from backends.tuning import numbers
from backends.tuning.facts import Vantage

BACKUPS: Final = "/var/backups/gpuroom"
"""Where copies of edited files are kept on the host itself."""


class Outcome(StrEnum):
    """What came of one fix."""

    APPLIED = "applied"
    ALREADY_SO = "already so"
    FAILED = "failed"
    REFUSED = "refused"
    NEEDS_REBOOT = "needs reboot"
    NEEDS_RESTART = "needs restart"
    BEGUN = "begun"
    """Sent, and not answered: a roll back finds out what was done."""


GOOD: Final = frozenset(
    {Outcome.APPLIED, Outcome.ALREADY_SO, Outcome.NEEDS_REBOOT, Outcome.NEEDS_RESTART}
)
"""Outcomes of a fix that was carried out as it should be."""
WORDS_BACK: Final = {Outcome.APPLIED: "put back", Outcome.ALREADY_SO: "as before"}
"""What these are called where something is taken back."""


class Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing as it was before.

    Attributes:
        check: The finding it was changed for.
        kind: `write` for a value of the kernel, `file` for a file, `command` for what was run.
        vantage: On which of the two machines.
        old: The bytes; None when there was no file.
        undo: The argument vector that takes a command back, where there is one.
    """

    check: str
    kind: Literal["write", "file", "command"]
    vantage: Vantage
    path: str = ""
    old: bytes | None = None
    mode: int | None = None
    argv: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The path, or the command as a shell would need it."""
        return self.path or shlex.join(self.argv)


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that would change, as it was.

    Attributes:
        hosts: Names of the machines, by vantage.
        boot_ids: Their boots, by vantage.
        taken_at: ISO 8601 in UTC.
        roots: The folders that stood for `/`, by vantage.
    """

    snapshot_id: str
    host: str
    hosts: dict[Vantage, str]
    boot_ids: dict[Vantage, str]
    taken_at: str
    operator: str
    roots: dict[Vantage, str]
    saved: tuple[Saved, ...]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one fix.

    Attributes:
        detail: Why, in words: the kernel's errno, what was read back, the finding's evidence.
        kernel: The kernel's own lines since the beginning of a fix that failed.
        after: What each path held afterwards.
        ran: The commands that ended well, joined as a shell would need them.
    """

    check: str
    outcome: Outcome
    detail: str = ""
    kernel: tuple[str, ...] = ()
    after: dict[str, bytes | None] = {}
    ran: tuple[str, ...] = ()
    vantage: Vantage = Vantage.HOST


class SnapshotError(RoomError):
    """A snapshot cannot be used."""

    exit_code = 2


_RESULTS: Final = msgspec.json.Decoder(tuple[Result, ...])
_SNAPSHOT: Final = msgspec.json.Decoder(Snapshot)


def encode(value: Snapshot | tuple[Result, ...]) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)


def decode_snapshot(body: bytes) -> Snapshot:
    """From JSON.

    Raises:
        SnapshotError: It is none.
    """
    try:
        return _SNAPSHOT.decode(body)
    except msgspec.DecodeError as error:
        raise SnapshotError("not a snapshot", str(error)) from error


def decode_results(body: bytes | None) -> tuple[Result, ...]:
    """From JSON; nothing where nothing was carried out."""
    try:
        return _RESULTS.decode(body) if body else ()
    except msgspec.DecodeError as error:
        raise SnapshotError("not the results of a change", str(error)) from error


def value_to_restore(old: bytes) -> bytes:
    """What must be written so that a kernel's file reads `old` again.

    A switch that lists its choices (`always [madvise] never`) takes the chosen word alone.
    """
    text = old.decode("utf-8", "replace")
    if "[" in text and (word := numbers.choice(text)):
        return word.encode() + b"\n"
    return old


def same_value(wanted: bytes, read: bytes | None) -> bool:
    """Whether a kernel's file that was written to shows that value."""
    if read is None:
        return False
    want = wanted.decode("utf-8", "replace").strip()
    got = read.decode("utf-8", "replace").strip()
    if want == got or want.split() == got.split():
        return True
    if "[" in got and numbers.choice(got) == want:
        return True
    flag = numbers.flag(want)
    if flag is not None and len(got) <= 3:
        return numbers.flag(got) is flag
    return numbers.integer(want) is not None and numbers.integer(want) == numbers.integer(got)


def script_path(snapshot: Snapshot) -> Path:
    """Where the script of a snapshot lies."""
    return data_dir() / "tuning" / f"{snapshot.snapshot_id}.sh"


def write_script(snapshot: Snapshot) -> Path:
    """Write the script beside the history.

    Raises:
        StorageError: It could not be written.
    """
    path = script_path(snapshot)
    with replacing(path) as file:
        file.write(shell_script(snapshot).encode())
    return path


def shell_script(snapshot: Snapshot) -> str:
    """A POSIX shell script that puts everything back, last first; its status is 1 where it can't.

    Run it on the machine that its parts name, as root; `ROOT` may name another folder than /.
    """
    lines = [
        "#!/bin/sh",
        f"# Snapshot {snapshot.snapshot_id} of {_comment(snapshot.host)},"
        f" {_comment(snapshot.taken_at)}, by {_comment(snapshot.operator)}.",
        "# Puts back what was there before. Run as root: sh FILE host|guest",
        'WHERE="${1:-host}"',
        'ROOT="${ROOT:-}"',
        "status=0",
        'failed() { echo "not put back: $1" >&2; status=1; }',
        'boot() { [ "$(cat "$ROOT/proc/sys/kernel/random/boot_id")" = "$1" ] ||'
        ' echo "note: another boot than the snapshot\'s" >&2; }',
    ]
    for vantage, name in snapshot.hosts.items():
        lines += ["", f'if [ "$WHERE" = {vantage.value} ]; then  # {_comment(name)}']
        lines.append(f"  boot {shlex.quote(snapshot.boot_ids.get(vantage, ''))}")
        for saved in reversed(snapshot.saved):
            if saved.vantage is vantage:
                lines += [f"  {line}" for line in _restoring(saved)]
        lines.append("fi")
    lines.append('exit "$status"')
    return "\n".join(lines) + "\n"


def _restoring(saved: Saved) -> list[str]:
    if saved.kind == "command":
        said = f"# {_comment(shlex.join(saved.argv))}"
        if not saved.undo:
            return [f"{said}: nothing takes it back"]
        undo = shlex.join(saved.undo)
        return [said, f"{undo} || failed {shlex.quote(undo)}"]
    target = f'"$ROOT"{shlex.quote(saved.path)}'
    failed = f"failed {shlex.quote(saved.path)}"
    if saved.old is None:
        return [f"rm -f -- {target} || {failed}"]
    old = value_to_restore(saved.old) if saved.kind == "write" else saved.old
    octal = "".join(f"\\{byte:03o}" for byte in old)
    if saved.kind == "write":
        return [f"printf '{octal}' > {target} || {failed}"]
    # Beside it first, so that the file is replaced whole; `cp` keeps what owner and mode it has.
    mode = 0o644 if saved.mode is None else saved.mode
    new = f'"$ROOT"{shlex.quote(saved.path + ".gpuroom-new")}'
    folder = f'"$ROOT"{shlex.quote(saved.path.rpartition("/")[0] or "/")}'
    return [
        f"mkdir -p -- {folder}",
        f"{{ [ ! -e {target} ] || cp -p -- {target} {new}; }} &&",
        f"  printf '{octal}' > {new} && chmod {mode:o} {new} &&",
        f"  mv -f -- {new} {target} || {failed}",
    ]


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
