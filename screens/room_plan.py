"""How the room divides its space. A pure function of size and number of GPUs."""

from __future__ import annotations

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
        boxes: Whether panes stand side by side as boxes, else one line each.
    """

    grid: int
    chart: int
    panes: int
    boxes: bool


def plan_room(width: int, height: int, gpus: int, panes: int) -> RoomPlan:
    """Divide `height` rows (bar and hints already taken off)."""
    if height < FRAME_ROWS + MIN_GPU_ROWS + panes:
        panes = 0  # a window this small is for the GPUs; keys still lead to the panes
    space = height - panes
    if gpus == 0:
        side_by_side = panes > 0 and width >= WIDE and height >= 20
        rows = min(MAX_BOX_ROWS, height // 3) if side_by_side else panes
        return RoomPlan(max(1, height - rows), 0, rows, side_by_side)
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
