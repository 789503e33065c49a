"""All hosts: a line each with its state, sums and a cell for every GPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.model import HostSnapshot, LinkState, Severity
from screens.filtering import FilteringScreen
from tui import filters
from tui import format as fmt
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell
from tui.themes import Look
from tui.widgets.gpu_items import SEVERITY_TOKENS, items_of, share_of, stale_for, totals_of
from tui.widgets.gpu_rows import bar
from tui.widgets.host_state import host_glyph, host_word, trouble
from tui.widgets.row_list import RowList
from tui.widgets.rows_view import RowsView

WIDE = 100
"""Cells from which there is room for memory, a full bar and long words beside the GPUs."""
SORTS = ("room", "state", "power", "utilization", "temperature")


def worst(snapshot: HostSnapshot) -> Severity | None:
    """The worst verdict of a host."""
    rank = list(Severity)
    return max((v.severity for v in snapshot.verdicts), key=rank.index, default=None)


class HostList(RowList):
    """Hosts; the cursor stays on a host."""

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.sort = "room"
        self.now_s = 0.0
        self._snapshots: dict[Hashable, HostSnapshot] = {}
        self._labels: dict[Hashable, str] = {}
        self.filter = filters.Filter()

    def show(
        self, snapshots: Sequence[HostSnapshot], labels: dict[Hashable, str], now_s: float
    ) -> None:
        """Draw; the one call a frame."""
        self.now_s = now_s
        self._labels = labels
        chosen = [s for s in snapshots if self._fits(s)]
        self._snapshots = {s.host: s for s in sorted(chosen, key=self._order)}
        self.redraw()

    def _fits(self, snapshot: HostSnapshot) -> bool:
        if not self.filter:
            return True
        totals = totals_of(snapshot.gpus)
        numbers = {
            "power": totals.power_w,
            "util": totals.utilization_pct,
            "temp": totals.hottest_c,
            "gpus": float(totals.count),
        }
        words = [snapshot.host, self._labels.get(snapshot.host, "")]
        words += [host_word(snapshot, self.now_s)[0], *(v.word for v in snapshot.verdicts)]
        words += {gpu.name for gpu in snapshot.gpus}
        return self.filter.fits(" ".join(words), numbers)

    def empty_text(self) -> str:
        """Nothing fits."""
        return "no host fits the filter; / changes it"

    def foot_row(self, width: int) -> Row:
        """Sums over the hosts shown."""
        snapshots = list(self._snapshots.values())
        totals = totals_of([gpu for snapshot in snapshots for gpu in snapshot.gpus])
        live = sum(s.link.state is LinkState.LIVE for s in snapshots)
        line = Line().add(f"  {live} of {len(snapshots)} hosts live", "strong")
        line.add(f"  {totals.answering} of {totals.count} GPUs answer  ", "dim")
        line.add(fmt.watts(totals.power_w), "strong").add(f" of {fmt.watts(totals.cap_w)}", "dim")
        line.add("  util ", "dim").add(fmt.percent(totals.utilization_pct), "strong")
        return line.row(width, "bar-row")

    def _order(self, snapshot: HostSnapshot) -> tuple[bool, float]:
        totals = totals_of(snapshot.gpus)
        value: float | None = 0.0
        match self.sort:
            case "state":
                rank = list(Severity)
                found = worst(snapshot)
                trouble_first = 0 if trouble(snapshot, self.now_s) else 1
                value = trouble_first * 10 - (rank.index(found) if found else -1)
            case "power":
                value = None if totals.power_w is None else -totals.power_w
            case "utilization":
                value = None if totals.utilization_pct is None else -totals.utilization_pct
            case "temperature":
                value = None if totals.hottest_c is None else -totals.hottest_c
        return (value is None, value or 0.0)

    def keys(self) -> Sequence[Hashable]:
        """Names in the order shown."""
        return tuple(self._snapshots)

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        wide = width >= WIDE
        line = Line().add("  ").cell("host", 17, "dim").cell("state", 22 if wide else 15, "dim")
        line.cell("power", 22 if wide else 17, "dim").cell("util", 5, "dim", ">")
        line.cell("mem", 11 if wide else 0, "dim", ">").cell("max", 5, "dim", ">")
        text = "GPUs: height is power, colour is state" if wide else "GPUs"
        return [line.add(f"  {text}", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One host."""
        snapshot, glyphs = self._snapshots[key], self.look.glyphs
        totals, wide = totals_of(snapshot.gpus), width >= WIDE
        stale = stale_for(snapshot, self.now_s) is not None
        text = "stale" if stale else "text"
        line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
        glyph, glyph_token = host_glyph(snapshot, glyphs)
        line.add(glyph + " ", glyph_token)
        line.cell(snapshot.host, 14, "strong").add(" ")
        word, token = host_word(snapshot, self.now_s)
        found = worst(snapshot)
        if token == "good" and found is not None and found is not Severity.INFO:
            bad = next(v for v in snapshot.verdicts if v.severity is found)
            word, token = bad.word, SEVERITY_TOKENS[found]
        line.cell(word, 21 if wide else 14, token).add(" ")
        part, bar_cells = share_of(totals.power_w, totals.cap_w), 8 if wide else 3
        line.extend(bar(part, bar_cells, text if stale else "power", glyphs))
        line.add(" ").cell(fmt.watts(totals.power_w), 7, text, ">").add(" ")
        line.cell("" if totals.cap_w is None else f"/{totals.cap_w / 1000:.1f}k", 5, "dim")
        line.cell(fmt.percent(totals.utilization_pct), 5, text, ">")
        used, total = totals.memory_used_bytes, totals.memory_total_bytes
        memory = f"{fmt.size(used)}/{fmt.size(total)}" if total else fmt.ABSENT
        line.cell(memory, 11 if wide else 0, text, ">")
        line.cell(fmt.celsius(totals.hottest_c), 5, text, ">").add("  ")
        for item in items_of(snapshot, self.now_s, frozenset()):
            share = share_of(item.gpu.readings.power_w, item.gpu.readings.power_limit_enforced_w)
            if item.gpu.readings.power_w is None:
                line.add(glyphs.lost, "critical")
            elif share is None:
                line.add("?", "faint")
            else:
                step = min(len(glyphs.levels) - 1, int(share * len(glyphs.levels)))
                line.add(glyphs.levels[step], "stale" if stale else item.token)
        label = self._labels.get(key, "")
        if label:
            line.add(f"  {label}", "dim")
        return line.row(width, "cursor-row" if current else "text")


class OneRow(RowsView):
    """One line that is made anew with each frame."""

    DEFAULT_CSS = "OneRow { height: 1; }"

    def __init__(self, look: Look, make: Callable[[int], Row]) -> None:
        super().__init__(look)
        self._make = make

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The row."""
        return [self._make(width)]


class FleetScreen(FilteringScreen):
    """See the module."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("fleet")
    AREAS = ("fleet", "nav")
    HINT = "label, host, state, !not, power>3000, temp>80, gpus=8"
    ABOUT = (
        "Every host of the room on a line: link, worst verdict, power of all its GPUs against "
        "their caps, and one character a GPU: its height is power against the cap, its colour "
        "the state. Enter opens the room of a host. A host that is out of reach keeps its last "
        "values, greyed."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.list = HostList(shell.look)
        self.list.cursor_key = shell.current
        self.foot = OneRow(shell.look, self.list.foot_row)

    def crumbs(self) -> Sequence[str]:
        """All hosts."""
        return ("fleet", self.filter_text) if self.filter_text else ("fleet",)

    def compose_body(self) -> Sequence[Widget]:
        """The list and its sums."""
        return (self.list, self.foot, self.filter_box)

    @property
    def filtered(self) -> Widget:
        """The hosts."""
        return self.list

    def apply_filter(self, text: str) -> None:
        """Show only the hosts that fit."""
        self.list.filter = filters.parse(text)
        self.show_body(self.shell.clock.monotonic_s())

    def show_body(self, now_s: float) -> None:
        """The newest."""
        shell = self.shell
        labels: dict[Hashable, str] = {}
        for name in shell.names:
            config = shell.host_config(name)
            words = [*(("PROD",) if config.production else ()), *config.labels]
            labels[name] = " ".join(words)
        self.list.show([shell.snapshot(name) for name in shell.names], labels, now_s)
        self.foot.redraw()

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """Open the room of a host."""
        self.shell.select(str(message.key))
        self.app.pop_screen()

    def action_sort(self) -> None:
        """Order by the next column."""
        self.list.sort = SORTS[(SORTS.index(self.list.sort) + 1) % len(SORTS)]
        self._first_frame()
