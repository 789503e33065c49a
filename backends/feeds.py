"""How values travel from a host to whoever looks: newest value, bounded ring, journal.

Nobody is called back. A reader compares version counters and takes what is newest, so a slow
reader gets fewer values and never a longer queue.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A slot that holds the newest value and counts how often it was replaced."""

    __slots__ = ("_value", "version")

    def __init__(self, value: T) -> None:
        self._value = value
        self.version = 0

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    def set(self, value: T) -> None:
        """Replace the value."""
        self._value = value
        self.version += 1


class Ring(Generic[T]):
    """The last `size` values, oldest first, and a count of all that ever came."""

    __slots__ = ("_items", "version")

    def __init__(self, size: int) -> None:
        self._items: deque[T] = deque(maxlen=size)
        self.version = 0

    def append(self, item: T) -> None:
        """Add one value; the oldest goes when the ring is full."""
        self._items.append(item)
        self.version += 1

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def newest(self, count: int) -> Iterator[T]:
        """The last values, newest first."""
        return islice(reversed(self._items), count)

    def replace(self, back: int, item: T) -> None:
        """Put another value in the place of the newest (1), the one before (2), ..."""
        self._items[-back] = item

    def since(self, version: int) -> list[T]:
        """What came after the ring had `version`, as far as it is still held, oldest first."""
        new = min(self.version - version, len(self._items))
        if new <= 0:
            return []
        return [self._items[i] for i in range(len(self._items) - new, len(self._items))]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that was asked of a host or changed on it.

    Attributes:
        asked_by: What caused it: a binding id (`gpus.kill`), a command, or `room` itself.
        what: The action in words.
        request: Exactly what was run or sent; secrets never come here.
        changes_host: Whether it could change anything there.
        result: `ok`, `LEFT`, or the error's words; empty while it runs.
        times: How often in a row the same was asked and answered alike; `at` is the newest time.
    """

    at: datetime
    host: str
    asked_by: str
    what: str
    request: str
    changes_host: bool = False
    result: str = ""
    took_s: float | None = None
    times: int = 1

    def same(self, other: JournalEntry) -> bool:
        """Whether another one asked the same and was answered alike."""
        return (self.host, self.asked_by, self.what, self.request, self.result) == (
            other.host, other.asked_by, other.what, other.request, other.result,
        )  # fmt: skip


LEFT = "left"
"""Result of what goes on until whoever asked for it leaves: no failure."""
REPEATING = frozenset({"watch", "servers", "gpuroom bench"})
"""Who asks the same again and again, without anybody pressing a key."""
_BEHALF: ContextVar[str] = ContextVar("behalf", default="")


@contextlib.contextmanager
def on_behalf_of(asked_by: str) -> Iterator[None]:
    """Whatever is changed on a host meanwhile, in this task, was asked for by that binding."""
    token = _BEHALF.set(asked_by)
    try:
        yield
    finally:
        _BEHALF.reset(token)


def on_whose_behalf(otherwise: str) -> str:
    """Who has something changed on a host: the binding that was named, else `otherwise`."""
    return _BEHALF.get() or otherwise


LOOKED_BACK = 64
"""Among how many of the newest entries a repetition is looked for."""


class Journal:
    """Every request of this session, newest last, bounded.

    What watches a server asks the same some times a second: a repetition of what changes nothing
    is counted, so that it does not push out what an operator did an hour ago.
    """

    def __init__(self, size: int = 5000) -> None:
        self._ring: Ring[JournalEntry] = Ring(size)

    @property
    def version(self) -> int:
        """Grows with every entry; a repetition is none."""
        return self._ring.version

    def add(self, entry: JournalEntry) -> None:
        """Write an entry down, or count it."""
        if entry.asked_by in REPEATING and not entry.changes_host and entry.result:
            for back, known in enumerate(self._ring.newest(LOOKED_BACK), start=1):
                if known.same(entry):
                    self._ring.replace(back, replace(entry, times=known.times + 1))
                    return
        self._ring.append(entry)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self._ring)

    def __len__(self) -> int:
        return len(self._ring)
