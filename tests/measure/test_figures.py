"""Figures against link and card; baselines; two measurements side by side."""

from __future__ import annotations

import pytest

from backends.tuning.engine import evaluate
from backends.tuning.facts import Fact, FactsDocument, Value
from backends.tuning.measurements import figures, joining
from backends.tuning.measurements.history import compare, compared_table
from backends.tuning.measurements.parts import PARTS, TRIED_WITH
from backends.tuning.measurements.run import parse
from backends.tuning.rules import all_rules
from tests.conftest import ROOT

A, B = "0000:01:00.0", "0000:02:00.0"


def document(values: dict[str, Value], source: str = "measured") -> FactsDocument:
    return FactsDocument([Fact(key, value, source) for key, value in values.items()])


def test_figures_are_set_against_link_and_card() -> None:
    found = figures.rows(
        document(
            {
                f"bench/name/{A}": "NVIDIA H200",
                f"bench/h2d/{A}/gb_s": 55.0,
                f"bench/h2d/{A}/far_gb_s": 40.0,
                f"bench/matmul/{A}/tflop_s": 690.0,
                f"bench/launch/{A}/submit_us": 7.0,
                f"gpu/{A}/link_width_max": 16,
                f"gpu/{A}/link_gen_max": 5,
            }
        )
    )
    shares = {row.what: row.share_pct for row in found}
    assert shares["host to GPU 0"] == pytest.approx(87, abs=1)
    assert shares["bf16 product on GPU 0"] == pytest.approx(70, abs=1)
    assert shares["launch, GPU 0"] is None
    text = figures.table(found)
    assert "H200, dense bf16" in text
    assert "53 is usual" in text
    assert "host to GPU 0, another node" in text


@pytest.mark.parametrize(("topology", "due"), [("NV18", 450.0), ("SYS", 63.0)])
def test_a_pair_is_held_against_the_link_that_it_has(topology: str, due: float) -> None:
    (row,) = figures.rows(
        document(
            {
                f"gpu/{A}/name": "NVIDIA H200",
                f"gpu/{A}/index": 0,
                f"gpu/{B}/index": 1,
                "topo/link/0/1": topology,
                f"bench/p2p/{A}/{B}/gb_s": 50.0,
                f"bench/p2p/{A}/{B}/link_gb_s": 63.0,
            }
        )
    )
    assert row.due == due


def test_a_baseline_is_the_median_of_the_same_tool() -> None:
    key = "bench/allreduce/8KiB_us/value"
    earlier = [document({key: value}, "all_reduce_perf") for value in (9.0, 10.0, 30.0)]
    earlier.append(document({key: 100.0}, "measured"))
    now = joining.with_baselines(document({key: 12.0}, "all_reduce_perf"), earlier)
    values = {fact.key: fact.value for fact in now.facts}
    assert values["bench/allreduce/8KiB_us/baseline"] == 10.0
    alone = joining.with_baselines(document({key: 12.0}, "all_reduce_perf"), [])
    assert [fact.key for fact in alone.facts] == [key]


def test_what_was_read_under_load_counts_over_what_was_at_rest() -> None:
    rest = document({f"gpu/{A}/link_gen": 1, f"gpu/{A}/used_mib": 4})
    loaded = document({f"bench/load/{A}/link_gen": 5, f"bench/load/{A}/link_changes": 3,
                       f"bench/load/{A}/seconds": 12.0})  # fmt: skip
    values = {fact.key: fact.value for fact in joining.joined(rest, loaded).facts}
    assert values[f"gpu/{A}/link_gen"] == 5
    assert values[f"gpu/{A}/used_mib"] == 4
    assert values[f"gpu/{A}/under_load"] is True
    assert values[f"pcie_flaps/{A}/changes"] == 3
    assert values[f"pcie_flaps/{A}/seconds"] == 12.0


def test_two_measurements_figure_by_figure() -> None:
    first = document({f"bench/launch/{A}/submit_us": 4.0, f"bench/h2d/{A}/gb_s": 50.0})
    second = document({f"bench/launch/{A}/submit_us": 5.0, "bench/read/gb_s": 2.0})
    found = {one.what: one for one in compare(first, second)}
    assert found["launch, GPU 0"].change_pct == pytest.approx(25)
    assert found["host to GPU 0"].b is None
    assert found["read the model's path"].change_pct is None
    assert "+25.0 %" in compared_table(list(found.values()))


def test_what_the_measuring_program_says_is_not_believed_blindly() -> None:
    assert parse({"key": 5}) is None
    assert parse(["x"]) is None
    message = parse({"key": "bench/read/gb_s", "value": 1.5})
    assert message is not None
    assert message.value == 1.5


def test_pairs_are_a_matrix_and_all_reduces_go_by_size() -> None:
    values: dict[str, Value] = {
        f"bench/p2p/{A}/{B}/gb_s": 54.0,
        f"bench/p2p/{B}/{A}/gb_s": 31.0,
        f"bench/p2p/{A}/{B}/link_gb_s": 63.0,
        f"bench/p2p/{B}/{A}/link_gb_s": 63.0,
        "bench/allreduce/128KiB_us/value": 20.0,
        "bench/allreduce/8KiB_us/value": 10.0,
        "bench/allreduce/128MiB_busbw_gb_s/value": 40.0,
    }
    lines = figures.table(figures.rows(document(values))).splitlines()
    assert [line.split()[2] for line in lines[:3]] == ["8KiB", "128KiB", "128MiB,"]
    assert "of 63 (63 %), PCIe link" in lines[2]
    assert lines[-2].split() == ["0", "-", "54.0"]
    assert lines[-1].split() == ["1", "31.0", "-"]
    assert all(len(line) <= 80 for line in lines)


PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]


def pairs(slow: tuple[int, int] | None, rate: float = 30.0) -> dict[str, Value]:
    values: dict[str, Value] = {"nvml/count": 4}
    for a, b in PAIRS:
        base = f"bench/p2p/0000:0{a}:00.0/0000:0{b}:00.0"
        values |= {
            f"gpu/0000:0{a}:00.0/index": a,
            f"{base}/gb_s": rate if (a, b) == slow else 54.0,
            f"{base}/latency_us": 2.0,
            f"{base}/link_gb_s": 63.0,
            f"{base}/cross_node": (a < 2) != (b < 2),
        }
    return values


def test_a_pair_far_below_its_peers_is_named() -> None:
    sound = {f.check: f for f in evaluate(document(pairs(None)))}
    assert sound["bench.p2p"].verdict.value in ("PASS", "INFO")
    found = {f.check: f for f in evaluate(document(pairs((2, 0))))}
    odd = found["bench.p2p[0000:02:00.0-0000:00:00.0]"]
    assert odd.verdict.value == "WARN"
    assert "44 % below the 8 pairs of its kind" in odd.evidence
    assert "bench/p2p/0000:02:00.0/0000:00:00.0/gb_s" in odd.rests_on
    others = [f for f in found.values() if f.rule == "bench.p2p" and f.instance and f is not odd]
    assert all(f.verdict.value != "WARN" for f in others)


def test_every_part_is_described_and_answers_checks_that_exist() -> None:
    text = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    ids = {rule.id for rule in all_rules()}
    for part in PARTS:
        assert f"| `{part.name}` |" in text
        assert set(part.answers) <= ids
    for name in TRIED_WITH:
        assert name.endswith(".") or name in ids
