"""Values as text. The one place where an absent value becomes `–`, and where units are chosen."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.cells import cell_len, set_cell_size

ABSENT: Final = "–"

_BINARY: Final = ("B", "K", "M", "G", "T", "P")


def width_of(text: str) -> int:
    """Cells that `text` takes on screen."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, align: str = "<") -> str:
    """Give `text` in exactly `width` cells: padded (`<`, `>`, `^`), or cut with an ellipsis."""
    if width <= 0:
        return ""
    length = width_of(text)
    if length > width:
        return text[: width - 1] + "…" if text.isascii() else set_cell_size(text, width - 1) + "…"
    if length == width:
        return text
    space = width - length
    if align == ">":
        return " " * space + text
    if align == "^":
        return " " * (space // 2) + text + " " * (space - space // 2)
    return text + " " * space


def shorten(text: str, most: int) -> str:
    """Give at most so many characters, with an ellipsis where something was cut."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def whole(value: float | None, unit: str = "") -> str:
    """A number without decimals."""
    return ABSENT if value is None else f"{value:.0f}{unit}"


def decimal(value: float | None, digits: int = 1, unit: str = "") -> str:
    """A number with so many decimals."""
    return ABSENT if value is None else f"{value:.{digits}f}{unit}"


def of(value: float | None, limit: float | None, unit: str = "") -> str:
    """A number of a limit, each absent by itself: `627/700W`, `627/–W`."""
    return f"{whole(value)}/{whole(limit)}{unit}"


def watts(value: float | None) -> str:
    """Power: `627 W`, from 10 kW on `12.3 kW`."""
    if value is None:
        return ABSENT
    return f"{value:.0f} W" if value < 9999.5 else f"{value / 1000:.1f} kW"


def percent(value: float | None) -> str:
    """A share: `37%`."""
    return whole(value, "%")


def celsius(value: float | None) -> str:
    """A temperature: `41°`."""
    return whole(value, "°")


def gigahertz(mhz: float | None) -> str:
    """A clock in five cells: `1.98G`, `13.4G`."""
    if mhz is None:
        return ABSENT
    return f"{mhz / 1000:.2f}G" if mhz < 9995 else f"{mhz / 1000:.1f}G"


def gibibytes(count: float | None) -> str:
    """Memory in GiB without unit: `81`; below 10 GiB `4.2`."""
    if count is None:
        return ABSENT
    value = count / 2**30
    return f"{value:.0f}" if value >= 9.95 or count == 0 else f"{value:.1f}"


def size(count: float | None) -> str:
    """Bytes in the unit that gives two or three figures: `81G`, `4.2G`, `512M`."""
    if count is None:
        return ABSENT
    value = float(count)
    for unit in _BINARY:
        if value < 999.5 or unit == _BINARY[-1]:
            digits = 1 if unit != "B" and value < 9.95 else 0
            return f"{value:.{digits}f}{unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def rate(bytes_per_s: float | None) -> str:
    """Bytes a second: `1.2G/s`."""
    return ABSENT if bytes_per_s is None else size(bytes_per_s) + "/s"


def duration(seconds: float | None) -> str:
    """A time span in its two largest units: `8s`, `3m 20s`, `4h 05m`, `12d 3h`."""
    if seconds is None:
        return ABSENT
    total = max(0, int(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h {total % 3600 // 60:02d}m"
    return f"{total // 86400}d {total % 86400 // 3600}h"


def interval(seconds: float) -> str:
    """How often: `1/s`, `4/s`, `every 5s`."""
    if seconds <= 1:
        return f"{1 / seconds:.3g}/s"
    return f"every {seconds:.3g}s"


def clock_time(at: datetime, seconds: bool = True) -> str:
    """The local time of day."""
    return at.astimezone().strftime("%H:%M:%S" if seconds else "%H:%M")


def yes_no(value: bool | None) -> str:
    """`yes`, `no`, or absent."""
    return ABSENT if value is None else "yes" if value else "no"


def plain(value: object, unit: str = "") -> str:
    """Any reading with its unit, at full length: for tables of everything."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, int | float):
        if unit == "B":
            return size(value)
        if unit == "B/s":
            return rate(value)
        if unit == "J" and value >= 3.6e6:
            return f"{value / 3.6e6:,.1f} kWh"
        if unit == "us":
            return duration(value / 1e6)
        if unit == "s":
            return duration(value)
        if unit == "bits":
            return f"0x{int(value):x}"
        if unit == "P":
            return f"P{int(value)}"
        number = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
        return f"{number} {unit}".rstrip()
    return f"{value} {unit}".rstrip() if unit else str(value)
