"""Runs load by load, one word a step, and what runs of the history are compared with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.bench.against import against_baseline, open_runs
from backends.bench.compare import Word, compare
from backends.bench.compare_steps import step_words
from backends.bench.efficiency import conditions_of, possible_of
from backends.bench.models import load_model
from backends.bench.overview import loads_of
from backends.bench.results import GpuWindow, RunResult, StepResult, TokenLedger, from_json, to_json
from backends.storage.history import History
from tests.bench_data.runs import run


def changed(original: RunResult, label: str, **changes: object) -> RunResult:
    """A run in which one load is different."""
    steps = tuple(
        msgspec.structs.replace(step, **changes) if step.label == label else step
        for step in original.steps
    )
    return msgspec.structs.replace(original, steps=steps)


def test_repetitions_become_one_line_of_means() -> None:
    measured = run(1, streams=(1, 64), repetitions=3)
    one, many = loads_of(measured)
    assert (one.label, one.concurrency, one.repetitions) == ("1 streams", 1, 3)
    rates = [step.steady.output_tokens_per_s for step in many.steps if step.steady]
    assert many.output_tokens_per_s == pytest.approx(sum(rates) / 3)
    assert many.total_tokens_per_s == pytest.approx(2 * sum(rates) / 3)
    assert many.sent == sum(step.sent for step in many.steps)


def test_interleaved_backwards_the_order_is_that_of_the_plan() -> None:
    measured = run(1, streams=(1, 4, 64), repetitions=2)
    backwards = msgspec.structs.replace(measured, steps=tuple(reversed(measured.steps)))
    assert [load.label for load in loads_of(backwards)] == ["1 streams", "4 streams", "64 streams"]


def test_what_was_not_measured_is_absent_and_no_zero() -> None:
    bare = run(1, streams=(64,))
    (load,) = loads_of(changed(bare, "64 streams", steady=None, whole=None, tpot_s=None))
    assert load.output_tokens_per_s is load.total_tokens_per_s is load.tpot_s is None
    assert load.power_w is load.joules_per_output_token is load.foreign_share is None


def test_power_is_that_of_all_gpus_or_none() -> None:
    two = (GpuWindow(uuid="a", power_mean_w=300.0), GpuWindow(uuid="b", power_mean_w=250.0))
    (load,) = loads_of(changed(run(1, streams=(64,)), "64 streams", gpus=two))
    assert load.power_w == 550
    silent = (two[0], GpuWindow(uuid="b"))
    (load,) = loads_of(changed(run(1, streams=(64,)), "64 streams", gpus=silent))
    assert load.power_w is None


def test_each_step_has_its_word_with_the_figures_that_show_it() -> None:
    a = run(1, streams=(1, 64))
    slow = run(2, streams=(1, 64), speed=0.9)
    words = step_words(compare(a, slow))
    assert [word.word for word in words.values()] == [Word.SLOWER, Word.SLOWER]
    word = words["64 streams"]
    assert word.change == pytest.approx(-0.1, abs=0.02)
    assert word.text.startswith("slower, output tok/s -")
    # Half the steps slower: only those are called so.
    mixed = msgspec.structs.replace(slow, steps=(run(3, streams=(1, 64)).steps[0], slow.steps[1]))
    words = step_words(compare(a, mixed))
    assert words["1 streams"].word is Word.NO_DIFFERENCE
    assert words["64 streams"].word is Word.SLOWER


def test_one_foul_step_says_why_and_the_others_keep_their_words() -> None:
    foul = changed(
        run(2, streams=(1, 64)), "64 streams", ledger=TokenLedger(foreign_output_share=0.2)
    )
    words = step_words(compare(run(1, streams=(1, 64)), foul))
    assert words["1 streams"].word is Word.NO_DIFFERENCE
    assert words["64 streams"].word is Word.NOT_COMPARABLE
    assert "somebody else's load: 0.0% / 20.0%" in words["64 streams"].text


def test_a_load_that_the_baseline_lacks_and_another_workload() -> None:
    words = step_words(compare(run(1, streams=(1,)), run(2, streams=(1, 64))))
    assert words["64 streams"].text == "not comparable, because the baseline has no such step"
    other = run(2)
    other = msgspec.structs.replace(
        other, plan=msgspec.structs.replace(other.plan, workload_digest="another")
    )
    for word in step_words(compare(run(1), other)).values():
        assert word.word is Word.NOT_COMPARABLE
        assert "prompts and lengths" in word.text


def test_another_metric_that_went_the_other_way_is_named() -> None:
    a, b = run(1, streams=(64,)), run(2, streams=(64,), speed=1.1)

    def late(step: StepResult) -> StepResult:
        blocks = tuple(
            msgspec.structs.replace(block, ttft_s=(block.ttft_s or 0) * 2) for block in step.blocks
        )
        return msgspec.structs.replace(step, blocks=blocks)

    b = msgspec.structs.replace(b, steps=tuple(map(late, b.steps)))
    word = step_words(compare(a, b))["64 streams"]
    assert word.word is Word.FASTER
    assert "time to first token slower" in word.why


def test_a_run_opened_alone_is_compared_with_its_baseline_several_with_the_first(
    own_home: Path,
) -> None:
    with History.at_home() as history:
        for number, speed in ((1, 1.0), (2, 1.0), (3, 0.9)):
            history.save(run(number, speed=speed))
        ids = [run(number).run_id for number in (1, 2, 3)]
        assert open_runs(history, [ids[2]]).reference is None
        assert against_baseline(history, run(3, speed=0.9)) is None
        history.pin(ids[0])
        history.tag(ids[2], ["slow"])
        opened = open_runs(history, [ids[2]])
        assert opened.reference is not None
        assert opened.reference.run_id == ids[0]
        assert opened.tags == (("slow",),)
        found = opened.comparison_of(ids[2])
        assert found is not None
        assert found.word is Word.SLOWER
        assert opened.comparison_of(ids[0]) is None
        # The baseline itself has nothing to be compared with.
        assert open_runs(history, [ids[0]]).reference is None
        several = open_runs(history, [ids[1], ids[0], ids[2]])
        assert [one.b.run_id for one in several.comparisons] == [ids[0], ids[2]]
        assert several.pinned == {ids[0]}


def test_what_was_possible_travels_with_the_document() -> None:
    measured = run(1, streams=(1, 64))
    name, weights = load_model("GLM-5-NVFP4")
    possible = possible_of(measured, name, weights, conditions_of(measured))
    document = from_json(to_json(msgspec.structs.replace(measured, possible=possible)))
    assert document.possible == possible
    step = possible.step("64 streams")
    assert step is not None
    assert [figure.kind for figure in step.figures] == [
        "paper", "live clock", "realistic", "measured",
    ]  # fmt: skip
    assert step.figure("live clock").absent
    assert step.figure("paper").assumptions
    share, realistic = step.stream_share("paper"), step.stream_share("realistic")
    assert share is not None
    assert realistic is not None
    assert 0 < share < realistic < 1
    assert step.stream_share("live clock") is None
    assert step.batch == 64
