"""Each step of a run beside what the model could do on its cards, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.cli.bench_history import figure
from tui.cli.fit import table, wrapped

if TYPE_CHECKING:
    from backends.bench.possible import Possible

KINDS = ("paper", "live clock", "realistic")


def possible_table(possible: Possible, width: int | None = None) -> str:
    """The table, with what it stands for above and where its assumptions are below.

    Args:
        possible: What it shows.
        width: What a line may take; where a line a load is longer, each figure has one of its own.
    """
    head = (
        f"what {possible.model} could do on {possible.card}, {possible.layout} "
        "(tok/s a stream while decoding)"
    )
    shown = _wide(possible)
    if width is not None and max(map(len, shown.splitlines())) > width:
        shown = _narrow(possible)
    words = [head]
    if possible.misfit:
        words.append(f"DOES NOT FIT: {possible.misfit}")
    note = "`gpuroom bench show RUN --json` has the assumptions of each figure (`possible`)"
    above = [part for line in words for part in wrapped(line, width)]
    return "\n".join((*above, shown, *wrapped(note, width)))


def _wide(possible: Possible) -> str:
    """A line a load."""
    rows = []
    for step in possible.steps:
        cells = [step.label, str(step.context_tokens)]
        cells.append(figure(step.figure("measured").stream_tokens_per_s))
        for kind in KINDS:
            cells.append(figure(step.figure(kind).stream_tokens_per_s))
            cells.append(_percent(step.stream_share(kind)))
        cells.append(_percent(step.output_share("realistic")))
        rows.append(cells)
    header = ["load", "context", "tok/s a stream"]
    for kind in KINDS:
        header += [kind, "reached"]
    header.append("of all streams")
    return table(header, rows, right=range(1, len(header)))


def _narrow(possible: Possible) -> str:
    """A line a load and figure."""
    rows = []
    for step in possible.steps:
        for place, kind in enumerate(("measured", *KINDS)):
            first = [step.label, str(step.context_tokens)] if not place else ["", ""]
            reached = step.stream_share(kind) if place else None
            streams = step.output_share("realistic") if kind == "realistic" else None
            rows.append(
                [
                    *first,
                    kind,
                    figure(step.figure(kind).stream_tokens_per_s),
                    _percent(reached) if place else "",
                    _percent(streams) if kind == "realistic" else "",
                ]
            )
    header = ["load", "context", "figure", "tok/s a stream", "reached", "of all streams"]
    return table(header, rows, right=(1, 3, 4, 5))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
