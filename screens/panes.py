"""The panes beside the GPUs. Each area of the product fills one: give its class here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.rows import Line, Row
from tui.shell import Shell
from tui.widgets.host_state import wrap
from tui.widgets.rows_view import RowsView

if TYPE_CHECKING:
    from backends.bench.desk import Live


class Pane(RowsView, can_focus=True):
    """A pane of the room: one line when there is little room, a box otherwise.

    Attributes:
        number: The key that goes to it.
        pane_id: Its name in `hidden_panes`.
        title: What stands at its head.
    """

    number = 0
    pane_id = ""
    title = ""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell.look, id=f"pane-{self.pane_id}")
        self.shell = shell

    _seen: object = None

    def show(self, now_s: float) -> None:
        """Draw the newest; the one call a frame."""
        seen = (self.version(now_s), self.look.version)
        if seen != self._seen:
            self._seen = seen
            self.redraw()

    def version(self, now_s: float) -> object:
        """What compares unequal as soon as the pane would look different."""
        return None

    def line(self, width: int) -> Row:
        """Everything in one line."""
        raise NotImplementedError

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The box under the head."""
        raise NotImplementedError

    def head(self) -> Line:
        """Number and title."""
        return (
            Line()
            .add(f"{self.number} ", "key")
            .add(self.title + " ", "strong" if self.has_focus else "title")
        )

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """One line, or head and box."""
        if height == 1:
            return [self.line(width)]
        head = self.head()
        head.add(self.look.glyphs.rule * max(0, width - head.width - 1), "faint")
        return [head.row(width), *self.body(width, height - 1)]

    def on_focus(self) -> None:
        """Show that keys come here."""
        self.redraw()

    def on_blur(self) -> None:
        """Show that keys go elsewhere."""
        self.redraw()


class EmptyPane(Pane):
    """Says what will be there, and by which key one gets there."""

    purpose = ""
    detail = ""

    def line(self, width: int) -> Row:
        """What will be there."""
        line = self.head()
        return line.pad_to(14).add(self.purpose, "dim").row(width)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """What will be there, at length."""
        rows = []
        for text, token in ((self.purpose, "text"), (self.detail, "dim")):
            for piece in wrap(text, width - 4):
                rows.append(Line().add("  ").add(piece, token).row(width))
        return rows


class ServerPane(EmptyPane):
    """The inference server."""

    number, pane_id, title = 2, "server", "server"
    purpose = "empty: no server is watched yet"
    detail = (
        "Here: is it up, and if not, why; start-up phases and time left; its log. Key 2 comes here."
    )


class TuningPane(EmptyPane):
    """How the host is tuned."""

    number, pane_id, title = 3, "tuning", "tuning"
    purpose = "empty: the host has not been checked yet"
    detail = (
        "Here: governor, kernel, NUMA, PCIe and driver settings against what inference needs, "
        "each with evidence and a fix. Key 3 comes here; t opens the checklist."
    )

    def version(self, now_s: float) -> object:
        """Changes with each run of the checklist."""
        return id(self.shell.judged.get(self.shell.current))

    def line(self, width: int) -> Row:
        """How many are wrong, and the worst of them."""
        judged = self.shell.judged.get(self.shell.current)
        if judged is None:
            return super().line(width)
        from screens.tuning_list import summary

        return self.head().pad_to(14).extend(summary(judged.findings)).row(width)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The counts, and what matters most."""
        judged = self.shell.judged.get(self.shell.current)
        if judged is None:
            return super().body(width, height)
        from screens.tuning_list import summary, worst_lines

        rows = [Line().add("  ").extend(summary(judged.findings)).row(width)]
        rows += [line.row(width) for line in worst_lines(judged.findings, height - 1)]
        return rows


class BenchmarkPane(EmptyPane):
    """How fast the server serves: the run of this room that goes on, or the last."""

    number, pane_id, title = 4, "bench", "benchmark"
    purpose = "empty: nothing has been measured yet"
    detail = (
        "Here: output and total tokens a second, time to first token, and the most that this "
        "hardware can do. Key b measures."
    )

    @property
    def live(self) -> Live | None:
        """The run of the host looked at."""
        return None if self.shell.bench is None else self.shell.bench.live(self.shell.current)

    def version(self, now_s: float) -> object:
        """The run's."""
        return None if self.shell.bench is None else (self.shell.bench.version, self.shell.current)

    def line(self, width: int) -> Row:
        """The newest figures."""
        live = self.live
        if live is None:
            return super().line(width)
        from screens.bench_rows import rates_line, state_line

        line = self.head().pad_to(14).extend(state_line(live).spans).add("  ")
        return line.extend(rates_line(live).spans).row(width)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The newest figures, then the finished steps."""
        live = self.live
        if live is None:
            return super().body(width, height)
        from screens.bench_rows import rates_line, short_step_row, state_line

        room = max(0, height - 2)
        return [
            Line().add("  ").extend(state_line(live).spans).row(width),
            Line().add("  ").extend(rates_line(live).spans).row(width),
            *(short_step_row(step, width) for step in live.steps[-room:] if room),
        ]


@dataclass(frozen=True, slots=True)
class PaneSpec:
    """One place in the room: the pane's name, and what makes it."""

    pane_id: str
    make: Callable[[Shell], Pane]


PANES: tuple[PaneSpec, ...] = (
    PaneSpec("server", ServerPane),
    PaneSpec("tuning", TuningPane),
    PaneSpec("bench", BenchmarkPane),
)
