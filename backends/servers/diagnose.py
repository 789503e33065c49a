"""Diagnose a log that lies in a file: any size, any engine, whole or torn, packed or not."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

from backends.errors import RoomError
from backends.servers.catalogue import Catalogue
from backends.servers.engines import EngineGuess, EngineId
from backends.servers.judge import LogJudge
from backends.servers.lines import LogLine, LogReader
from backends.servers.packed import PackedOtherwise, text_of
from backends.servers.verdict import Verdict, judge_run

CHUNK_BYTES: Final = 1 << 18
_SAMPLE_BYTES: Final = 1 << 19


class UnreadableLog(RoomError):
    """A log cannot be opened or read."""

    exit_code = 2


def guess_engine(head: bytes) -> EngineId:
    """Who wrote a log, by its first half megabyte."""
    guess = EngineGuess()
    reader = LogReader(updates=False)
    for event in (*reader.feed(head[:_SAMPLE_BYTES]), *reader.finish()):
        if isinstance(event, LogLine):
            guess.look(event.text, event.message)
            if guess.settled:
                break
    return guess.best.id


def diagnose_stream(
    stream: BinaryIO, catalogue: Catalogue, engine: EngineId | None = None, name: str = "-"
) -> Verdict:
    """Read a log to its end, in bounded memory, and judge it.

    Args:
        stream: Opened for reading bytes, at its start; packed (gz, xz, bz2) or not.
        catalogue: Known causes.
        engine: Who wrote it, where that is known.
        name: For errors.

    Raises:
        UnreadableLog: It is packed otherwise.
    """
    try:
        text = text_of(stream)
    except PackedOtherwise as error:
        raise UnreadableLog(
            f"cannot read {name}",
            "it is packed in a way that is not read here",
            f"unpack it: {error} FILE | gpuroom diagnose -",
        ) from None
    chunk = text.read(_SAMPLE_BYTES)
    judge = LogJudge(catalogue, engine or guess_engine(chunk))
    reader = LogReader(updates=False)
    while chunk:
        judge.take_all(reader.feed(chunk, judge.skim))
        chunk = text.read(CHUNK_BYTES)
    judge.take_all(reader.finish())
    return judge_run(judge)


def diagnose_bytes(data: bytes, catalogue: Catalogue, engine: EngineId | None = None) -> Verdict:
    """Judge a log that is in memory."""
    from io import BytesIO

    return diagnose_stream(BytesIO(data), catalogue, engine)


def diagnose_file(path: Path, catalogue: Catalogue, engine: EngineId | None = None) -> Verdict:
    """Judge a log in a file.

    Raises:
        UnreadableLog: It cannot be opened or read.
    """
    try:
        with path.open("rb") as stream:
            return diagnose_stream(stream, catalogue, engine, str(path))
    except OSError as error:
        raise UnreadableLog(
            f"cannot read {path}", error.strerror or str(error), "check the path and its rights"
        ) from error
