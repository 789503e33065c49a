"""Server-sent events out of a stream of bytes, however it was cut."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 << 20


class EventReader:
    """Gives the data of each complete event; comments and other fields are read and dropped.

    Lines end with CR, LF or CRLF, an event with an empty line; an event that the end of the
    stream cuts off is not given, as the standard says. Bytes stay bytes, so a character that is
    split between two reads is whole again when its event is complete.

    Attributes:
        comments: Comment lines seen (keep-alives).
        fields: Lines that had a known field name; a stream without any is no event stream.
    """

    __slots__ = ("_after_cr", "_buffer", "_data", "_size", "comments", "fields")

    def __init__(self) -> None:
        self.comments = 0
        self.fields = 0
        self._buffer = b""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that `piece` completes. Raises ValueError if one has no end."""
        if (
            not self._buffer
            and not self._data
            and piece.startswith(b"data: ")
            and piece.endswith(b"\n\n")
            and not self._after_cr
            and b"\r" not in piece
        ):
            # The common case: whole events of one line each.
            events = piece[6:-2].split(b"\n\ndata: ")
            if piece.count(b"\n") == 2 * len(events):
                self.fields += len(events)
                return events
        return self._lines(piece)

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_cr and piece:
            self._after_cr = False
            if piece.startswith(b"\n"):  # The second half of a CRLF that was split.
                piece = piece[1:]
        data = self._buffer + piece
        if len(data) > MAX_EVENT_BYTES or self._size > MAX_EVENT_BYTES:
            raise ValueError("an event has no end after 16 MB")
        if b"\r" in data:
            # A CR at the very end may be half of a CRLF: it ends the line, and an LF is skipped.
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        self._buffer = lines.pop()
        events = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
                    self._size = 0
                continue
            if line.startswith(b":"):
                self.comments += 1
                continue
            name, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                self.fields += 1
                self._data.append(value)
                self._size += len(value) + 1
            elif name in (b"event", b"id", b"retry"):
                self.fields += 1
        return events
