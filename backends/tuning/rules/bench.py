"""Proof by measurement: what the micro-measurements gave, against what link and card should."""

from __future__ import annotations

import statistics
from typing import Final

from backends.tuning.findings import Judgement
from backends.tuning.fixes import manual
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.devices import LANE_GB_S, link_of

MIN_RUNS: Final = 3


def _few_runs(scene: Scene, key: str) -> bool:
    runs = scene.view.peek_integer(key)
    return runs is not None and runs < MIN_RUNS


@rule("bench.h2d")
def h2d(scene: Scene) -> Judgements:
    view = scene.view
    rates: dict[str, float] = {}
    verdicts: list[Judgement] = []
    for gpu in scene.gpus:
        down = view.number(f"bench/h2d/{gpu.id}/gb_s", 0, 10_000)
        up = view.number(f"bench/d2h/{gpu.id}/gb_s", 0, 10_000)
        if view.flag(f"bench/h2d/{gpu.id}/busy"):
            verdicts.append(not_applicable("the GPU was busy", gpu.label))
            continue
        if down is None and up is None:
            continue
        link = link_of(scene, gpu.id)
        if down is None or up is None or not link.max_width or not link.max_generation:
            verdicts.append(unknown("not measured in full", gpu.label))
            continue
        theory = link.max_width * LANE_GB_S[min(link.max_generation, 6)]
        slower = min(down, up)
        rates[gpu.label] = slower
        share = 100 * slower / theory
        told = f"{slower:.1f} of {theory:.0f} GB/s ({share:.0f} %)"
        if share > 110:
            verdicts.append(unknown(f"{told}: more than the link can carry", gpu.label))
        elif share >= scene.profile["bench_link_good_pct"]:
            verdicts.append(passed(told, gpu.label))
        elif share >= scene.profile["bench_link_warn_pct"]:
            verdicts.append(warned(told, gpu.label, fix=manual("see pcie.* of this GPU")))
        else:
            verdicts.append(failed(told, gpu.label, fix=manual("see pcie.* of this GPU")))
    yield from verdicts
    if len(rates) > 1:
        spread = 100 * (max(rates.values()) - min(rates.values())) / max(rates.values())
        if spread > scene.profile["bench_spread_pct"]:
            low = min(rates, key=lambda label: rates[label])
            yield warned(f"{spread:.0f} % between GPUs, {low} is the slowest", "spread")


@rule("bench.p2p", min_gpus=2)
def p2p(scene: Scene) -> Judgements:
    view = scene.view
    profile = scene.profile
    for reading in view.each("bench/p2p/*/*/gb_s"):
        a, b = reading.names
        pair = f"{a}-{b}"
        rate = view.number(reading.fact.key, 0, 10_000)
        latency = view.number(f"bench/p2p/{a}/{b}/latency_us", 0, 1e6)
        link = view.number(f"bench/p2p/{a}/{b}/link_gb_s", 0.1, 10_000)
        cross = view.flag(f"bench/p2p/{a}/{b}/cross_node")
        if rate is None or latency is None or link is None or cross is None:
            yield unknown("not measured in full", pair)
            continue
        told = f"{rate:.1f} of {link:.0f} GB/s, {latency:.1f} us"
        if latency > profile["bench_p2p_latency_us"] or rate < profile["bench_p2p_floor_gb_s"]:
            yield failed(
                f"{told}: copies go through the host",
                pair,
                fix=manual("see gpu.p2p, pcie.acs and kernel.iommu"),
            )
        elif cross:
            yield info(f"{told}, across sockets", pair)
        elif 100 * rate / link >= profile["bench_p2p_good_pct"]:
            yield passed(told, pair)
        else:
            yield warned(told, pair)


@rule("bench.membw")
def membw(scene: Scene) -> Judgements:
    view = scene.view
    rates: dict[str, float] = {}
    for gpu in scene.gpus:
        rate = view.number(f"bench/membw/{gpu.id}/gb_s", 0, 100_000)
        theory = view.number(f"bench/membw/{gpu.id}/theory_gb_s", 1, 100_000)
        if view.flag(f"bench/membw/{gpu.id}/busy"):
            yield not_applicable("the GPU was busy", gpu.label)
            continue
        if rate is None and theory is None:
            continue
        if rate is None or theory is None:
            yield unknown("not measured in full", gpu.label)
            continue
        rates[gpu.label] = rate
        share = 100 * rate / theory
        told = f"{rate:.0f} of {theory:.0f} GB/s ({share:.0f} %)"
        if share > 105:
            yield unknown(f"{told}: more than the memory can give", gpu.label)
        elif share >= scene.profile["bench_membw_good_pct"]:
            yield passed(told, gpu.label)
        elif share >= scene.profile["bench_membw_warn_pct"]:
            yield warned(told, gpu.label, fix=manual("see gpu.clocks and gpu.ecc_mode"))
        else:
            yield failed(told, gpu.label, fix=manual("see gpu.clocks and gpu.throttle"))
    if len(rates) > 2:
        middle = statistics.median(rates.values())
        for label, rate in rates.items():
            if 100 * (middle - rate) / middle > scene.profile["bench_membw_odd_pct"]:
                yield warned(
                    f"GPU {label} is {100 * (middle - rate) / middle:.0f} % below the others",
                    "spread",
                )


@rule("bench.allreduce", min_gpus=2)
def allreduce(scene: Scene) -> Judgements:
    view = scene.view
    for reading in view.each("bench/allreduce/*/value"):
        name = reading.name
        value = view.number(reading.fact.key, 0.001, 1e9)
        base = view.number(f"bench/allreduce/{name}/baseline", 0.001, 1e9)
        latency = name.endswith("_us")
        if value is None:
            yield unknown("not measured", name)
        elif base is None:
            yield info(f"{value:g}, the first of its kind", name)
        elif _few_runs(scene, f"bench/allreduce/{name}/runs"):
            yield unknown(f"{value:g}, from fewer than {MIN_RUNS} runs", name)
        else:
            worse = 100 * ((value - base) / base if latency else (base - value) / base)
            told = f"{value:g}, baseline {base:g} ({worse:+.0f} % worse)"
            if worse > scene.profile["bench_allreduce_fail_pct"]:
                yield failed(told, name)
            elif worse > scene.profile["bench_allreduce_warn_pct"]:
                yield warned(told, name)
            else:
                yield passed(told, name)


@rule("bench.roofline")
def roofline(scene: Scene) -> Judgements:
    view = scene.view
    if view.flag("engine/none"):
        yield not_applicable("no model is running")
        return
    speed = view.number("engine/tokens_per_s_batch1", 0, 1e6)
    most = view.number("roofline/tokens_per_s", 0.001, 1e6)
    basis = view.peek("roofline/assumptions") or "assumptions not given"
    if speed is None and most is None:
        return
    if speed is None or most is None:
        yield unknown("speed or theoretical maximum not known")
        return
    share = 100 * speed / most
    told = f"{speed:.1f} of {most:.0f} tok/s ({share:.0f} %); {basis}"
    if share > 100:
        yield unknown(f"{told}: above the maximum, so its assumptions are wrong")
    elif share > scene.profile["bench_roofline_good_pct"]:
        yield passed(told)
    elif share >= scene.profile["bench_roofline_warn_pct"]:
        yield info(told)
    else:
        yield warned(
            told, fix=manual("open the breakdown: launches, all-reduce, replicated weights, clocks")
        )


@rule("bench.wakeup")
def wakeup(scene: Scene) -> Judgements:
    view = scene.view
    median = view.number("bench/wakeup_p50_us", 0, 1e6)
    tail = view.number("bench/wakeup_p99_us", 0, 1e6)
    if median is None:
        return
    told = f"p50 {median:.1f} us" + (f", p99 {tail:.1f} us" if tail is not None else "")
    if median > scene.profile["cpu_wakeup_warn_us"]:
        yield warned(told, fix=manual("see cpu.cstates"))
    elif median >= scene.profile["cpu_wakeup_good_us"]:
        yield info(told)
    else:
        yield passed(told)


RULES = collect(globals())
