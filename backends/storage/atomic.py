"""Files that are either the old ones or the new ones, whatever happens in between.

Written beside the target under another name, flushed to the disk, then renamed over it. A killed
process leaves the old file and at most a `.NAME.XXXXXXXX.tmp` beside it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from backends.storage.failure import file_failure

PRIVATE: Final = 0o600
_LEFTOVER: Final = re.compile(r"^\..+\.[0-9a-f]{8}\.tmp$")


@contextmanager
def replacing(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    Args:
        path: The target; a symbolic link is followed, so that it stays one. Folders are made.
        mode: Permissions of a new file; an existing one keeps its own.

    Raises:
        StorageError: It could not be written; the old file is untouched.
    """
    what = f"{path.name} could not be written"
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        with suppress(FileNotFoundError):
            mode = target.stat().st_mode & 0o777
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except OSError as error:
        raise file_failure(what, path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise file_failure(what, path, error) from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Replace the content of `path`.

    Raises:
        StorageError: It could not be written; the old file is untouched.
    """
    with replacing(path, mode) as file:
        file.write(data)


def write_text(path: Path, text: str, mode: int = PRIVATE) -> None:
    """Replace the content of `path` by UTF-8 text."""
    write_bytes(path, text.encode(), mode)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last through a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path, older_than_s: float = 3600.0) -> int:
    """Remove what killed processes have left in `folder`; gives how many files went."""
    removed = 0
    deadline = time.time() - older_than_s
    with suppress(OSError):
        for entry in os.scandir(folder):
            if _LEFTOVER.match(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < deadline:
                        os.unlink(entry.path)
                        removed += 1
    return removed
