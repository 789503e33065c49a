"""The plans to choose from, and what each does in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from backends.bench import planfile
from backends.bench.plan import Plan
from backends.errors import RoomError
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.row_list import RowList

FIRST_LOOK = "quick"
"""Under the cursor at first: two minutes, a few loads."""


class PlanList(RowList):
    """Plans by name; those of the user come with the shipped ones."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.plans: dict[str, Plan] = {}

    def load(self) -> None:
        """Read them; one that cannot be read is left out."""
        for name in planfile.available():
            try:
                self.plans[name] = planfile.load(name)
            except RoomError:
                continue
        if FIRST_LOOK in self.plans:
            self.cursor_key = FIRST_LOOK

    def keys(self) -> Sequence[Hashable]:
        """Names."""
        return tuple(self.plans)

    @property
    def chosen(self) -> Plan | None:
        """The plan under the cursor."""
        keys = self.keys()
        return self.plans[str(keys[self.cursor_index(keys)])] if keys else None

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Name and what it does."""
        line = Line().add((self.look.glyphs.cursor if current else " ") + " ", "accent")
        line.cell(str(key), 16, "strong").add(self.plans[str(key)].description, "dim")
        return line.row(width, "cursor-row" if current else "text")


def plan_words(plan: Plan) -> str:
    """What a plan does, in a sentence."""
    from backends.bench.steps import unroll

    steps = unroll(plan)
    labels = list(dict.fromkeys(step.label for step in steps))
    shown = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if labels[8:] else "")
    part = plan.parts[0]
    lengths = ""
    if isinstance(part.input, int) and isinstance(part.output, int):
        lengths = f" {part.input} tokens in, {part.output} out;"
    times = f" {plan.repetitions} times, interleaved;" if plan.repetitions > 1 else ""
    return f"{len(steps)} steps:{lengths}{times} {shown}"
