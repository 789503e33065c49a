"""Proof by measurement: what the micro-measurements gave, against what link and card should."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.tuning.findings import Judgement
from backends.tuning.fixes import manual
from backends.tuning.interconnect import LANE_GB_S, PairLink, pair_link
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
from backends.tuning.rules.devices import link_of

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
        far = view.peek_number(f"bench/h2d/{gpu.id}/far_gb_s")
        if far is not None:
            told += f", {far:.1f} GB/s from another node"
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
            yield warned(
                f"{spread:.0f} % between GPUs, {low} is the slowest",
                "spread",
                fix=manual(f"see pcie.* of GPU {low}"),
            )


@dataclass(frozen=True, slots=True)
class _Pair:
    """One pair as it was measured."""

    a: str
    b: str
    rate: float
    latency: float
    link: PairLink
    cross: bool

    @property
    def label(self) -> str:
        return f"{self.a}-{self.b}"

    @property
    def kind(self) -> tuple[float | None, bool]:
        """Pairs of one kind should be equally fast."""
        return self.link.gb_s, self.cross and not self.link.nvlink


@rule("bench.p2p", min_gpus=2)
def p2p(scene: Scene) -> Judgements:
    view = scene.view
    pairs: list[_Pair] = []
    for reading in view.each("bench/p2p/*/*/gb_s"):
        a, b = reading.names
        rate = view.number(reading.fact.key, 0, 10_000)
        latency = view.number(f"bench/p2p/{a}/{b}/latency_us", 0, 1e6)
        cross = view.flag(f"bench/p2p/{a}/{b}/cross_node")
        link = pair_link(view, a, b)
        if (
            latency is not None
            and latency > scene.profile["bench_p2p_latency_us"]
            and (link.gb_s is None or cross is None)
        ):
            yield _through_host(f"{latency:.1f} us", f"{a}-{b}")
        elif rate is None or latency is None or link.gb_s is None or cross is None:
            yield unknown("not measured in full", f"{a}-{b}")
        else:
            pairs.append(_Pair(a, b, rate, latency, link, cross))
    peers: dict[tuple[float | None, bool], list[float]] = {}
    for pair in pairs:
        peers.setdefault(pair.kind, []).append(pair.rate)
    for pair in pairs:
        # What a pair rests on is asked again, so that its own finding names it.
        base = f"bench/p2p/{pair.a}/{pair.b}"
        view.drain()
        view.number(f"{base}/gb_s")
        view.number(f"{base}/latency_us")
        view.number(f"{base}/link_gb_s")
        view.flag(f"{base}/cross_node")
        yield _pair(scene, pair, peers[pair.kind])


def _through_host(told: str, label: str) -> Judgement:
    return failed(
        f"{told}: copies go through the host",
        label,
        fix=manual("see gpu.p2p, pcie.acs and kernel.iommu"),
    )


def _pair(scene: Scene, pair: _Pair, peers: Sequence[float]) -> Judgement:
    profile = scene.profile
    link = pair.link.gb_s or 1.0
    told = f"{pair.rate:.1f} of {link:.0f} GB/s, {pair.latency:.1f} us"
    plain = scene.view.peek_number(f"bench/p2p/{pair.a}/{pair.b}/plain_gb_s")
    if plain is not None:
        told += f" ({plain:.1f} GB/s without peer access)"
    if (
        pair.latency > profile["bench_p2p_latency_us"]
        or pair.rate < profile["bench_p2p_floor_gb_s"]
    ):
        return _through_host(told, pair.label)
    middle = statistics.median(peers)
    below = 100 * (middle - pair.rate) / middle
    if len(peers) > 2 and below > profile["bench_p2p_odd_pct"]:
        return warned(
            f"{told}: {below:.0f} % below the {len(peers)} pairs of its kind ({middle:.1f} GB/s)",
            pair.label,
            fix=manual("see pcie.link_gen and pcie.link_width of both, and the switch between"),
        )
    if pair.cross and not pair.link.nvlink:
        return info(f"{told}, across sockets", pair.label)
    if 100 * pair.rate / link >= profile["bench_p2p_good_pct"]:
        return passed(told, pair.label)
    return warned(told, pair.label, fix=manual("see pcie.link_gen and pcie.link_width of both"))


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
    fix = manual("see pcie.link_gen, gpu.p2p and gpu.nvlink; compare what NCCL's log says it chose")
    for reading in view.each("bench/allreduce/*/value"):
        name = reading.name
        value = view.number(reading.fact.key, 0.001, 1e9)
        base = view.number(f"bench/allreduce/{name}/baseline", 0.001, 1e9)
        latency = name.endswith("_us")
        if value is None:
            yield unknown("not measured", name)
        elif view.peek_integer(f"bench/allreduce/{name}/wrong"):
            yield failed(
                f"{view.peek_integer(f'bench/allreduce/{name}/wrong')} wrong values",
                name,
                fix=manual("stop all parallel work; see gpu.p2p_copy, kernel.iommu and pcie.acs"),
            )
        elif base is None:
            yield info(f"{value:g}, the first of its kind", name)
        elif _few_runs(scene, f"bench/allreduce/{name}/runs"):
            yield unknown(f"{value:g}, from fewer than {MIN_RUNS} runs", name)
        else:
            worse = 100 * ((value - base) / base if latency else (base - value) / base)
            told = f"{value:g}, baseline {base:g} ({worse:+.0f} % worse)"
            if worse > scene.profile["bench_allreduce_fail_pct"]:
                yield failed(told, name, fix=fix)
            elif worse > scene.profile["bench_allreduce_warn_pct"]:
                yield warned(told, name, fix=fix)
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


TOOLS: Final = {
    "nvbandwidth": "https://github.com/NVIDIA/nvbandwidth, built with cmake",
    "all_reduce_perf": "https://github.com/NVIDIA/nccl-tests, built with make",
    "torch": "the python of the server's environment, named with --python",
}


@rule("bench.tools")
def tools(scene: Scene) -> Judgements:
    view = scene.view
    known = [name for name in TOOLS if view.has(f"bench/tool/{name}")]
    for name in known:
        path = view.text(f"bench/tool/{name}")
        if path is not None and path.startswith("/"):
            yield passed(path, name)
        elif path is not None:
            yield unknown("where it lies was not read", name)
        else:
            yield info("not found on this host", name, fix=manual(TOOLS[name]))
    for reading in view.each("bench/failed/*"):
        yield warned(
            f"could not be measured: {reading.text or 'no reason given'}",
            reading.name,
            fix=manual("put right what the tool says, or leave this measurement out"),
        )


RULES = collect(globals())
