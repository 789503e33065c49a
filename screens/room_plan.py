"""How the room divides its space. A pure function of size and number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui.widgets.gpu_columns import plan_grid
from tui.widgets.gpu_grid import FRAME_ROWS

MIN_CHART_ROWS = 4
MIN_GPU_ROWS = 1
SPARE_ROWS = 2
"""The line of the host and the line of the finding that matters most, where there is room."""
WIDE = 100
MIN_BOX_ROWS = 6
MAX_BOX_ROWS = 18
MAX_CHART_ROWS = 20


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Rows for each part.

    Attributes:
        grid: GPUs with title, column titles, totals and, with room to spare, the host's own line.
        chart: History; 0 when there is no room.
        panes: Panes: their number of rows in all.
        boxes: Whether panes stand side by side as boxes, else one above the other.
        heights: Rows of each pane, where they stand one above the other.
    """

    grid: int
    chart: int
    panes: int
    boxes: bool
    heights: tuple[int, ...] = ()


def plan_room(
    width: int,
    height: int,
    gpus: int,
    panes: int,
    *,
    without_gpus: int = 0,
    filled: Sequence[bool] = (),
) -> RoomPlan:
    """Divide `height` rows (bar and hints already taken off).

    Args:
        width: Cells.
        height: Rows.
        gpus: GPUs.
        panes: Panes that are shown.
        without_gpus: Rows of what is said where there are no GPUs; 0: all that there are.
        filled: By pane: whether it has something to show. Those get the rows that a host without
            GPUs leaves over.
    """
    if height < FRAME_ROWS + MIN_GPU_ROWS + panes:
        panes = 0  # a window this small is for the GPUs; keys still lead to the panes
    space = height - panes
    if gpus == 0:
        side_by_side = panes > 0 and width >= WIDE and height >= 20
        rows = min(MAX_BOX_ROWS, height // 3) if side_by_side else panes
        if side_by_side or not panes or not without_gpus or not any(filled):
            return RoomPlan(max(1, height - rows), 0, rows, side_by_side)
        heights = _shared_out(height - min(without_gpus, height - panes), filled)
        return RoomPlan(height - sum(heights), 0, sum(heights), False, heights)
    plan = plan_grid(gpus, width, space - FRAME_ROWS)
    heat_row = 1 if plan.tiles == 0 else 0
    grid = min(space, FRAME_ROWS + plan.lines + heat_row)
    rest = height - grid
    if panes and width >= WIDE and rest >= MIN_BOX_ROWS + MIN_CHART_ROWS + SPARE_ROWS + 2:
        grid += SPARE_ROWS
        rest -= SPARE_ROWS
        chart = min(MAX_CHART_ROWS, rest - max(MIN_BOX_ROWS, rest // 2))
        return RoomPlan(grid, chart, rest - chart, True)
    rest -= panes
    if rest >= MIN_CHART_ROWS + SPARE_ROWS:
        return RoomPlan(grid + SPARE_ROWS, rest - SPARE_ROWS, panes, False)
    return RoomPlan(grid + rest, 0, panes, False)


def _shared_out(rows: int, filled: Sequence[bool]) -> tuple[int, ...]:
    """A row for each pane, and what is left over among those that have something, first first."""
    heights = [1] * len(filled)
    takers = [number for number, full in enumerate(filled) if full]
    left = rows - len(filled)
    for at, number in enumerate(takers):
        heights[number] += left // len(takers) + (at < left % len(takers))
    return tuple(heights)
