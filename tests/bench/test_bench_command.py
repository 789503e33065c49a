"""`gpuroom bench`: what it prints, keeps and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backends.bench.results import RunStatus, from_json
from backends.paths import config_file
from backends.storage.history import History
from tests.bench.conftest import Scheduled
from tui.cli import main

LOAD = ["--requests", "6", "--concurrency", "2", "--input", "32", "--output", "8", "--no-warm-up"]
ROOT = Path(__file__).resolve().parents[2]


def bench(scheduled: Scheduled, mode: str, *more: str) -> int:
    return main(["bench", "--url", scheduled.url(mode), "--plan", "smoke", *LOAD, *more])


def test_a_table_on_stdout_and_the_rest_on_stderr(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(scheduled, "plain") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    # Output and total stand side by side, and are named.
    assert lines[0].split()[:3] == ["load", "output", "in+out"]
    cells = lines[2].split()
    assert cells[:2] == ["2", "streams"]
    output, total = (float(cell.replace(",", "")) for cell in cells[2:4])
    assert total > output > 0
    assert cells[-2:] == ["6", "0"]
    assert "in flight" in err or "note:" in err
    with History.at_home() as history:
        (run,) = history.runs()
        assert run.run_id in out
        assert history.load(run.run_id).status is RunStatus.COMPLETE


def test_json_is_the_document(scheduled: Scheduled, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(scheduled, "plain", "--json", "--quiet") == 0
    out, _ = capsys.readouterr()
    result = from_json(out)
    (step,) = result.steps
    assert step.succeeded == 6
    assert step.whole is not None
    assert (step.whole.input_tokens, step.whole.output_tokens) == (6 * 32, 6 * 8)
    assert result.plan.name == "smoke"
    assert "concurrency = 2" in result.plan.toml or "concurrency = [\n    2" in result.plan.toml
    assert result.client.where == "local"


@pytest.mark.parametrize(("mode", "code"), [("503", 1), ("busy", 6), ("starting", 0)])
def test_exit_status(scheduled: Scheduled, mode: str, code: int) -> None:
    # `starting` is of no known engine, so its health says nothing.
    assert bench(scheduled, mode, "--quiet") == code


def test_a_load_generator_that_cannot_start_has_its_own_status(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.bench.process.argv", lambda *_: ["/nowhere/python"])
    assert bench(scheduled, "plain", "--quiet") == 4
    assert "the load generator cannot be started" in capsys.readouterr().err


def test_force_runs_in_spite_of_findings_and_the_result_says_so(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(scheduled, "busy", "--force", "--json", "--quiet") == 6
    result = from_json(capsys.readouterr().out)
    assert result.steps[0].succeeded == 6
    assert "foreign_load" in {finding.key for finding in result.findings}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "which server?"),
        (["--url", "ftp://x"], 2, "not a URL"),
        (["--url", "http://127.0.0.1:9"], 3, "no answer"),
        (["--url", "http://x", "--plan", "nope"], 2, "no plan is called"),
        (["--url", "http://x", "--api-key-env", "NOT_SET_ANYWHERE"], 2, "is not set"),
        (["--url", "http://x", "--rate", "1", "--concurrency", "1"], 2, "exclude each other"),
        (["--url", "http://x", "--requests", "9999999"], 2, "more than 1000000 requests"),
    ],
)
def test_wrong_use(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "inf"], "inf is no finite number above 0"),
        (["--rate", "2,nan"], "nan is no finite number above 0"),
        (["--rate", "fast"], "'fast' is no number, such as 2.5"),
        (["--duration", "inf"], "inf is no finite number above 0"),
        (["--concurrency", "abc"], "'abc' is no whole number, such as 16"),
        (["--concurrency", "1,,4"], "several with commas, such as 1,4,16"),
        (["--requests", "1e3"], "'1e3' is no whole number, such as 16"),
        (["--seed", str(1 << 63)], "too large"),
    ],
)
def test_a_figure_that_is_none_says_what_is_wanted(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", "--url", "http://127.0.0.1:9", *arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_plans_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--plans"]) == 0
    assert "sweep" in capsys.readouterr().out
    assert main(["bench", "--plans", "--json"]) == 0
    assert "compare" in json.loads(capsys.readouterr().out)


def test_a_plan_that_cannot_be_read_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], own_home: Path
) -> None:
    folder = config_file().parent / "plans"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("seed = 'one'\n")
    assert main(["bench", "--plans"]) == 2
    out, err = capsys.readouterr()
    assert "sweep" in out
    assert "mine" in err


def test_a_key_is_sent_and_nowhere_kept(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_TEST_KEY", "sesame-1234")
    assert bench(scheduled, "keyed", "--api-key-env", "BENCH_TEST_KEY", "--json") == 0
    out, err = capsys.readouterr()
    assert "sesame" not in out + err
    home = Path(os.environ["GPUROOM_HOME"])
    for path in home.rglob("*"):
        assert path.is_dir() or b"sesame" not in path.read_bytes()
    assert bench(scheduled, "keyed", "--quiet") != 0


def test_interrupt_stops_and_keeps(scheduled: Scheduled, own_home: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable, str(ROOT / "gpuroom.py"), "bench", "--url", scheduled.url(),
            "--plan", "smoke", "--requests", "100000", "--no-warm-up", "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    while b" ok" not in process.stderr.readline():
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    result = from_json(out)
    assert result.status is RunStatus.STOPPED
    assert result.steps[0].failed == 0
    with History.at_home() as history:
        assert [run.run_id for run in history.runs()] == [result.run_id]


MEASURED = (0, 6)
"""A machine that others load may have kept the client from keeping up: it is said, no more."""
STEPS = ["--concurrency", "1,2", "--requests", "4", "--input", "32", "--output", "16"]


def stepped(scheduled: Scheduled, *more: str) -> int:
    arguments = [*STEPS, "--no-warm-up", "--quiet", *more]
    return main(["bench", "--url", scheduled.url("plain"), "--plan", "smoke", *arguments])


def test_each_load_has_its_row_and_its_word_as_it_ends(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stepped(scheduled) in MEASURED
    assert "against the baseline" not in capsys.readouterr().out
    with History.at_home() as history:
        base = history.load(history.resolve("last"))
        history.pin(base.run_id)
    assert stepped(scheduled) in MEASURED
    told = [
        line.split(",")[0].strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("1 stream ", "2 streams ", "  against the baseline: "))
    ]
    rows = [line[:9].strip() for line in told]
    assert rows == ["1 stream", "against t", "2 streams", "against t"]
    # A run of some seconds is one of few blocks: what is said is a word, whichever.
    words = {line.removeprefix("against the baseline: ") for line in told[1::2]}
    assert words <= {"faster", "slower", "no difference shown", "not comparable"}


def test_json_lines_come_as_steps_end(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stepped(scheduled) in MEASURED
    with History.at_home() as history:
        base = history.resolve("last")
    capsys.readouterr()
    assert stepped(scheduled, "--json-lines", "--baseline", base) in MEASURED
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [next(iter(line)) for line in lines]
    assert [kind for kind in kinds if kind != "finding"] == [
        "step",
        "word",
        "step",
        "word",
        "result",
    ]
    by_kind = {kind: [line[kind] for line in lines if kind in line] for kind in set(kinds)}
    assert [step["label"] for step in by_kind["step"]] == ["1 stream", "2 streams"]
    assert [word["step"] for word in by_kind["word"]] == ["1 stream", "2 streams"]
    (document,) = by_kind["result"]
    result = from_json(json.dumps(document))
    assert document["steps"] == by_kind["step"]
    assert len(result.findings) == len(by_kind.get("finding", []))


def test_a_baseline_that_is_none_is_said_before_the_load(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduled.log()
    assert stepped(scheduled, "--baseline", "20990101") == 2
    assert "20990101" in capsys.readouterr().err
    assert not scheduled.log()
