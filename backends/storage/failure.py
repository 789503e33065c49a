"""What goes wrong with files and the database, in words."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from backends.errors import RoomError
from backends.text import clean


class StorageError(RoomError):
    """A file or the database could not be read or written."""


class DiskFull(StorageError):
    """There is no room left (or none allowed) where gpuroom keeps its data."""


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def file_failure(what: str, path: Path, error: OSError) -> StorageError:
    """The error for a failed write or read of `path`; `what` is the title's beginning."""
    detail = f"{path}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return DiskFull(f"{what}: no space left", detail, "Free some space; nothing was replaced.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{what}: not permitted", detail, "Check the owner of the folder.")
    return StorageError(what, detail)


def database_failure(path: Path, error: sqlite3.Error) -> StorageError:
    """The error for a failed database call."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    detail = f"{path}: {clean(str(error), 200)}"
    if primary == sqlite3.SQLITE_FULL:
        return DiskFull(
            "The history could not be written: no space left",
            detail,
            "Free some space. What was stored before is intact; this change was not stored.",
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            "The history is held by another process",
            detail,
            "Another gpuroom has been writing for long; try again.",
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageError(
            "The history's file is damaged",
            detail,
            "Move it away to begin anew; backups lie beside it.",
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StorageError("The history cannot be opened for writing", detail)
    return StorageError("The history could not be read or written", detail)
