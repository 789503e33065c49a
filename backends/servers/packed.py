"""The text of a log file: unpacked where it is packed, as UTF-8 where it is UTF-16."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final, Protocol, cast

_CHUNK_BYTES: Final = 1 << 18
_Unpacking = gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File
_PACKED: Final[tuple[tuple[bytes, Callable[[BinaryIO], _Unpacking]], ...]] = (
    (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
    (b"BZh", bz2.BZ2File),
)
_UNKNOWN: Final = ((b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"PK\x03\x04", "unzip -p"))
_WIDE: Final = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_TORN: Final = (EOFError, OSError, zlib.error, lzma.LZMAError)


class Readable(Protocol):
    """What bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""
        ...


class PackedOtherwise(ValueError):
    """It is packed in a way that is not understood here; its words name the program that is."""


def text_of(stream: BinaryIO) -> Readable:
    """What a log file says.

    Args:
        stream: The file, at its start.

    Raises:
        PackedOtherwise: The standard library can't unpack it.
    """
    head = stream.read(8)
    whole = cast(BinaryIO, io.BufferedReader(_Joined(head, stream), _CHUNK_BYTES))
    for magic, program in _UNKNOWN:
        if head.startswith(magic):
            raise PackedOtherwise(program)
    for magic, unpack in _PACKED:
        if head.startswith(magic):
            return text_of(cast(BinaryIO, _Torn(unpack(whole))))
    for mark, encoding in _WIDE:
        if head.startswith(mark) and not head.startswith(b"\xff\xfe\0\0"):
            return _Wide(whole, encoding)
    return whole


class _Joined(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else b""
        buffer[: len(data)] = data
        return len(data)


class _Torn:
    """Packed data that may end in the middle, or be damaged there: what comes before counts."""

    def __init__(self, stream: _Unpacking) -> None:
        self._stream = stream
        self._over = False

    def read(self, size: int, /) -> bytes:
        data = bytearray()
        while len(data) < size and not self._over:
            try:
                piece = self._stream.read1(size - len(data))
            except _TORN:
                piece = b""
            data += piece
            self._over = not piece
        return bytes(data)


class _Wide:
    """UTF-16 as UTF-8."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        while True:
            data = self._stream.read(size)
            text = self._decoder.decode(data, not data)
            if text or not data:
                return text.removeprefix("\ufeff").encode("utf-8", "replace")
