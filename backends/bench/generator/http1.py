"""A strict, small, incremental reader of one HTTP/1.1 response."""

from __future__ import annotations

MAX_HEAD_BYTES = 65536
_HEX = b"0123456789abcdefABCDEF"


class ProtocolError(Exception):
    """The peer's bytes are no HTTP/1.1 response."""


class ResponseReader:
    """Takes the bytes of one response as they come and gives its body piece by piece.

    Attributes:
        status: The status code; 0 until the head is complete.
        headers: Lower-case names to values; repeated ones are joined by a comma.
        done: The response is complete.
        reusable: The connection may carry another request afterwards.
        chunked: The body is framed in chunks.
        surplus: Bytes that came after the end; a server that sends any is broken.
    """

    __slots__ = (
        "_buffer",
        "_left",
        "_trailer",
        "chunked",
        "done",
        "headers",
        "reusable",
        "status",
        "surplus",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self.reusable = False
        self.chunked = False
        self.surplus = b""
        self._buffer = b""
        # Bytes still to come of the body or of the chunk; -1: at a chunk's size line, or, without
        # chunks, until the connection closes.
        self._left = -1
        self._trailer = False

    def feed(self, data: bytes) -> list[bytes]:
        """The body's next pieces. Raises ProtocolError; after that the reader is of no use."""
        if self.status == 0:
            if self._buffer:
                data = self._buffer + data
                self._buffer = b""
            while self.status == 0:
                head, data = self._split_head(data)
                if head is None:
                    return []
                self._head(head)
                if self.done:
                    self.surplus = data
                    return []
            if not data:
                return []
        if self.chunked:
            if not self._buffer and self._left == -1 and not self._trailer:
                # The common case by far: one read holds exactly one chunk.
                end = data.find(b"\r\n", 0, 20)
                if end > 0:
                    size = data[:end]
                    if not size.translate(None, _HEX):
                        length = int(size, 16)
                        if length and len(data) == end + 4 + length and data.endswith(b"\r\n"):
                            return [data[end + 2 : -2]]
            return self._chunks(data)
        if self._left < 0:
            return [data]
        if len(data) >= self._left:
            self.surplus = data[self._left :]
            data = data[: self._left]
            self.done = True
        self._left -= len(data)
        return [data] if data else []

    def close(self) -> None:
        """The peer closed the connection. Raises ProtocolError if the response is incomplete."""
        if self.done:
            return
        if self.status and not self.chunked and self._left < 0:
            self.done = True
            return
        raise ProtocolError("the connection closed before the end of the response")

    def _split_head(self, data: bytes) -> tuple[bytes | None, bytes]:
        ends = [(at, len(mark)) for mark in (b"\r\n\r\n", b"\n\n") for at in (data.find(mark),)]
        found = [(at, width) for at, width in ends if at >= 0]
        if not found:
            if len(data) > MAX_HEAD_BYTES:
                raise ProtocolError("the response head is longer than 64 kB")
            if len(data) >= 5 and not data.startswith(b"HTTP/"):
                raise ProtocolError("the answer does not begin with HTTP/")
            self._buffer = data
            return None, b""
        at, width = min(found)
        return data[:at], data[at + width :]

    def _head(self, head: bytes) -> None:
        lines = head.split(b"\n")
        first = lines[0].rstrip(b"\r").split(b" ", 2)
        if (
            len(first) < 2
            or first[0] not in (b"HTTP/1.1", b"HTTP/1.0")
            or len(first[1]) != 3
            or not first[1].isdigit()
        ):
            raise ProtocolError("bad status line: %r" % lines[0][:80])
        status = int(first[1])
        if 100 <= status < 200:
            return  # An interim response; the real one follows.
        headers: dict[str, str] = {}
        for raw in lines[1:]:
            line = raw.rstrip(b"\r").decode("latin-1")
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise ProtocolError("bad header line: %r" % line[:80])
            name = name.lower()
            value = value.strip()
            headers[name] = headers[name] + ", " + value if name in headers else value
        self.headers = headers
        self.status = status
        connection = headers.get("connection", "").lower()
        self.reusable = "close" not in connection and (
            first[0] == b"HTTP/1.1" or "keep-alive" in connection
        )
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in ("", "identity"):
            raise ProtocolError("the body is encoded (%s), which was not accepted" % encoding)
        if status in (204, 304):
            self.done = True
        elif headers.get("transfer-encoding", "").lower().endswith("chunked"):
            self.chunked = True
        elif "content-length" in headers:
            length = headers["content-length"]
            if not length.isdigit():
                raise ProtocolError("bad content-length: %r" % length[:40])
            self._left = int(length)
            self.done = self._left == 0
        else:
            self.reusable = False  # The body lasts until the connection closes.

    def _chunks(self, data: bytes) -> list[bytes]:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        pieces = []
        at = 0
        size = len(data)
        while True:
            if self._left > 0:
                piece = data[at : at + self._left]
                if piece:
                    pieces.append(piece)
                    at += len(piece)
                    self._left -= len(piece)
                if self._left:
                    break
            if self._left == 0:  # The line end behind a chunk.
                if data.startswith(b"\r\n", at):
                    at += 2
                elif data.startswith(b"\n", at):
                    at += 1
                elif size - at < 2 and data[at:] in (b"", b"\r"):
                    break
                else:
                    raise ProtocolError("a chunk is longer than its size says")
                self._left = -1
            end = data.find(b"\n", at)
            if end < 0:
                if size - at > MAX_HEAD_BYTES:
                    raise ProtocolError("a chunk's size line does not end")
                break
            line = data[at:end].rstrip(b"\r")
            at = end + 1
            if self._trailer:
                if line:
                    continue
                self.done = True
                self.surplus = data[at:]
                return pieces
            digits = line.partition(b";")[0].rstrip(b" \t")
            if not digits or len(digits) > 16 or digits.translate(None, _HEX):
                raise ProtocolError("bad chunk size: %r" % line[:40])
            self._left = int(digits, 16)
            if self._left == 0:
                self._trailer = True
                self._left = -1
        self._buffer = data[at:]
        return pieces
