"""How much of what was possible a run has reached: the four figures beside each of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from backends.bench.cards import Card, card_table
from backends.bench.kv_cache import kv_type_of
from backends.bench.possible import Possible, PossibleFigure, StepPossible
from backends.bench.results import RunResult, StepResult, Summary
from backends.bench.roofline import DecodeFigure, FigureKind, Roofline, roofline
from backends.bench.step_time import Conditions, Layout
from backends.bench.weights import Weights
from backends.errors import UsageError


@dataclass(frozen=True, slots=True)
class StepEfficiency:
    """One step beside its ceilings.

    Attributes:
        label: The load.
        roofline: At the step's concurrency and mean context.
        stream_tokens_per_s: Measured: one over the mean time per output token.
        output_tokens_per_s: Measured, of all streams, in the steady window.
    """

    label: str
    roofline: Roofline
    stream_tokens_per_s: float | None
    output_tokens_per_s: float | None

    def stream_share(self, kind: FigureKind) -> float | None:
        """Measured decode speed of a stream as a share of a ceiling."""
        return _share(self.stream_tokens_per_s, self.roofline.figure(kind).stream_tokens_per_s)

    def output_share(self, kind: FigureKind) -> float | None:
        """Measured output of all streams as a share of a ceiling, which has no prefill in it."""
        return _share(self.output_tokens_per_s, self.roofline.figure(kind).output_tokens_per_s)


def _share(measured: float | None, possible: float | None) -> float | None:
    return measured / possible if measured is not None and possible else None


def efficiency(
    run: RunResult, weights: Weights, conditions: Conditions
) -> tuple[StepEfficiency, ...]:
    """Put each step of a run beside what was possible.

    Args:
        run: What was measured; repetitions of a step are averaged.
        weights: The model's.
        conditions: Cards and layout, from `conditions_of` or by hand; context, batch and prompt
            are those of each step.
    """
    by_label: dict[str, list[StepResult]] = {}
    for step in run.steps:
        by_label.setdefault(step.label, []).append(step)
    return tuple(_step(label, steps, weights, conditions) for label, steps in by_label.items())


def _step(
    label: str, steps: list[StepResult], weights: Weights, conditions: Conditions
) -> StepEfficiency:
    prompt = _mean_of(s.input_length for s in steps) or 0.0
    answer = _mean_of(s.output_length for s in steps) or 0.0
    tpot = _mean_of(s.tpot_s for s in steps)
    rates = [r.output_tokens_per_s for s in steps if (r := s.steady or s.whole) is not None]
    batch = max(1, *(s.concurrency or s.max_in_flight for s in steps))
    speed = 1 / tpot if tpot else None
    at = replace(
        conditions,
        # The mean length that a token meets: the prompt and half of the answer.
        context=round(prompt + answer / 2),
        batch=batch,
        prompt=max(1, round(prompt)),
        measured_tokens_per_s=speed,
    )
    return StepEfficiency(label, roofline(weights, at), speed, _mean(rates))


def possible_of(run: RunResult, model: str, weights: Weights, conditions: Conditions) -> Possible:
    """The four figures of each step with their assumptions, for the document of the run.

    Args:
        run: What was measured.
        model: Its name.
        weights: Of that model.
        conditions: As for `efficiency`.
    """
    steps = efficiency(run, weights, conditions)
    first = steps[0].roofline if steps else roofline(weights, conditions)
    layout = conditions.layout
    return Possible(
        model=model,
        card=f"{layout.cards} x {conditions.card.name}",
        layout=f"tp {layout.tp}, dp {layout.dp}, pp {layout.pp}, ep {layout.ep}",
        steps=tuple(_document(step) for step in steps),
        compute_from_batch=first.compute_from_batch,
        compute_absent=first.compute_absent or None,
        misfit=first.fit.misfit,
        notes=first.notes,
    )


def _document(step: StepEfficiency) -> StepPossible:
    at = step.roofline.conditions
    figures = [_figure(figure) for figure in step.roofline.decode if figure.terms or figure.absent]
    figures = [figure for figure in figures if figure.kind != FigureKind.MEASURED]
    measured = PossibleFigure(
        kind=FigureKind.MEASURED.value,
        stream_tokens_per_s=step.stream_tokens_per_s,
        output_tokens_per_s=step.output_tokens_per_s,
        step_ms=1e3 / step.stream_tokens_per_s if step.stream_tokens_per_s else None,
        assumptions=(
            "a stream: one over its mean time per output token",
            "all streams: output tokens of the steady window, prefill and queueing inside",
        ),
        absent=None if step.stream_tokens_per_s else "no time per output token was measured",
    )
    prefill = step.roofline.prefill[-1].total_ms if step.roofline.prefill else None
    return StepPossible(
        label=step.label,
        context_tokens=at.context,
        batch=at.batch,
        figures=(*figures, measured),
        prompt_tokens=at.prompt,
        prefill_ms=prefill,
    )


def _figure(figure: DecodeFigure) -> PossibleFigure:
    terms = figure.terms
    parts: dict[str, float | None] = {}
    if terms is not None:
        parts = {
            "weights": terms.weights_ms, "KV cache": terms.kv_cache_ms,
            "compute": terms.compute_ms, "all-reduce": terms.all_reduce_ms,
            "fixed": terms.fixed_ms,
        }  # fmt: skip
    return PossibleFigure(
        kind=figure.kind.value,
        stream_tokens_per_s=figure.stream_tokens_per_s,
        output_tokens_per_s=figure.output_tokens_per_s,
        step_ms=figure.step_ms,
        terms_ms={name: value for name, value in parts.items() if value},
        assumptions=figure.assumptions,
        absent=figure.absent or None,
    )


def _mean_of(summaries: Iterable[Summary | None]) -> float | None:
    return _mean([s.mean for s in summaries if s is not None and s.mean is not None])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def conditions_of(run: RunResult, card: Card | None = None, cards: int | None = None) -> Conditions:
    """Cards and parallel layout that a run records.

    Args:
        run: With its environment: GPUs and effective configuration.
        card: Takes the place of the recorded one.
        cards: How many; by default as many as were recorded.

    Raises:
        UsageError: No GPU is recorded and none is given, or the layout contradicts their number.
    """
    gpus = run.environment.gpus
    if card is None:
        if not gpus:
            raise UsageError("The run does not record its GPUs", hint="Give --gpus 8xCARD.")
        card = card_table().find(str(gpus[0].get("name") or ""))
    count = cards or len(gpus)
    layout = _layout(run.environment.effective_config, count)
    layout.check(count)
    kind = kv_type_of(run.environment.effective_config.get("kv_cache_dtype", ""))
    conditions = Conditions(card=card, layout=layout, kv_type=kind)
    clock = _memory_clock(run)
    if clock is None:
        return conditions
    ran_mhz, highest_mhz = clock
    return replace(
        conditions,
        live_bandwidth_gbps=card.bandwidth_gbps.value * ran_mhz / highest_mhz,
        live_source=f"memory ran at {ran_mhz:.0f} of {highest_mhz:.0f} MHz through the run",
    )


def _memory_clock(run: RunResult) -> tuple[float, float] | None:
    """What the slowest card's memory ran at while it was measured, and its highest, in MHz."""
    highest = {
        str(gpu.get("uuid")): gpu.get("memory_clock_max_mhz") for gpu in run.environment.gpus
    }
    pairs = []
    for step in run.steps:
        for gpu in step.gpus:
            most = highest.get(gpu.uuid)
            if gpu.memory_clock_mean_mhz and isinstance(most, int | float) and most > 0:
                pairs.append((min(gpu.memory_clock_mean_mhz, float(most)), float(most)))
    return min(pairs, key=lambda pair: pair[0] / pair[1], default=None)


def _layout(config: Mapping[str, str], count: int) -> Layout:
    """VLLM's and SGLang's words for a layout; all cards tensor parallel where nothing is said."""
    dp = _whole(config, "data_parallel_size", "dp_size", "dp")
    pp = _whole(config, "pipeline_parallel_size", "pp_size", "pp")
    tp = _whole(config, "tensor_parallel_size", "tp_size", "tp")
    ep = _whole(config, "expert_parallel_size", "ep_size", "ep") or 1
    if dp and tp and _true(config, "enable_dp_attention"):
        # SGLang counts the replicas of the attention part inside tp.
        tp //= dp
    dp, pp = dp or 1, pp or 1
    tp = tp or max(1, count // (dp * pp))
    if _true(config, "enable_expert_parallel"):
        ep = tp * dp
    return Layout(tp, dp, pp, ep)


def _whole(config: Mapping[str, str], *names: str) -> int:
    for name in names:
        text = config.get(name, "")
        if text.isdecimal() and 0 < int(text) < 100_000:
            return int(text)
    return 0


def _true(config: Mapping[str, str], name: str) -> bool:
    return config.get(name, "").lower() in ("true", "1", "yes")
