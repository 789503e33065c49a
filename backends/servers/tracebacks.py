"""Python tracebacks in a log: whole, interleaved between processes, unindented, without a head."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backends.servers.lines import LogLine

_HEAD: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(
    r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d+)(?:, in (?P<where>.+))?'
)
_EXCEPTION: Final = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.){0,12}(?:[A-Z]\w*|\w+(?:error|exception)))(?:: ?(?P<words>.*))?$"
)
CHAIN: Final = re.compile(
    r"^(?:The above exception was the direct cause|During handling of the above exception)"
)
_IGNORED: Final = re.compile(r"^Exception ignored (?:in|on)\b")
_MAX_OPEN: Final = 64
_MAX_STRAY: Final = 6
_MAX_WORDS: Final = 400
_ORDERLY: Final = frozenset(
    {"SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit", "StopIteration"}
)
_WRAPPER: Final = re.compile(
    r"EngineDeadError|Engine core initialization failed|Worker failed with error|"
    r"see (?:the )?(?:root cause|stack trace)|check the stack trace|Engine (?:process|loop)|"
    r"worker .*died|background (?:task|loop)|BrokenPipe|EOFError|ConnectionReset",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PyException:
    """The last line of a traceback, and where it was raised."""

    line: int
    """Number of the line that names the exception."""
    head_line: int
    """Number of the first line of its traceback."""
    type: str
    """Dotted as printed."""
    words: str
    file: str = ""
    file_line: int = 0
    where: str = ""
    ignored: bool = False
    """Python itself ignored it (in a destructor, at exit)."""

    @property
    def name(self) -> str:
        """The type without its modules."""
        return self.type.rpartition(".")[2]

    @property
    def orderly(self) -> bool:
        """Whether it only says that something was asked to end."""
        return self.name in _ORDERLY

    @property
    def wrapper(self) -> bool:
        """Whether it only passes on that something else failed."""
        return _WRAPPER.search(f"{self.name}: {self.words}") is not None

    def __str__(self) -> str:
        text = self.name + (f": {self.words}" if self.words else "")
        if self.file:
            text += f" ({self.file.rpartition('/')[2]}:{self.file_line}"
            text += f" in {self.where})" if self.where else ")"
        return text


@dataclass(slots=True)
class _Open:
    """A traceback whose end has not been seen."""

    head_line: int
    file: str = ""
    file_line: int = 0
    where: str = ""
    after_frame: bool = False
    strays: int = 0
    ignored: bool = False


_Key = tuple[str | None, str | None]


class TracebackReader:
    """Follows the tracebacks of all processes of a log at once."""

    def __init__(self) -> None:
        self._open: dict[_Key, _Open] = {}
        self._ignored: set[_Key] = set()
        self.inside = False
        """Whether the line taken last belongs to a traceback."""
        self.ignored = False
        """Whether that traceback is one that Python itself ignored."""

    def take(self, line: LogLine) -> PyException | None:
        """Take the next line; gives the exception when the line ends a traceback."""
        message = line.message
        key: _Key = (line.source, line.level)
        self.inside = self.ignored = False
        if not self._open and _HEAD not in message and 'File "' not in message:
            if message.startswith("Exception ignored"):
                self._ignored = {key}
            return None
        if _HEAD in message:
            self._begin(key, line)
            return None
        current = self._open.get(key)
        if current is None:
            return self._adopt(key, line)
        self.inside, self.ignored = True, current.ignored
        return self._advance(key, current, line)

    def _begin(self, key: _Key, line: LogLine) -> None:
        opened = _Open(line.number, ignored=key in self._ignored)
        self._ignored.discard(key)
        if len(self._open) >= _MAX_OPEN:
            self._open.clear()
        self._open[key] = opened
        if line.stamp is not None and not line.message.startswith(_HEAD):
            # A logger prints its prefix once; the rest of the traceback comes without one.
            self._open[None, None] = opened
        self.inside, self.ignored = True, opened.ignored

    def _adopt(self, key: _Key, line: LogLine) -> PyException | None:
        """A frame without a head: the log, or what was pasted of it, begins in the middle."""
        frame = _FRAME.match(line.message)
        if frame is None:
            if _IGNORED.match(line.message):
                self._ignored = {key}
            return None
        opened = _Open(line.number)
        if len(self._open) >= _MAX_OPEN:
            self._open.clear()
        self._open[key] = opened
        self._note_frame(opened, frame)
        self.inside = True
        return None

    def _advance(self, key: _Key, current: _Open, line: LogLine) -> PyException | None:
        message = line.message
        frame = _FRAME.match(message)
        if frame is not None:
            self._note_frame(current, frame)
            return None
        if not message.strip() or message[0] in " \t":
            return None
        if CHAIN.match(message):
            return None
        named = _EXCEPTION.match(message)
        if named is not None and _plausible(named["type"], named["words"]):
            self._close(current)
            return PyException(
                line=line.number,
                head_line=current.head_line,
                type=named["type"][:200],
                words=(named["words"] or "").strip()[:_MAX_WORDS],
                file=current.file,
                file_line=current.file_line,
                where=current.where,
                ignored=current.ignored,
            )
        if current.after_frame:
            # The source line under a frame, its indentation lost.
            current.after_frame = False
            return None
        current.strays += 1
        if current.strays > _MAX_STRAY:
            self._close(current)
            self.inside = False
        return None

    def _close(self, current: _Open) -> None:
        self._open = {key: value for key, value in self._open.items() if value is not current}

    @staticmethod
    def _note_frame(current: _Open, frame: re.Match[str]) -> None:
        current.file = frame["file"]
        current.file_line = int(frame["line"][:9])
        current.where = (frame["where"] or "").strip()[:120]
        current.after_frame = True
        current.strays = 0


def _plausible(kind: str, words: str | None) -> bool:
    """Whether a name at the start of a line is an exception's, and not any capitalised word."""
    name = kind.rpartition(".")[2]
    if re.search(r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failure|Fault|OOM)\b", name):
        return True
    if re.search(r"(?:error|exception)$", name):
        return True
    return "." in kind or words is None or name in {"Empty", "Full", "OutOfResources"}
