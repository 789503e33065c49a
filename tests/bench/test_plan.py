"""Plans: what is read, what is refused and with which words, and what is run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends import paths
from backends.bench import planfile, steps
from backends.bench.plan import Closed
from backends.errors import ConfigError, UsageError

CLOSED = "[[steps]]\nload = 'closed'\nconcurrency = 4\n"


@pytest.mark.parametrize("name", sorted(planfile.available()))
def test_shipped_plans_are_valid_and_survive_being_written(name: str) -> None:
    plan = planfile.load(name)
    assert plan.description
    assert planfile.parse(planfile.to_toml(plan)) == plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps = [", "is no TOML"),
        ("nonsense = 1", "unknown field `nonsense`"),
        ("seed = 'x'", "seed"),
        ("steps = []", "no steps"),
        ("parts = []\n" + CLOSED, "no parts"),
        ("[[steps]]\nload = 'closed'\nconcurrency = 0", "steps[0].concurrency"),
        ("[[steps]]\nload = 'closed'\nconcurrency = 30000", "more than 20000 streams"),
        ("[[steps]]\nload = 'sideways'", "sideways"),
        (CLOSED + "requests = 4\nduration_s = 3", "requests and duration_s"),
        ("[[steps]]\nload = 'open'\nrate_per_s = 0", "rate_per_s"),
        ("[[steps]]\nload = 'open'\nrate_per_s = 1\nramp_s = 3", "rate_end_per_s"),
        ("[[steps]]\nload = 'open'\nrate_per_s = 1\nburstiness = 0.5", "gamma"),
        (
            "parts = [{ input = { kind = 'uniform', low = 9, high = 3 } }]\n" + CLOSED,
            "low is above",
        ),
        ("parts = [{ input = { kind = 'choice', values = [] } }]\n" + CLOSED, "values is empty"),
        (
            "parts = [{ input = { kind = 'choice', values = [1], weights = [0.0] } }]\n" + CLOSED,
            "weights",
        ),
        (
            "parts = [{ input = 10, prefix = { tokens = 10 } }]\n" + CLOSED,
            "prefix has 10",
        ),
        ("prompts = 'dataset'\n" + CLOSED, "go together"),
        ("body = { max_tokens = 3 }\n" + CLOSED, "body.max_tokens"),
        ("repetitions = 600\n" + CLOSED, "more than 500 steps"),
        ("repetitions = 99999999999999999999\n" + CLOSED, "more than 500 steps"),
        ("seed = 99999999999999999999\n" + CLOSED, "seed is too large"),
        ("pause_s = inf\n" + CLOSED, "pause_s is inf"),
        ("pause_s = nan\n" + CLOSED, "pause_s"),
        ("[limits]\nsilence_s = 1e300", "limits.silence_s is 1e+300"),
        ("body = { top_p = nan }\n" + CLOSED, "body.top_p is nan"),
        ("[[steps]]\nload = 'open'\nrate_per_s = [1.0, inf]", "steps[0].rate_per_s[1] is inf"),
        ("[[steps]]\nload = 'open'\nrate_per_s = 1e8", "more than 100000 requests a second"),
        ("[[steps]]\nload = 'open'\nrate_per_s = []", "step 1 has no load"),
        ("[[steps]]\nload = 'closed'\nconcurrency = []", "step 1 has no load"),
        (CLOSED + "duration_s = inf", "duration_s is inf"),
        (CLOSED + "requests = 1_000_001", "more than 1000000 requests"),
        (CLOSED + "requests_per_stream = 250_001", "more than 1000000 requests"),
        ("parts = [{ input = 10_000_001 }]\n" + CLOSED, "more than 10000000 tokens"),
        (
            "parts = [{ output = { kind = 'choice', values = [1], weights = [inf] } }]\n" + CLOSED,
            "parts[0].output.weights[0] is inf",
        ),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planfile.parse(text)
    assert words in str(caught.value)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("seed = 1\nseed = 2\n")
    with pytest.raises(ConfigError) as caught:
        planfile.load(str(path))
    assert caught.value.path == path
    assert caught.value.line == 2


def test_a_plan_of_ones_own_wins_and_is_found_by_name(own_home: Path) -> None:
    folder = paths.config_file().parent / "plans"
    folder.mkdir(parents=True)
    (folder / "quick.toml").write_text("description = 'mine'\n" + CLOSED)
    assert planfile.load("quick").description == "mine"
    assert planfile.load("quick").name == "quick"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="sweep"):
        planfile.load("swep")


def test_a_name_mistyped_is_suggested() -> None:
    with pytest.raises(UsageError) as caught:
        planfile.load("quik")
    assert caught.value.hint == "did you mean quick?"


def test_repetitions_are_interleaved_back_and_forth() -> None:
    plan = planfile.parse(
        "repetitions = 3\n[[steps]]\nload = 'closed'\nconcurrency = [1, 8]\nrequests_per_stream = 5"
    )
    unrolled = steps.unroll(plan)
    assert [(s.concurrency, s.repetition, s.index) for s in unrolled] == [
        (1, 0, 0),
        (8, 0, 1),
        (8, 1, 1),
        (1, 1, 0),
        (1, 2, 0),
        (8, 2, 1),
    ]
    assert [s.total_requests for s in unrolled[:2]] == [5, 40]


def test_without_an_end_a_step_lasts_half_a_minute() -> None:
    (step,) = steps.unroll(planfile.parse(CLOSED))
    assert (step.duration_s, step.total_requests) == (30.0, None)


def test_labels_say_the_load() -> None:
    plan = planfile.parse(
        "[[steps]]\nload = 'closed'\nconcurrency = 1\n"
        "[[steps]]\nload = 'open'\narrivals = 'gamma'\nburstiness = 0.25\nrate_per_s = 2\n"
        "[[steps]]\nload = 'open'\nrate_per_s = 1\nrate_end_per_s = 9\nramp_s = 60\n"
    )
    assert [s.label for s in steps.unroll(plan)] == [
        "1 stream",
        "2/s gamma 0.25",
        "1/s poisson to 9/s in 60 s",
    ]


def test_equal_plans_have_equal_digests_whatever_they_are_called() -> None:
    plan = planfile.parse("name = 'a'\n" + CLOSED)
    renamed = msgspec.structs.replace(plan, name="b", description="x")
    other = msgspec.structs.replace(plan, steps=(Closed(concurrency=5),))
    assert planfile.digest(plan) == planfile.digest(renamed) != planfile.digest(other)


def test_a_trace_is_read_scaled_and_begins_at_0(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text(
        '{"timestamp": 3000, "input_length": 20, "output_length": 5, "hash_ids": [1, 2]}\n'
        "\n"
        '{"timestamp": 1000, "input_length": 10, "output_length": 4}\n'
    )
    path = tmp_path / "plan.toml"
    path.write_text("[[steps]]\nload = 'trace'\nfile = 'trace.jsonl'\nspeed = 2\n")
    (step,) = steps.unroll(planfile.load(str(path)))
    assert step.load["entries"] == [[0.0, 10, 4], [1.0, 20, 5, [1, 2]]]
    assert step.total_requests == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"timestamp": 1, "input_length": 0, "output_length": 1}', ">= 1"),
        ('{"input_length": 1, "output_length": 1}', "no timestamp"),
        ("{", "truncated"),
        ("", "is empty"),
    ],
)
def test_a_trace_that_is_none_is_refused_with_its_line(
    tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "t.jsonl").write_text(line)
    path = tmp_path / "plan.toml"
    path.write_text("[[steps]]\nload = 'trace'\nfile = 't.jsonl'\n")
    with pytest.raises(ConfigError, match=words):
        planfile.load(str(path))


def test_a_data_set_needs_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a", "output_tokens": 3}\n{"messages": [{"role": "user"}]}\n')
    assert steps.read_dataset(str(path)) == [
        {"prompt": "a", "output_tokens": 3},
        {"messages": [{"role": "user"}]},
    ]
    path.write_text("{}\n")
    with pytest.raises(ConfigError, match="either prompt or messages"):
        steps.read_dataset(str(path))
