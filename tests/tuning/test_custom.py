"""The operator's file: wrong in every way it can be, with line and remedy; read on a live host."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.errors import ConfigError
from backends.tuning.custom import custom_probes, parse
from backends.tuning.engine import Options, evaluate
from backends.tuning.probes import ProbeKind
from tests.tuning.cases import CASES, document

CHECK = """[[checks]]
id = "site.hugepages"
title = "Huge pages as agreed"
reads = "/proc/sys/vm/nr_hugepages"
why = "The storage target needs them."
equals = "8192"
"""
WAIVER = '[[waivers]]\ncheck = "numa.zone_reclaim"\nreason = "agreed"\nuntil = 2030-01-31\n'

WRONG = [
    # text, line, words of the title, words of the remedy
    ("[[checks\nid = 1\n", 1, "Expected", "not TOML"),
    (CHECK.replace("reads =", "read ="), 4, "unknown field `read`", "did you mean `reads`?"),
    (CHECK.replace('why = "The storage target needs them."\n', ""), 1, "`why`", "add why"),
    (CHECK + 'minimum = "ten"\n', 7, "Expected `float", ""),
    (CHECK + "\n" + CHECK, 9, "there twice", "rename"),
    (CHECK.replace('"8192"', "8192"), 6, "Expected `str", ""),
    (CHECK.replace("site.hugepages", "cpu.governor"), 2, "own", "waive"),
    (CHECK.replace("site.hugepages", "Site"), 2, "group.name", "site.my_check"),
    (CHECK.replace("/proc/sys/vm/nr_hugepages", "/a/../etc/shadow"), 2, "neither a path", "key"),
    (CHECK.replace("/proc/sys/vm/nr_hugepages", "cat /etc/shadow"), 2, "neither a path", "key"),
    (CHECK.replace('equals = "8192"', 'matches = "(a+)+$"'), 2, "repetition", "no (a+)+"),
    (CHECK.replace('equals = "8192"', 'matches = "("'), 2, "pattern", "expression"),
    (CHECK.replace('equals = "8192"\n', ""), 2, "must be", "equals"),
    (CHECK + 'fix = { write = "1\\n2" }\n', 2, "several lines", "one value"),
    (WAIVER.replace("numa.zone_reclaim", "numa.zone_reclam"), 2, "no check", "numa.zone_reclaim"),
    (WAIVER.replace("2030-01-31", '"2030-13-40"'), 4, "date", ""),
    (WAIVER.replace("until = 2030-01-31\n", ""), 1, "`until`", "add until"),
    ("\n[waive]\n", 2, "unknown field `waive`", "`waivers`"),
    ('[expected]\n"gpu.cuont" = 8\n', 2, "no check 'gpu.cuont'", "gpu.count"),
    ('use = "everything"\n', 1, "everything", ""),
]


@pytest.mark.parametrize(("text", "line", "title", "hint"), WRONG)
def test_what_is_wrong_where_and_what_to_do(text: str, line: int, title: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, Path("/etc/mine.toml"))
    assert title in caught.value.title
    assert caught.value.detail == f"/etc/mine.toml:{line}"
    assert hint in caught.value.hint


def test_a_file_too_long_is_not_read() -> None:
    with pytest.raises(ConfigError, match="too long"):
        parse("#" * (1 << 21))


def test_a_number_needs_no_quotes_in_expected() -> None:
    assert parse('[expected]\n"gpu.count" = 8\n').expected == {"gpu.count": "8"}


def test_a_waiver_that_has_ended_is_spoken_of() -> None:
    custom = parse(WAIVER)
    facts = document(CASES["numa.zone_reclaim"].bad)
    options = Options(only_touched=True, waivers=custom.waivers, today="2031-01-01")
    found = {f.check: f for f in evaluate(facts, options)}["numa.zone_reclaim"]
    assert not found.waived
    assert "its waiver ended 2030-01-31: agreed" in found.hint


def test_a_check_of_a_file_has_the_file_read() -> None:
    (probe,) = custom_probes(parse(CHECK).checks)
    assert (probe.kind, probe.target) == (ProbeKind.FILE, "/proc/sys/vm/nr_hugepages")
    known = CHECK.replace("/proc/sys/vm/nr_hugepages", "/proc/sys/vm/swappiness")
    assert custom_probes(parse(known).checks) == ()
    named = CHECK.replace("/proc/sys/vm/nr_hugepages", "gpu/0000:06:00.0/power_limit_w")
    assert custom_probes(parse(named).checks) == ()


def test_what_a_check_of_ones_own_should_be_stands_in_its_finding() -> None:
    facts = document(CASES["numa.zone_reclaim"].bad)
    options = Options(checks=parse(CHECK + "minimum = 1\n").checks)
    found = {f.check: f for f in evaluate(facts, options)}
    assert found["site.hugepages"].wants == "8192 and at least 1"
    assert all(f.wants for f in found.values())
