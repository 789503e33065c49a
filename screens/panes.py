"""The panes beside the GPUs. Each area of the product fills one: give its class here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from screens.pane import EmptyPane, Pane
from screens.server_pane import ServerPane
from tui.rows import Line, Row
from tui.shell import Shell

if TYPE_CHECKING:
    from backends.bench.desk import Live
    from backends.storage.bench_tables import RunRow


class TuningPane(EmptyPane):
    """How the host is tuned."""

    number, pane_id, title, opens = 3, "tuning", "tuning", "tuning"
    purpose = "not checked yet: t opens the checklist"
    detail = (
        "Here: governor, kernel, NUMA, PCIe and driver settings against what inference needs, "
        "each with evidence and a fix. Key 3 comes here; t, or here Enter, opens the checklist."
    )

    @property
    def filled(self) -> bool:
        """Whether the checklist was run."""
        return self.shell.current in self.shell.judged

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

    number, pane_id, title, opens = 4, "bench", "benchmark", "bench"
    purpose = "nothing measured yet: b measures the server"
    detail = (
        "Here: output and total tokens a second, time to first token, and the most that this "
        "hardware can do. Key 4 comes here; b, or here Enter, opens the benchmark."
    )

    @property
    def live(self) -> Live | None:
        """The run of the host looked at."""
        return None if self.shell.bench is None else self.shell.bench.live(self.shell.current)

    @property
    def past(self) -> RunRow | None:
        """The newest run from before this room."""
        return self.shell.past.get(self.shell.current)

    @property
    def filled(self) -> bool:
        """Whether anything was measured."""
        return self.live is not None or self.past is not None

    def version(self, now_s: float) -> object:
        """The run's."""
        bench = self.shell.bench
        return (None if bench is None else bench.version, self.shell.current, self.past)

    def line(self, width: int) -> Row:
        """The newest figures."""
        live = self.live
        if live is None and self.past is not None:
            from screens.history_list import past_lines

            first, second = past_lines(self.past)
            line = self.head().pad_to(14).extend(first.spans).add("  ").extend(second.spans)
            return line.add(" at its best", "dim").row(width)
        if live is None:
            return super().line(width)
        from screens.bench_rows import rates_line, state_line

        line = self.head().pad_to(14).extend(state_line(live).spans).add("  ")
        return line.extend(rates_line(live).spans).row(width)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The newest figures, then the finished steps."""
        live = self.live
        if live is None and self.past is not None:
            from screens.history_list import past_lines, remarks

            first, second = past_lines(self.past)
            for span in remarks(self.past):
                first.add("  ").extend([span])
            return [
                Line().add("  ").extend(first.spans).row(width),
                Line().add("  ").extend(second.spans).row(width),
                Line().add("  b measures, h lists all runs", "dim").row(width),
            ]
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
