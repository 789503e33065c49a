"""Facts and texts that were damaged: never a crash, never a PASS that rests on the damage."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.tuning import readers
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import Fact, FactsDocument, Value, Vantage, decode, encode
from backends.tuning.findings import Finding, Verdict
from backends.tuning.normalise import normalise
from tests.tuning import samples
from tests.tuning.cases import CASES, document

BROKEN: tuple[Value, ...] = (
    "garbage",
    "\x00\xff",
    "N/A",
    "Unknown Error",
    "[Not Supported]",
    "-1e999",
    "\u202e!?",
    "0x",
    "9" * 60,
    "nan",
    "9" * 4000,
    "\x1b[2J\x1b]0;x\x07",
    "½",
    "{'a': 1}",
    -(1 << 62),
    float("inf"),
    1e300,
    [],
    ["garbage", "\x00"],
)
ODD: st.SearchStrategy[Value] = st.one_of(
    st.text(max_size=30),
    st.integers(-(1 << 70), 1 << 70).map(lambda n: max(-(1 << 62), min(n, 1 << 62))),
    st.floats(allow_nan=False),
    st.booleans(),
    st.lists(st.text(max_size=20), max_size=4),
)


def _healthy() -> list[Fact]:
    """Good facts of all rules as one host, the first of each key."""
    facts: dict[str, Fact] = {}
    for case in CASES.values():
        for fact in document(case.good).facts:
            facts.setdefault(fact.key, fact)
    return [f for f in facts.values() if f.key != "virt/kind" and not f.key.startswith("pve/")]


HEALTHY = _healthy()
TEXTS = sorted(samples.ALL.values())


def _check(findings: list[Finding], damaged: set[str]) -> None:
    for finding in findings:
        assert finding.evidence
        if finding.verdict is Verdict.PASS:
            assert finding.rests_on, finding.check
            assert not damaged & set(finding.rests_on), finding


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(HEALTHY) - 1),
            st.sampled_from(("drop", "break", "error")),
            st.sampled_from(BROKEN),
        ),
        max_size=12,
    )
)
def test_damaged_facts_never_carry_a_pass(changes: list[tuple[int, str, Value]]) -> None:
    facts = list(HEALTHY)
    damaged = set()
    for index, how, value in changes:
        key = facts[index].key
        if key in damaged or facts[index].value == value:
            continue
        if isinstance(value, list) and isinstance(facts[index].value, list):
            # Other lines of a log, or none, are another host's right answer: no damage.
            continue
        damaged.add(key)
        if how == "drop":
            facts[index] = Fact(f"dropped/{index}", "x")
        elif how == "break":
            facts[index] = Fact(key, value, "test")
        else:
            facts[index] = Fact(key, None, "test", "EACCES")
    # A fact that others establish too comes back from them; it is not damaged.
    again = {f.key for f in normalise(FactsDocument(facts)).facts}
    dropped = {key for key in damaged if key in again and key not in {f.key for f in facts}}
    _check(evaluate(FactsDocument(facts)), damaged - dropped)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, len(HEALTHY) - 1), ODD), max_size=40),
    st.sampled_from(("none", "kvm", "lxc", "docker", "\x1b[31m")),
)
def test_odd_values_never_crash(changes: list[tuple[int, Value]], kind: str) -> None:
    facts = list(HEALTHY)
    for index, value in changes:
        facts[index] = Fact(facts[index].key, value, "test")
    facts.append(Fact("virt/kind", kind))
    saved = FactsDocument(facts)
    findings = evaluate(decode(encode(saved)))
    assert len({f.check for f in findings}) == len(findings)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_texts_never_crash_and_never_pass_on_what_is_gone(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(("drop", "cut", "junk", "twice", "swap")))
        if how == "drop" and len(lines) > 1:
            del lines[place]
        elif how == "cut":
            lines[place] = lines[place][: data.draw(st.integers(0, 60))]
        elif how == "junk":
            lines[place] = data.draw(st.text(max_size=60))
        elif how == "twice":
            lines.insert(place, lines[place])
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[place], lines[other] = lines[other], lines[place]
    mutated = "\n".join(lines)
    facts = readers.read_texts([("m.txt", mutated)])
    rows = mutated.split("\n")
    known = {(f.vantage, f.key): f for f in facts.facts}
    for finding in evaluate(facts, Options(only_touched=True)):
        if finding.verdict is not Verdict.PASS:
            continue
        for key in finding.rests_on:
            fact = known.get((Vantage(finding.vantage), key))
            if fact is None:
                continue
            # Whatever carries a PASS stands in a line of the text that is there now.
            number = int(fact.source.rpartition(":")[2])
            assert 1 <= number <= len(rows)
            assert rows[number - 1].strip()


def test_a_pass_from_text_falls_with_the_lines_it_was_read_from() -> None:
    for name, text in samples.ALL.items():
        facts = readers.read_texts([("m.txt", text)])
        known = {(f.vantage, f.key): f for f in facts.facts}
        rows = text.split("\n")
        for finding in evaluate(facts, Options(only_touched=True)):
            if finding.verdict is not Verdict.PASS or "[" in finding.check:
                continue
            numbers = {
                int(known[place].source.rpartition(":")[2])
                for key in finding.rests_on
                if (place := (Vantage(finding.vantage), key)) in known
            }
            assert numbers, finding.check
            words = {
                line
                for key in finding.rests_on
                if isinstance(
                    value := known.get((Vantage(finding.vantage), key), Fact("")).value, list
                )
                for line in value
            }
            left = "\n".join(
                r for n, r in enumerate(rows, 1) if n not in numbers and r.strip() not in words
            )
            again = {
                f.check: f.verdict
                for f in evaluate(readers.read_texts([("m.txt", left)]), Options(only_touched=True))
            }
            assert again.get(finding.check) is not Verdict.PASS, (name, finding.check)
