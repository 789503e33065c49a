"""What a run could have reached, as a part of its document: plain figures with what they assume."""

from __future__ import annotations

import msgspec


class PossibleFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One of the four figures of decoding: `paper`, `live clock`, `realistic`, `measured`."""

    kind: str
    stream_tokens_per_s: float | None = None
    """Of one stream."""
    output_tokens_per_s: float | None = None
    """Of all streams together; the ceilings have no prefill in them."""
    step_ms: float | None = None
    """One decode step."""
    terms_ms: dict[str, float] = {}
    """What the step is made of: weights, KV cache, compute, all-reduce, fixed."""
    assumptions: tuple[str, ...] = ()
    absent: str | None = None
    """Why there is no figure."""


class StepPossible(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of one load of a run, at its own concurrency and mean context."""

    label: str
    context_tokens: int
    batch: int
    figures: tuple[PossibleFigure, ...]
    prompt_tokens: int = 0
    prefill_ms: float | None = None
    """Floor of the time to first token of one prompt on an idle server, realistic."""

    def figure(self, kind: str) -> PossibleFigure:
        """The figure of that kind; an absent one where it was not recorded."""
        for figure in self.figures:
            if figure.kind == kind:
                return figure
        return PossibleFigure(kind=kind, absent="not recorded")

    def stream_share(self, kind: str) -> float | None:
        """Measured decode speed of a stream as a share of a ceiling; None if either is absent."""
        return _share(
            self.figure("measured").stream_tokens_per_s, self.figure(kind).stream_tokens_per_s
        )

    def output_share(self, kind: str) -> float | None:
        """Measured output of all streams as a share of a ceiling."""
        return _share(
            self.figure("measured").output_tokens_per_s, self.figure(kind).output_tokens_per_s
        )


class Possible(msgspec.Struct, frozen=True, kw_only=True):
    """The theoretical maximum of the model that was measured on the cards that it ran on."""

    model: str
    card: str
    layout: str
    """Such as `tp 8, dp 1, pp 1, ep 1`."""
    steps: tuple[StepPossible, ...]
    compute_from_batch: int | None = None
    """Sequences at once from which arithmetic and not memory is the limit."""
    compute_absent: str | None = None
    misfit: str | None = None
    """Why the model cannot run on these cards as laid out: its weights do not fit. What was
    measured is then another model, another layout, or has a part of its weights elsewhere."""
    notes: tuple[str, ...] = ()

    def step(self, label: str) -> StepPossible | None:
        """The ceilings of a load; None where there are none."""
        return next((step for step in self.steps if step.label == label), None)


def _share(measured: float | None, possible: float | None) -> float | None:
    return measured / possible if measured is not None and possible else None
