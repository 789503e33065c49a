"""A finished run into the history, its samples compressed beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from backends.bench.results import RunResult
from backends.bench.sink import draft_file
from backends.storage.failure import StorageError, file_failure
from backends.storage.history import History
from backends.storage.samples import MAX_LINE_BYTES, SampleWriter


def keep_run(history: History, run: RunResult, records: Path | None = None) -> None:
    """Store a run; `records`, its samples as plain JSON lines, are compressed and then removed.

    So is the document that lay beside them while it went on.

    Args:
        history: Where to.
        run: The document.
        records: The file that was written while it ran; one that is not there is ignored.

    Raises:
        StorageError: It could not be stored. The records stay where they are.
    """
    history.save(run)
    if records is None or not records.exists():
        return
    target = history.samples_of(run.run_id)
    if target.exists():
        return
    if not records.stat().st_size:  # another tool's run has none
        _forget(records)
        return
    try:
        with SampleWriter(target) as writer:
            for line in _lines(records):
                writer.write([line])
        _forget(records)
    except (OSError, StorageError) as error:
        with suppress(OSError):
            target.unlink(missing_ok=True)
        if isinstance(error, StorageError):
            raise
        raise file_failure("The samples could not be stored", records, error) from error


def _forget(records: Path) -> None:
    draft_file(records).unlink(missing_ok=True)
    records.unlink()


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines; what a crash cut off at the end is left out."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):
                yield line[:-1]
