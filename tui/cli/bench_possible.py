"""Each step of a run beside what the model could do on its cards, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.cli.bench_history import figure, table

if TYPE_CHECKING:
    from backends.bench.possible import Possible

KINDS = ("paper", "live clock", "realistic")


def possible_table(possible: Possible) -> str:
    """The table, with what it stands for above and where its assumptions are below."""
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
    return "\n".join(
        (
            f"what {possible.model} could do on {possible.card}, {possible.layout} "
            "(tok/s a stream while decoding)",
            *((f"DOES NOT FIT: {possible.misfit}",) if possible.misfit else ()),
            table(header, rows, right=range(1, len(header))),
            "`gpuroom bench show RUN --json` has the assumptions of each figure (`possible`)",
        )
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
