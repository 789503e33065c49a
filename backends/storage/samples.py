"""Per-request samples of a run: JSON lines in one compressed file, readable up to the last flush.

The file is a gzip stream that is synchronised at each flush, so that a killed process, a crash or a
full disk cost what came after the last one and nothing before. `gunzip -c` reads it too.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from backends.paths import data_dir
from backends.storage.failure import StorageError, file_failure
from backends.text import clean

SUFFIX: Final = ".jsonl.gz"
FLUSH_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_GZIP_WINDOW: Final = 31
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_run_id(run_id: str) -> str:
    """Give `run_id` back if it can be a file name.

    Raises:
        StorageError: It can't: from an import it could lead anywhere.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise StorageError("A run's id cannot be used as a file name", clean(run_id, 120))
    return run_id


def sample_path(run_id: str, folder: Path | None = None) -> Path:
    """Where the samples of a run lie: beside the history."""
    base = data_dir() if folder is None else folder
    return base / "samples" / f"{check_run_id(run_id)}{SUFFIX}"


class SampleWriter:
    """Appends samples to a file as they come. One writer a file."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            StorageError: It exists, or it cannot be created.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
        except OSError as error:
            raise file_failure("The samples could not be written", path, error) from error
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP_WINDOW)
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines, each one JSON value without line feeds; flushed now and then.

        Raises:
            StorageError: They could not be written.
        """
        for line in lines:
            self._pending.append(line)
            self._pending_bytes += len(line) + 1
        if self._pending_bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Make everything until now readable, whatever happens next."""
        if not self._pending:
            return
        data = self._packer.compress(b"\n".join(self._pending) + b"\n")
        data += self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._pending.clear()
        self._pending_bytes = 0
        self._put(data)

    def close(self) -> None:
        """Write the rest; a second time does nothing."""
        if self._file.closed:
            return
        try:
            self.flush()
            self._put(self._packer.flush(zlib.Z_FINISH))
        finally:
            self._file.close()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            raise file_failure("The samples could not be written", self.path, error) from error

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a sample file, one at a time; an unfinished last one is left out.

    Raises:
        StorageError: It cannot be read, or is not such a file.
    """
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    rest = b""
    try:
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                while chunk:
                    # Bounded output: a few bytes of a hostile file can stand for gigabytes.
                    rest += unpacker.decompress(chunk, MAX_LINE_BYTES)
                    *lines, rest = rest.split(b"\n")
                    yield from lines
                    if len(rest) > MAX_LINE_BYTES:
                        raise StorageError("A sample is too long", str(path))
                    chunk = unpacker.unconsumed_tail
                    if unpacker.eof:
                        chunk, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_WINDOW)
    except OSError as error:
        raise file_failure("The samples could not be read", path, error) from error
    except zlib.error as error:
        raise StorageError("The samples are damaged", f"{path}: {error}") from error
