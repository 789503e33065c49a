"""Measurements, and what could not be read: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import DEVICES, GA, GEN5, LINK16, ONE_GPU, A, Case

CASES: Mapping[str, Case] = {
    "parse.devices": Case(
        {"/proc/devices": DEVICES},
        {"/proc/devices": DEVICES},
        {},
        good_verdict="INFO",
        bad_verdict="INFO",
        none_verdict="UNKNOWN",
    ),
    # Measurements
    "bench.h2d": Case(
        {f"bench/h2d/{A}/gb_s": 53.0, f"bench/d2h/{A}/gb_s": 53.0, **LINK16, **GEN5},
        {f"bench/h2d/{A}/gb_s": 13.0, f"bench/d2h/{A}/gb_s": 53.0, **LINK16, **GEN5},
        {f"{GA}/index": 0, f"bench/h2d/{A}/busy": True},
    ),
    "bench.p2p": Case(
        {
            "bench/p2p/0/1/gb_s": 54.0,
            "bench/p2p/0/1/latency_us": 0.4,
            "bench/p2p/0/1/link_gb_s": 63.0,
            "bench/p2p/0/1/cross_node": False,
        },
        {
            "bench/p2p/0/1/gb_s": 11.0,
            "bench/p2p/0/1/latency_us": 14.0,
            "bench/p2p/0/1/link_gb_s": 63.0,
            "bench/p2p/0/1/cross_node": False,
        },
        ONE_GPU,
    ),
    "bench.membw": Case(
        {f"{GA}/index": 0, f"bench/membw/{A}/gb_s": 1460.0, f"bench/membw/{A}/theory_gb_s": 1597.0},
        {f"{GA}/index": 0, f"bench/membw/{A}/gb_s": 900.0, f"bench/membw/{A}/theory_gb_s": 1597.0},
        {f"{GA}/index": 0, f"bench/membw/{A}/busy": True},
    ),
    "bench.allreduce": Case(
        {"bench/allreduce/8k_us/value": 9.4, "bench/allreduce/8k_us/baseline": 9.2},
        {"bench/allreduce/8k_us/value": 24.0, "bench/allreduce/8k_us/baseline": 9.2},
        ONE_GPU,
    ),
    "bench.tools": Case(
        {"bench/tool/torch": "/opt/venv/bin/python"},
        {"bench/failed/allreduce": "NCCL error"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "bench.roofline": Case(
        {"engine/tokens_per_s_batch1": 120.0, "roofline/tokens_per_s": 152.0},
        {"engine/tokens_per_s_batch1": 10.36, "roofline/tokens_per_s": 152.0},
        {"engine/none": True},
        bad_verdict="WARN",
    ),
    "bench.wakeup": Case(
        {"bench/wakeup_p50_us": 8.0},
        {"bench/wakeup_p50_us": 180.0},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
}
