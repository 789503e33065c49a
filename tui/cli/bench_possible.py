"""Each step of a run beside what the model could do on its cards, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.cli.bench_history import figure, table

if TYPE_CHECKING:
    from backends.bench.results import RunResult
    from backends.bench.step_time import Conditions
    from backends.bench.weights import Weights


def possible(result: RunResult, name: str, weights: Weights, conditions: Conditions) -> str:
    """The table, with its assumptions above. Raises UsageError for a layout that cannot be."""
    from backends.bench.efficiency import efficiency
    from backends.bench.roofline import FigureKind

    layout = conditions.layout
    kinds = (FigureKind.PAPER, FigureKind.LIVE, FigureKind.REALISTIC)
    rows = []
    for step in efficiency(result, weights, conditions):
        cells = [step.label, str(step.roofline.conditions.context)]
        cells.append(figure(step.stream_tokens_per_s))
        for kind in kinds:
            cells.append(figure(step.roofline.figure(kind).stream_tokens_per_s))
            cells.append(_percent(step.stream_share(kind)))
        cells.append(_percent(step.output_share(FigureKind.REALISTIC)))
        rows.append(cells)
    header = ["load", "context", "tok/s a stream"]
    for kind in kinds:
        header += [kind.value, "reached"]
    header.append("of all streams")
    return "\n".join(
        (
            f"what {name} could do on {layout.cards} x {conditions.card.name}, tp {layout.tp}, "
            f"dp {layout.dp}, pp {layout.pp}, ep {layout.ep} (tok/s a stream while decoding)",
            table(header, rows, right=range(1, len(header))),
            "`gpuroom roofline` has the assumptions of each figure",
        )
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
