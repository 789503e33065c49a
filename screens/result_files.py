"""A benchmark result as a file, by the ending of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from backends.bench.against import Opened
from backends.bench.export import comparison_to_markdown, to_csv, to_markdown
from backends.bench.results import to_json
from backends.errors import UsageError
from backends.storage.atomic import write_bytes
from screens.result import against_text, several_lines, single_lines
from screens.result_charts import chart_rows
from screens.result_pages import maximum_page
from screens.result_table import head_row, table_row
from screens.result_text import detail_lines, several_head, single_head
from tui.picture import picture
from tui.rows import Line, blank_row
from tui.themes import make_look

WIDTH: Final = 150
CHART_ROWS: Final = 16
ENDINGS: Final = (".svg", ".json", ".csv", ".md")


def write_result(path: Path, opened: Opened, theme: str = "dark") -> Path:
    """Write runs to a file; gives where.

    Raises:
        UsageError: The name has another ending, or is taken.
    """
    if path.suffix not in ENDINGS:
        raise UsageError(
            f"{path.name}: which format?", hint=f"End the name in {', '.join(ENDINGS)}"
        )
    if path.exists():
        raise UsageError(f"{path} is there already", hint="Give another name")
    write_bytes(path, content(path.suffix, opened, theme).encode(), 0o644)
    return path


def content(ending: str, opened: Opened, theme: str = "dark") -> str:
    """What a file with that ending holds."""
    if ending == ".svg":
        return svg(opened, theme)
    if ending == ".csv":
        return to_csv(opened.runs)
    if ending == ".md":
        parts = [to_markdown(run) for run in opened.runs]
        return "\n".join([*parts, *map(comparison_to_markdown, opened.comparisons)])
    return "\n".join(to_json(run).decode() for run in opened.runs) + "\n"


def svg(opened: Opened, theme: str = "dark") -> str:
    """The result screen as a picture: head, table, curves, detail of the last load, the maximum."""
    look = make_look(theme if theme in ("dark", "light") else "dark", ascii_set=False)
    several = len(opened.runs) > 1
    head = several_head(opened) if several else single_head(opened)
    lines = several_lines(opened) if several else single_lines(opened)
    against = against_text(opened)
    rows = [line.row(WIDTH) for line in head]
    rows += [blank_row(WIDTH), head_row(WIDTH, several, against)]
    rows += [
        table_row(line, WIDTH, current=False, marked=several, glyphs=look.glyphs) for line in lines
    ]
    drawn = opened.runs
    if not several and opened.reference is not None:
        drawn = (*drawn, opened.reference)
    rows += [blank_row(WIDTH), *chart_rows(drawn, WIDTH, CHART_ROWS, look.glyphs)]
    if not several and lines:
        run = opened.runs[0]
        rows.append(blank_row(WIDTH))
        rows.append(Line().add(f" {lines[-1].load.label}", "title").row(WIDTH))
        found = detail_lines(lines[-1], opened.comparison_of(run.run_id), run)
        rows += [Line().add("  ").extend(line.spans).row(WIDTH) for line in found]
        if run.possible is not None:
            rows += [blank_row(WIDTH), *maximum_page([run], WIDTH)]
    return picture(rows, WIDTH, look, f"gpuroom: {opened.runs[0].plan.name}")
