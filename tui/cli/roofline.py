"""`gpuroom roofline MODEL --gpus 8x"RTX PRO 6000"`: what could be, and what that assumes."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.bench.roofline import Roofline

WIDTH = 96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a folder with config.json, a config.json, a GGUF file, or a name (--list-models)",
    )
    parser.add_argument("--gpus", metavar="NxCARD", help='for example 8x"RTX PRO 6000"')
    layout = parser.add_argument_group("layout")
    layout.add_argument("--tp", type=int, help="tensor parallel; default: all cards there are")
    layout.add_argument("--dp", type=int, default=1, help="replicas, each of tp cards")
    layout.add_argument("--pp", type=int, default=1, help="pipeline stages")
    layout.add_argument("--ep", type=int, default=1, help="expert parallel; 1 splits each expert")
    load = parser.add_argument_group("load")
    load.add_argument("--context", type=int, default=0, metavar="N", help="tokens in the cache (0)")
    load.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (1)")
    load.add_argument("--prompt", type=int, default=1024, metavar="N", help="prompt tokens (1024)")
    load.add_argument(
        "--accepted", type=float, default=0.0, metavar="X", help="draft tokens accepted a step (0)"
    )
    load.add_argument("--measured", type=float, metavar="TOK/S", help="of one stream, to compare")
    stored = parser.add_argument_group("formats")
    stored.add_argument("--weights", metavar="FORMAT", help="bf16 fp8 int8 nvfp4 mxfp4 int4")
    stored.add_argument(
        "--keep", action="append", default=[], metavar="PART",
        help="with --weights: leave attention, experts, shared or dense in bf16; repeatable",
    )  # fmt: skip
    stored.add_argument(
        "--kv-type",
        choices=("bf16", "fp8", "nvfp4"),
        help="of the KV cache; default: what the checkpoint asks for, else bf16",
    )
    stored.add_argument(
        "--dense-attention", action="store_true", help="the engine ignores sparse attention"
    )
    card = parser.add_argument_group("card")
    card.add_argument("--memory-clock", type=float, metavar="MHZ", help="live, as NVML reports it")
    card.add_argument("--bus-width", type=int, metavar="BITS", help="with --memory-clock")
    card.add_argument("--live-bandwidth", type=float, metavar="GB/S", help="instead of the two")
    card.add_argument(
        "--reachable", type=float, default=1.0, metavar="SHARE",
        help="of the bandwidth, for the realistic figure; 0.91 is what reads reach (1.0)",
    )  # fmt: skip
    card.add_argument("--all-reduce-us", type=float, metavar="US", help="one small all-reduce")
    card.add_argument("--link", help="pcie3 pcie4 pcie5 nvlink3 nvlink4 nvlink5 xgmi")
    card.add_argument("--fixed-ms", type=float, default=0.0, metavar="MS", help="host gaps a step")
    parser.add_argument("--modules", action="store_true", help="parameters and bytes by module")
    parser.add_argument("--list-models", action="store_true", help="models known by name")
    parser.add_argument("--list-cards", action="store_true", help="cards, with a source a figure")
    parser.add_argument("--json", action="store_true", help="print the document instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    from backends.errors import UsageError

    if arguments.list_models:
        return _list_models(as_json=arguments.json)
    if arguments.list_cards:
        return _list_cards(as_json=arguments.json)
    if not arguments.model or not arguments.gpus:
        raise UsageError(
            "A model and cards are needed",
            hint='gpuroom roofline MODEL --gpus 8x"RTX PRO 6000"; --list-models, --list-cards',
        )
    name, result = compute(arguments)
    from backends.bench.roofline_report import document

    if arguments.json:
        print(json.dumps(document(name, result), indent=2))
    else:
        print("\n".join(lines(name, result, modules=arguments.modules)))
    return 0


def compute(arguments: argparse.Namespace) -> tuple[str, Roofline]:
    """From arguments to the model's name and its roofline."""
    from backends.bench.cards import bandwidth_of_clock, card_table, parse_gpus
    from backends.bench.kv_cache import KvType, kv_type_of
    from backends.bench.models import chosen_quantization, load_model
    from backends.bench.roofline import roofline
    from backends.bench.step_time import Conditions, Layout
    from backends.errors import UsageError

    count, card_name = parse_gpus(arguments.gpus)
    table = card_table()
    card = table.find(card_name)
    link = table.links.get(arguments.link) if arguments.link else None
    if arguments.link and link is None:
        raise UsageError(f"No link {arguments.link!r}", hint=f"Known: {', '.join(table.links)}.")
    if arguments.keep and not arguments.weights:
        raise UsageError("--keep says what --weights leaves alone; give both")
    if (arguments.memory_clock is None) != (arguments.bus_width is None):
        raise UsageError("--memory-clock and --bus-width belong together")
    override = (
        chosen_quantization(arguments.weights, tuple(arguments.keep)) if arguments.weights else None
    )
    for option in ("reachable", "memory_clock", "bus_width", "live_bandwidth", "measured"):
        value = getattr(arguments, option)
        if value is not None and not value > 0:
            raise UsageError(f"--{option.replace('_', '-')} must be above 0")
    for option in ("all_reduce_us", "fixed_ms", "accepted"):
        value = getattr(arguments, option)
        if value is not None and not 0 <= value < 1e9:
            raise UsageError(f"--{option.replace('_', '-')} must be 0 or more")
    name, weights = load_model(arguments.model, override)
    live, source = arguments.live_bandwidth, "given"
    if arguments.memory_clock is not None:
        live = bandwidth_of_clock(arguments.memory_clock, arguments.bus_width)
        source = f"{arguments.memory_clock:g} MHz x 2 x {arguments.bus_width} bit / 8, as given"
    tp = arguments.tp or max(1, count // max(1, arguments.dp * arguments.pp))
    layout = Layout(tp, arguments.dp, arguments.pp, arguments.ep)
    layout.check(count)
    conditions = Conditions(
        card=card,
        layout=layout,
        context=arguments.context,
        batch=arguments.batch,
        prompt=arguments.prompt,
        kv_type=KvType(arguments.kv_type) if arguments.kv_type else kv_type_of(weights.kv_cache),
        sparse=not arguments.dense_attention,
        live_bandwidth_gbps=live,
        live_source=source,
        reachable=arguments.reachable,
        all_reduce_us=arguments.all_reduce_us,
        link=link,
        fixed_ms=arguments.fixed_ms,
        accepted=arguments.accepted,
        measured_tokens_per_s=arguments.measured,
    )
    return name, roofline(weights, conditions)


def lines(name: str, result: Roofline, *, modules: bool) -> Iterator[str]:
    """The report as text."""
    conditions, weights, fit = result.conditions, result.weights, result.fit
    layout = conditions.layout
    yield f"{name} on {layout.cards} x {conditions.card.name}"
    yield (
        f"{weights.total_parameters / 1e9:.1f} B parameters, "
        f"{weights.active_parameters / 1e9:.2f} B active; "
        f"tp {layout.tp}, dp {layout.dp}, pp {layout.pp}, ep {layout.ep}"
    )
    yield (
        f"weights {fit.weights_gb_per_card:.1f} of {fit.memory_gb_per_card:g} GB a card"
        + (f"; room for {fit.kv_room_tokens:,} tokens of KV cache" if fit.fits else "")
        + f" ({fit.kv_bytes_per_token:,.0f} B a token and card)"
    )
    if fit.misfit:
        yield ""
        yield from textwrap.wrap(f"DOES NOT FIT: {fit.misfit}", WIDTH)
    yield ""
    if modules:
        yield from _modules(result)
    yield from _decode(result)
    yield from _prefill(result)
    yield from _by_context(result)
    if result.compute_from_batch is not None:
        yield f"compute takes over from {result.compute_from_batch} sequences at once (on paper)"
    else:
        yield f"compute takes over: {result.compute_absent}"
    if result.notes:
        yield ""
        yield "notes"
        yield from _bullets(result.notes)
    yield ""
    yield "assumptions"
    for figure in result.decode:
        if figure.assumptions:
            yield f" {figure.kind.value}"
            yield from _bullets(figure.assumptions)
    for prefill in result.prefill:
        if prefill.assumptions:
            yield f" prefill, {prefill.kind.value}"
            yield from _bullets(prefill.assumptions)


def _bullets(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(
            text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )


def _modules(result: Roofline) -> Iterator[str]:
    yield f"{'module':<24}{'parameters B':>14}{'active B':>10}{'stored GB':>11}{'GB/step':>9}"
    tokens = result.conditions.tokens_per_replica
    for module in result.weights.modules:
        read = result.weights.read_bytes(module, tokens)
        yield (
            f"{module.module.value:<24}{module.parameters / 1e9:>14.3f}"
            f"{module.active_parameters / 1e9:>10.3f}{module.stored_bytes / 1e9:>11.3f}"
            f"{read / 1e9:>9.3f}  {'/'.join(module.schemes)}"
        )
    yield ""


def _decode(result: Roofline) -> Iterator[str]:
    batch = result.conditions.batch
    yield (
        f"decode: {batch} sequence{'s' if batch != 1 else ''}, "
        f"{result.conditions.context:,} tokens of context"
    )
    yield (
        f"{'':<11}{'GB/step':>8}{'ms/step':>9} ={'weights':>8} +{'kv cache':>9} +"
        f"{'all-reduce':>11}{'tok/s a stream':>16}{'tok/s all':>11}{'measured':>10}"
    )
    for figure in result.decode:
        label = f"{figure.kind.value:<11}"
        if figure.stream_tokens_per_s is None:
            yield f"{label} absent: {figure.absent}"
            continue
        share = result.efficiency(figure.kind)
        terms = figure.terms
        if terms is None or figure.read_gb is None:
            cells = f"{'-':>8}{figure.step_ms or 0:>9.3f}{'':>34}"
        else:
            cells = (
                f"{figure.read_gb:>8.2f}{terms.total_ms:>9.3f}  {terms.weights_ms:>8.3f}  "
                f"{terms.kv_cache_ms:>9.3f}  {terms.all_reduce_ms:>11.3f}"
            )
        yield (
            f"{label}{cells}{figure.stream_tokens_per_s:>16.1f}"
            f"{figure.output_tokens_per_s or 0:>11.1f}" + (f"{share:>10.1%}" if share else "")
        )
        if terms and (terms.compute_ms or 0) > terms.memory_ms:
            yield f"{'':<11} compute-bound: {terms.compute_ms:.3f} ms of arithmetic a step"
    yield ""


def _prefill(result: Roofline) -> Iterator[str]:
    prompt = result.conditions.prompt
    yield f"prefill: one prompt of {prompt:,} tokens, time to first token at least"
    for figure in result.prefill:
        if figure.total_ms is None:
            yield f"{figure.kind.value:<11} absent: {figure.absent}"
            continue
        yield (
            f"{figure.kind.value:<11}{figure.total_ms:>9.2f} ms = the longer of "
            f"{figure.compute_ms:.2f} ms compute and {figure.memory_ms:.2f} ms weights"
            + (f", + {figure.all_reduce_ms:.2f} ms all-reduce" if figure.all_reduce_ms else "")
            + f"; {figure.prompt_tokens_per_s:,.0f} prompt tok/s"
        )
    yield ""


def _by_context(result: Roofline) -> Iterator[str]:
    from backends.bench.roofline_report import by_context

    rows = by_context(result)
    yield "tok/s a stream by context  " + "".join(f"{row['context_tokens']:>10,}" for row in rows)
    for label, values in (
        ("paper", [row["paper"] for row in rows]),
        ("live clock", [row["live_clock"] for row in rows]),
        ("realistic", [row["realistic"] for row in rows]),
    ):
        cells = "".join(
            f"{value:>10.1f}" if value is not None else f"{'-':>10}" for value in values
        )
        yield f"  {label:<25}{cells}"
    yield ""


def _list_models(*, as_json: bool) -> int:
    from backends.bench.models import shipped_models

    models = shipped_models()
    if as_json:
        rows = [
            {"name": m.name, "aliases": m.aliases, "total_b": m.published_total_b,
             "active_b": m.published_active_b, "source": m.source}
            for m in models
        ]  # fmt: skip
        print(json.dumps(rows, indent=2))
        return 0
    for model in models:
        active = f"{model.published_active_b:g} B active" if model.published_active_b else ""
        print(f"{model.name:<24}{model.published_total_b:>9.2f} B  {active:<15} {model.source}")
    return 0


def _list_cards(*, as_json: bool) -> int:
    import msgspec

    from backends.bench.cards import card_table

    table = card_table()
    if as_json:
        print(json.dumps(msgspec.to_builtins(table), indent=2))
        return 0
    for card in table.cards:
        print(f"{card.name}  ({card.architecture}, {table.links[card.link].name})")
        for label, figure, unit in (
            ("memory", card.memory_gb, "GB"),
            ("bandwidth", card.bandwidth_gbps, "GB/s"),
            ("live bandwidth", card.live_bandwidth_gbps, "GB/s"),
            ("bf16", card.bf16, "Tflop/s"),
            ("fp8", card.fp8, "Tflop/s"),
            ("fp4", card.fp4, "Tflop/s"),
            ("power", card.power_w, "W"),
        ):
            if figure is None:
                print(f"  {label:<15} not known")
                continue
            unsure = "" if figure.sure else ", unsure"
            print(
                f"  {label:<15}{figure.value:>8g} {unit:<8} {table.sources[figure.source]}{unsure}"
            )
    return 0
