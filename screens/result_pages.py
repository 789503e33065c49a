"""Pages about runs: the theoretical maximum with its assumptions, all that produced them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from backends.bench.against import Opened
from backends.bench.compare import Comparison
from backends.bench.possible import Possible, PossibleFigure, StepPossible
from backends.bench.results import RunResult
from screens.bench_rows import rate
from screens.result_table import MARKS, share_text
from screens.result_text import FOREIGN_SHARE, SEVERITY_TOKENS, gpus_text, local_time
from tui import format as fmt
from tui.rows import Line, Row
from tui.widgets.host_state import wrap

WIDE: Final = 120
"""From here on what a step is made of stands beside it, else below."""


def _wrapped(text: str, width: int, token: str = "text", indent: int = 2) -> Iterator[Row]:
    for number, piece in enumerate(wrap(text, max(8, width - indent - 2))):
        yield Line().add(" " * (indent + (2 if number else 0))).add(piece, token).row(width)


def _title(text: str, width: int) -> Row:
    return Line().add(" ").add(text, "title").row(width)


def maximum_page(runs: Sequence[RunResult], width: int) -> list[Row]:
    """The four figures of each load, what each step is made of, and what each figure assumes."""
    rows: list[Row] = []
    for run in runs:
        title = f"theoretical maximum, run of {local_time(run)}"
        rows.append(_title(title, width))
        if run.possible is None:
            why = run.possible_absent or "the model was not weighed when this was measured"
            rows += _wrapped(f"not known: {why}", width, "warning")
            hint = f"gpuroom bench show {run.run_id} --model MODEL computes it"
            rows += _wrapped(hint, width, "dim")
        else:
            rows += _possible_rows(run.possible, width)
        rows.append(Line().row(width))
    return rows


def _possible_rows(possible: Possible, width: int) -> Iterator[Row]:
    yield from _wrapped(f"{possible.model} on {possible.card}, {possible.layout}", width, "strong")
    if possible.misfit:
        yield from _wrapped(f"DOES NOT FIT: {possible.misfit}", width, "critical")
    batch = possible.compute_from_batch
    yield from _wrapped(
        f"arithmetic takes over from memory at {batch} sequences at once"
        if batch is not None
        else f"where arithmetic takes over: {possible.compute_absent or 'not known'}",
        width,
        "dim",
    )
    head = Line().add("  ").cell("load", 14, "dim").cell("figure", 12, "dim")
    for name, cells in (("a stream", 10), ("reached", 9), ("all", 10), ("reached", 9), ("step", 9)):
        head.cell(name, cells, "dim", ">")
    yield head.row(width)
    for step in possible.steps:
        for number, figure in enumerate(step.figures):
            line = Line().add("  ").cell("" if number else step.label, 14, "strong")
            line.cell(figure.kind, 12, "accent" if figure.kind != "measured" else "good")
            yield _figure_line(line, step, figure, width).row(width)
            if figure.terms_ms and width < WIDE:
                yield from _wrapped(f"ms: {_terms(figure)}", width, "dim", 28)
        if step.prefill_ms is not None:
            words = f"first token of {step.prompt_tokens:,} at least {step.prefill_ms:.3g} ms"
            yield Line().add("  ").cell("", 14).add(words, "dim").row(width)
    seen: set[str] = set()
    for figure in possible.steps[-1].figures if possible.steps else ():
        yield Line().row(width)
        label = possible.steps[-1].label
        yield (
            Line()
            .add("  ")
            .add(f"{figure.kind} assumes", "title")
            .add(f"  ({label})", "dim")
            .row(width)
        )
        for text in figure.assumptions or (figure.absent or "nothing",):
            yield from _wrapped(text, width, "dim" if text in seen else "text", 4)
            seen.add(text)
    for note in possible.notes:
        yield from _wrapped(f"note: {note}", width, "dim")


def _figure_line(line: Line, step: StepPossible, figure: PossibleFigure, width: int) -> Line:
    if figure.stream_tokens_per_s is None:
        return line.add(f"  {fmt.ABSENT} {figure.absent or ''}", "dim")
    shares = ("", "")
    if figure.kind != "measured":
        shares = (
            share_text(step.stream_share(figure.kind)),
            share_text(step.output_share(figure.kind)),
        )
    line.cell(rate(figure.stream_tokens_per_s), 10, "strong", ">").cell(shares[0], 9, "text", ">")
    line.cell(rate(figure.output_tokens_per_s), 10, "text", ">").cell(shares[1], 9, "text", ">")
    step_ms = fmt.ABSENT if figure.step_ms is None else f"{figure.step_ms:.3g} ms"
    line.cell(step_ms, 9, "text", ">")
    beside = figure.terms_ms and width >= WIDE
    return line.add(f"  ms: {_terms(figure)}" if beside else "", "dim")


def _terms(figure: PossibleFigure) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figure.terms_ms.items())


def conditions_page(opened: Opened, width: int) -> list[Row]:
    """All that produced the runs, what was found, the ledgers, and what differs between them."""
    rows: list[Row] = []
    for place, run in enumerate(opened.runs):
        several = len(opened.runs) > 1
        rows.append(_title(f"{MARKS[place % 26] + ' ' if several else ''}run {run.run_id}", width))
        for name, value in produced_by(run):
            for number, piece in enumerate(wrap(value, max(8, width - 20))):
                line = Line().add("  ").cell("" if number else name, 16, "dim")
                rows.append(line.add(piece).row(width))
        for note in opened.notes[place]:
            written = f"{note.written_utc.astimezone():%Y-%m-%d %H:%M}"
            rows += _wrapped(f"note of {written}: {note.text}", width, "info")
        for finding in run.findings:
            text = f"{finding.severity.value}: {finding.text}"
            rows += _wrapped(text, width, SEVERITY_TOKENS[finding.severity])
        rows += _ledger_rows(run, width)
        found = opened.comparison_of(run.run_id)
        if found is not None:
            rows += _difference_rows(found, width)
        rows.append(Line().row(width))
    return rows


def produced_by(run: RunResult) -> Iterator[tuple[str, str]]:
    """What is known of how a run came about, name by name."""
    environment, target = run.environment, run.target
    plan, client, source = run.plan, run.client, environment.effective_source
    for name, value in (
        ("measured", f"{local_time(run)} with {run.harness}, {run.status.value}"),
        ("plan", f"{plan.name} {plan.digest[:12]}, seed {plan.seed}, prompts by "
                 f"{plan.prompt_source.value} {plan.workload_digest[:12]}"),
        ("server", f"{target.engine} {target.engine_version or ''} {target.url}"),
        ("model", target.model), ("profile", target.profile),
        ("route", f"{target.route}{', streaming' if target.streaming else ''}"),
        ("load from", f"{client.where} {client.hostname}"),
        ("generator", client.generator),
        ("host", environment.host), ("GPUs", gpus_text(run)), ("driver", environment.driver),
        ("kernel", environment.kernel), ("boot", environment.boot_id),
        ("versions", ", ".join(f"{k} {v}" for k, v in environment.versions.items())),
        ("changed files", ", ".join(environment.changed_files)),
        ("configuration", source and f"read from {source}"),
        ("command line", " ".join(environment.server_argv)),
        ("environment", " ".join(f"{k}={v}" for k, v in environment.server_env.items())),
        ("tuning", ", ".join(f"{k} {v}" for k, v in environment.tuning.items())),
    ):  # fmt: skip
        if value:
            yield name, value
    for key, asked in environment.asked_config.items():
        effective = environment.effective_config.get(key)
        if effective is not None and effective != asked:
            yield "asked for", f"{key} {asked}, runs with {effective}"


def _ledger_rows(run: RunResult, width: int) -> Iterator[Row]:
    yield Line().add("  ").add("tokens, three ways", "title").row(width)
    words = "asked, usage, seen: measured requests; server: the whole step, warm-up in it"
    yield Line().add("  ").add(words, "dim").row(width)
    head = Line().add("  ").cell("load", 13, "dim").cell("", 4)
    for name in ("asked", "usage", "seen", "server"):
        head.cell(name, 10, "dim", ">")
    yield head.cell("foreign", 9, "dim", ">").cell("cached", 9, "dim", ">").row(width)
    for step in run.steps:
        ledger = step.ledger
        line = Line().add("  ").cell(step.label, 13, "strong").cell("out", 4, "dim")
        for count in (
            ledger.asked_output, ledger.usage_output, ledger.seen_output, ledger.server_output
        ):  # fmt: skip
            line.cell(fmt.ABSENT if count is None else f"{count:,}", 10, "text", ">")
        share = ledger.foreign_output_share
        token = "critical" if share is not None and share > FOREIGN_SHARE else "dim"
        yield line.cell(share_text(share), 9, token, ">").row(width)
        line = Line().add("  ").cell("", 13).cell("in", 4, "dim")
        for count in (ledger.asked_input, ledger.usage_input):
            line.cell(fmt.ABSENT if count is None else f"{count:,}", 10, "dim", ">")
        line.cell("", 10)
        for count, cells in ((ledger.server_input, 10), (ledger.usage_cached_input, 18)):
            line.cell(fmt.ABSENT if count is None else f"{count:,}", cells, "dim", ">")
        yield line.row(width)
        for remark in ledger.remarks:
            yield from _wrapped(remark, width, "warning", 4)


def _difference_rows(comparison: Comparison, width: int) -> Iterator[Row]:
    for title, found, token in (
        ("not comparable, because of (reference / this)", comparison.obstacles, "warning"),
        ("changed between them (reference / this)", comparison.changes, "text"),
    ):
        if found:
            yield Line().add("  ").add(title, "title").row(width)
            for difference in found:
                yield from _wrapped(str(difference), width, token, 4)
    for remark in comparison.remarks:
        yield from _wrapped(f"remark: {remark}", width, "dim")
