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
    """Plans by name; those of the user come with the shipped ones.

    Attributes:
        broken: Why a plan cannot be read, by name.
    """

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.plans: dict[str, Plan] = {}
        self.broken: dict[str, str] = {}

    def load(self) -> None:
        """Read them; one that cannot be read stays in the list and says why."""
        for name in planfile.available():
            try:
                self.plans[name] = planfile.load(name)
            except RoomError as error:
                self.broken[name] = f"{error.title}: {error.detail}".rstrip(": ")
        if FIRST_LOOK in self.plans:
            self.cursor_key = FIRST_LOOK

    def keys(self) -> Sequence[Hashable]:
        """Names."""
        return tuple(sorted((*self.plans, *self.broken)))

    @property
    def chosen(self) -> Plan | None:
        """The plan under the cursor; None where it cannot be read."""
        return self.plans.get(self.chosen_name)

    @property
    def chosen_name(self) -> str:
        """Its name; empty where there is no plan."""
        keys = self.keys()
        return str(keys[self.cursor_index(keys)]) if keys else ""

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Name and what it does."""
        line = Line().add((self.look.glyphs.cursor if current else " ") + " ", "accent")
        plan = self.plans.get(str(key))
        line.cell(str(key), 16, "strong")
        if plan is None:
            line.add("cannot be read", "critical")
        else:
            line.add(plan.description, "dim")
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
    return f"{len(steps)} step{'s' if steps[1:] else ''}:{lengths}{times} {shown}"
