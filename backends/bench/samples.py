"""The records of a run, read back from the file that they were written to as they came."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from backends.bench.request_record import RequestRecord
from backends.errors import RoomError


class SamplesUnreadable(RoomError):
    """The file of a run's records cannot be read."""


def read_records(run_id: str, folder: Path) -> Iterator[RequestRecord]:
    """Every record; a last line that a crash cut off is left out. Raises SamplesUnreadable."""
    decoder = msgspec.json.Decoder(RequestRecord)
    path = folder / f"{run_id}.jsonl"
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield decoder.decode(line)
    except (OSError, msgspec.DecodeError) as error:
        raise SamplesUnreadable("the records of the run cannot be read", f"{path}: {error}") from (
            error
        )
