"""Places in a log by time: stamps in all their forms, and the first line at or after a moment.

Engines print their stamps in the host's own time, some without a year, some without a date. They
are compared as printed: a moment is given in the log's own time.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final, TypeVar

from backends.errors import UsageError
from backends.servers.logtext import Item, LogText, Missing

T = TypeVar("T")
Moment = tuple[int, int, float]
"""Month and day (0 where they are not known) and second of the day."""

_TIME: Final = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d(?:[.,]\d+)?))?")
_DATES: Final = (
    re.compile(r"\d{4}[-/](?P<month>\d\d)[-/](?P<day>\d\d)"),
    re.compile(r"(?P<month>\d\d)/(?P<day>\d\d)/\d{4}"),
    re.compile(r"^(?P<month>\d\d)-(?P<day>\d\d) "),
    re.compile(r"^(?P<month>\d\d)(?P<day>\d\d) "),
)
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_NAMED: Final = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) ")
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)")
_AGO_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
NEAR_LINES: Final = 400
"""How many lines without a stamp are passed over."""


def moment_of(stamp: str) -> Moment | None:
    """The moment a stamp says; None where it tells no time of day."""
    time = _TIME.search(stamp)
    if time is None:
        return None
    seconds = float((time[3] or "0").replace(",", "."))
    of_day = int(time[1]) * 3600 + int(time[2]) * 60 + seconds
    for form in _DATES:
        date = form.search(stamp)
        if date is not None:
            return int(date["month"]), int(date["day"]), of_day
    named = _NAMED.match(stamp)
    if named is not None and named[1] in _MONTHS:
        return _MONTHS.index(named[1]) // 3 + 1, int(named[2]), of_day
    return 0, 0, of_day


def wanted_moment(text: str, newest: Moment) -> Moment:
    """What a person means: `09:26`, `2026-03-14 09:26:53`, or `10m` before the newest line.

    Raises:
        UsageError: It is no time.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return _before(newest, float(ago[1]) * _AGO_S[ago[2]])
    wanted = moment_of(text.strip())
    if wanted is None:
        raise UsageError(f"{text!r} is no time", hint="09:26, 2026-03-14 09:26:53, or 10m, 2h")
    month, day, of_day = wanted
    if not month and newest[0]:
        month, day = newest[:2]
        if of_day > newest[2]:
            month, day = _before((month, day, 0.0), 1.0)[:2]
    elif not newest[0]:
        month = day = 0
    return month, day, of_day


def _before(moment: Moment, seconds: float) -> Moment:
    month, day, of_day = moment
    if not month:
        return 0, 0, max(0.0, of_day - seconds)
    # Any leap year will do: stamps do not all say theirs.
    at = datetime.datetime(2024, month, day) + datetime.timedelta(seconds=of_day - seconds)
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return at.month, at.day, (at - midnight).total_seconds()


class TimeSearch:
    """Finds the first line at or after a moment by halving; as many steps as it needs.

    Args:
        text: The log.
        wanted: As a person wrote it.
    """

    def __init__(self, text: LogText, wanted: str) -> None:
        self._text = text
        self._wanted = wanted
        self._moment: Moment | None = None
        self._low, self._high = text.start, text.end

    def step(self) -> Missing | int | None:
        """One look.

        Returns:
            What must be read first, the place once it is found, None: go on.

        Raises:
            UsageError: It is no time, or the log tells none.
        """
        if self._moment is None:
            newest = self._near(self._text.end, self._text.item_before, back=True)
            if isinstance(newest, Missing):
                return newest
            if newest is None:
                raise UsageError("the newest lines of this log tell no time")
            self._moment = wanted_moment(self._wanted, newest[1])
        if self._low >= self._high:
            return self._high
        middle = self._text.line_start((self._low + self._high) // 2)
        if isinstance(middle, Missing):
            return middle
        found = self._near(middle, self._text.item_at, back=False)
        if isinstance(found, Missing):
            return found
        if found is None or found[0].offset >= self._high:
            # No stamp up to there: what is left lies before.
            self._high = min(self._high, max(middle, self._low))
            if middle <= self._low:
                self._low = self._high
            return None
        item, moment = found
        if moment < self._moment:
            self._low = item.end
        else:
            self._high = middle
            if middle <= self._low:
                self._low = self._high
        return None

    def _near(
        self, offset: int, look: Callable[[int], Item | Missing | None], *, back: bool
    ) -> tuple[Item, Moment] | Missing | None:
        for _ in range(NEAR_LINES):
            item = look(offset)
            if item is None or isinstance(item, Missing):
                return item
            stamp = item.line.stamp if item.line is not None else None
            moment = moment_of(stamp) if stamp else None
            if moment is not None:
                return item, moment
            offset = item.offset if back else item.end
        return None
