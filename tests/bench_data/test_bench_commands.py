"""The commands about earlier runs, on a history of their own."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from backends.bench.results import (
    ClientHealth,
    Finding,
    RunResult,
    Severity,
    from_json,
    to_json,
)
from backends.storage.history import History
from backends.storage.keep import keep_run
from backends.storage.samples import read_lines
from tests.bench_data import other_tools
from tests.bench_data.runs import run
from tui.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def stored(own_home: Path) -> None:
    """Three runs: equal, equal, 10 % slower."""
    with History.at_home() as history:
        for one in (run(1), run(2), run(3, speed=0.9)):
            history.save(one)


def call(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(["bench", *arguments]) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.out + captured.err


def test_list(capsys: Capture) -> None:
    text = call(capsys, "list")
    ids = [run(n).run_id for n in (3, 2, 1)]
    assert [line.split()[0] for line in text.splitlines()[1:]] == ids
    rows = json.loads(call(capsys, "list", "--json", "--limit", "2"))
    assert [row["run_id"] for row in rows] == ids[:2]
    assert rows[0]["gpus"] == "8 x NVIDIA H200"
    assert "no runs" in call(capsys, "list", "nothing-like-that")


def test_show(capsys: Capture) -> None:
    text = call(capsys, "show")
    assert run(3).run_id in text
    assert "host: gpu01" in text
    assert "64 streams" in text
    assert from_json(call(capsys, "show", "last~2", "--json")) == run(1)
    assert call(capsys, "show", "--plan") == "name = 'sweep'\n"
    assert "No run" in call(capsys, "show", "nothing", status=2)


def test_show_says_what_was_not_asked_for(capsys: Capture, own_home: Path) -> None:
    environment = msgspec.structs.replace(
        run(1).environment,
        asked_config={"ep_size": "1"},
        effective_config={"ep_size": "8"},
        changed_files=("sglang/srt/a.py (changed, sglang)",),
    )
    with History.at_home() as history:
        history.save(msgspec.structs.replace(run(4), environment=environment))
    text = call(capsys, "show")
    assert "asked for ep_size 1, runs with 8" in text
    assert "sglang/srt/a.py" in text


def test_show_says_what_was_found_and_why_it_broke(capsys: Capture, own_home: Path) -> None:
    finding = Finding(key="token_count", severity=Severity.ERROR, text="it miscounts", step=0)
    broken = msgspec.structs.replace(run(7), findings=(finding,), error="ValueError: x")
    with History.at_home() as history:
        history.save(broken)
    out = call(capsys, "show", broken.run_id)
    assert "  ValueError: x" in out
    assert f"INVALID: {broken.steps[0].label}: it miscounts" in out


def test_show_what_was_possible(capsys: Capture) -> None:
    text = call(capsys, "show", "last", "--model", "GLM-5-NVFP4")
    assert "8 x H200, tp 8" in text
    row = [line for line in text.splitlines() if line.startswith("64 streams   ")][-1]
    assert "150" in row
    other = call(capsys, "show", "last", "--model", "GLM-5-NVFP4", "--gpus", "4xB200")
    assert "4 x B200, tp 4" in other
    call(capsys, "show", "last", "--model", "nothing-like-it", status=2)


def test_compare_says_the_word(capsys: Capture) -> None:
    assert "no difference shown" in call(capsys, "compare", "last~2", "last~1").lower()
    text = call(capsys, "compare", "last~2", "last")
    assert "B is SLOWER: output tok/s over all steps -1" in text
    assert "time per output token" in text
    first, second = json.loads(call(capsys, "compare", "last~2", "last~1", "last", "--json"))
    assert (first["word"], second["word"]) == ("no difference shown", "slower")
    assert second["overall"]["change"] == pytest.approx(-0.1, abs=0.01)
    assert second["overall"]["change_low"] < second["overall"]["change"]
    assert "# " in call(capsys, "compare", "last~2", "last", "--markdown")


@pytest.mark.parametrize(
    ("b", "options", "status"),
    [
        ("last~1", ["--fail-if-slower", "3%"], 0),
        ("last~1", ["--fail-if-slower", "3%", "--strict"], 0),
        ("last", ["--fail-if-slower", "3%"], 10),
        ("last", ["--fail-if-slower", "0.2"], 0),
        ("last", ["--fail-if-slower", "9.9%", "--strict"], 11),
        ("last", [], 0),
    ],
)
def test_exit_status_for_automation(
    capsys: Capture, b: str, options: list[str], status: int
) -> None:
    # A limit just beyond what was measured cannot be ruled out by its interval.
    if status == 11:
        measured = json.loads(call(capsys, "compare", "last~2", b, "--json"))[0]["overall"]
        options = ["--fail-if-slower", str(-measured["change"] + 0.001), "--strict"]
    assert main(["bench", "compare", "last~2", b, *options]) == status


def test_not_comparable_has_its_own_status(capsys: Capture, own_home: Path) -> None:
    other = msgspec.structs.replace(
        run(5), client=msgspec.structs.replace(run(5).client, where="tunnel")
    )
    with History.at_home() as history:
        history.save(other)
    text = call(capsys, "compare", "last~3", "last")
    assert "place of the client: host / tunnel" in text
    call(capsys, "compare", "last~3", "last", "--fail-if-slower", "3%", status=12)


def test_one_run_is_compared_with_its_baseline(capsys: Capture) -> None:
    assert "no baseline is pinned" in call(capsys, "compare", "last", status=2)
    call(capsys, "baseline", "last~2")
    assert f"A {run(1).run_id}" in call(capsys, "compare", "last")
    call(capsys, "compare", "last", "--fail-if-slower", "3%", status=10)


def test_equal_runs_of_the_history_are_used(capsys: Capture, own_home: Path) -> None:
    with History.at_home() as history:
        for number in range(10, 13):
            history.save(run(number))
    assert "equal runs of the history" in call(capsys, "compare", run(1).run_id, run(2).run_id)


def test_every_step_has_its_word_beside_the_baseline(capsys: Capture) -> None:
    call(capsys, "baseline", "last~2")
    text = call(capsys, "show", "last")
    assert f"against the baseline {run(1).run_id}: slower" in text
    lines = [line for line in text.splitlines() if line.strip().startswith("64 streams  ")]
    assert any("slower, output tok/s -" in line for line in lines)
    assert "no difference shown" in call(capsys, "show", "last~1")
    assert "against the baseline" not in call(capsys, "show", "last~2")
    text = call(capsys, "compare", "last~2", "last")
    assert "  64 streams  slower, output tok/s -" in text
    (document,) = json.loads(call(capsys, "compare", "last~2", "last", "--json"))
    assert [(step["step"], step["word"]) for step in document["steps"]] == [
        ("1 streams", "slower"), ("64 streams", "slower"),
    ]  # fmt: skip
    assert document["steps"][1]["change"] == pytest.approx(-0.1, abs=0.02)


def test_what_was_possible_is_kept_with_the_run(capsys: Capture, own_home: Path) -> None:
    from backends.bench.efficiency import conditions_of, possible_of
    from backends.bench.models import load_model

    measured = run(4)
    name, weights = load_model("GLM-5-NVFP4")
    possible = possible_of(measured, name, weights, conditions_of(measured))
    with History.at_home() as history:
        history.save(msgspec.structs.replace(measured, possible=possible))
        history.save(msgspec.structs.replace(run(5), possible_absent="no model is named"))
    text = call(capsys, "show", "last~1")
    assert "what GLM-5-NVFP4 could do on 8 x" in text
    assert "realistic" in text
    assert "what was possible is not known: no model is named" in call(capsys, "show", "last")


def test_baselines(capsys: Capture) -> None:
    call(capsys, "baseline", "last~1")
    pinned = json.loads(call(capsys, "baseline", "--json"))
    assert pinned == [{"profile": "glm5", "plan": "sweep", "run_id": run(2).run_id}]
    assert "BASELINE" in call(capsys, "list")
    call(capsys, "baseline", "last~1", "--remove")
    assert "is no baseline" in call(capsys, "baseline", "last~1", "--remove", status=2)


def limited_by_the_client(number: int) -> RunResult:
    health = ClientHealth(valid=False, reasons=("streams stood idle: 9.0 %", "CPU 97 %"))
    whole = run(number)
    steps = tuple(msgspec.structs.replace(step, client=health) for step in whole.steps)
    return msgspec.structs.replace(whole, steps=steps)


def test_a_run_that_its_client_limited_is_no_good_baseline_and_says_so(capsys: Capture) -> None:
    with History.at_home() as history:
        history.save(limited_by_the_client(4))
        history.save(limited_by_the_client(5))
    assert main(["bench", "baseline", "last~1"]) == 0
    assert f"the client was the limit in {run(4).run_id}" in capsys.readouterr().err
    text = call(capsys, "compare", "last")
    both = "client kept up: no, streams stood idle: 9.0 %, and 1 more"
    assert f"because of (A / B)\n  {both} / no, streams stood idle" in text
    assert "these differ" not in text
    assert text.count("streams stood idle") == 6  # once for the whole and each step, A and B
    assert "the client was the limit in A, not the server: measure again" in text
    main(["bench", "baseline", "last~3"])
    assert not capsys.readouterr().err


def test_a_baseline_is_not_compared_with_itself(capsys: Capture) -> None:
    call(capsys, "baseline", "last")
    assert "is itself the baseline" in call(capsys, "compare", "last", status=2)


def test_tags_and_notes(capsys: Capture) -> None:
    call(capsys, "tag", "last", "golden", "h200", "--note", "after the reboot")
    assert run(3).run_id in call(capsys, "show", "tag:golden")
    assert "after the reboot" in call(capsys, "show")
    assert "golden, h200, 1 note" in call(capsys, "list")
    assert "tags: h200" in call(capsys, "tag", "last", "golden", "--remove")


def test_export(capsys: Capture, tmp_path: Path) -> None:
    assert from_json(call(capsys, "export", "last")) == run(3, speed=0.9)
    rows = list(csv.DictReader(io.StringIO(call(capsys, "export", "last", "last~1",
                                                "--format", "csv"))))  # fmt: skip
    assert len(rows) == 4
    assert rows[0]["load"] == "1 streams"
    assert float(rows[0]["output_tokens_per_s"]) == pytest.approx(45, rel=0.05)
    assert rows[0]["joules_per_output_token"] == ""
    text = call(capsys, "export", "last", "--format", "markdown")
    assert text.startswith("# Benchmark")
    assert call(capsys, "export", "last", "--markdown") == text
    assert call(capsys, "export", "last", "--csv").startswith("run")
    assert "| 64 streams |" in text
    call(capsys, "export", "last", "--output", str(tmp_path / "x.json"))
    assert from_json((tmp_path / "x.json").read_bytes()) == run(3, speed=0.9)
    assert "one run at a time" in call(capsys, "export", "last", "last~1", status=2)


def test_a_picture_of_the_result_without_a_terminal(capsys: Capture, tmp_path: Path) -> None:
    import xml.etree.ElementTree as ET

    call(capsys, "baseline", "last~2")
    picture = call(capsys, "export", "last", "--svg")
    texts = " ".join(ET.fromstring(picture).itertext()).replace("\xa0", " ")
    for expected in ("SLOWER", "64 streams", "throughput", "latency", "the baseline of"):
        assert expected in texts, expected
    several = call(capsys, "export", "last~2", "last~1", "last", "--format", "svg", "--light")
    texts = " ".join(ET.fromstring(several).itertext()).replace("\xa0", " ")
    assert texts.count("the reference") >= 3
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(other_tools.vllm_detailed()))
    assert "by&#160;vllm" in call(capsys, "export", str(path), "--svg")


def test_formulas_and_markup_of_strangers_stay_text(capsys: Capture, own_home: Path) -> None:
    target = msgspec.structs.replace(run(4).target, model="=HYPERLINK(1)", engine="<b>|x")
    findings = (Finding(key="x", severity=Severity.WARNING, text="a | b"),)
    with History.at_home() as history:
        history.save(msgspec.structs.replace(run(4), target=target, findings=findings))
    assert "'=HYPERLINK(1)" in call(capsys, "export", "last", "--format", "csv")
    text = call(capsys, "export", "last", "--format", "markdown")
    assert r"\<b\>\|x" in text
    assert r"a \| b" in text


def test_samples_are_kept_and_exported(capsys: Capture, own_home: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(b'{"id":1}\n{"id":2}\n{"id":')
    with History.at_home() as history:
        keep_run(history, run(1), records)
        assert list(read_lines(history.samples_of(run(1).run_id))) == [b'{"id":1}', b'{"id":2}']
        keep_run(history, run(1), records)
    assert not records.exists()
    assert call(capsys, "export", "last~2", "--format", "samples") == '{"id":1}\n{"id":2}\n'
    assert "no samples" in call(capsys, "export", "last", "--format", "samples", status=2)


def test_the_schema_of_the_document(capsys: Capture) -> None:
    schema = json.loads(call(capsys, "export", "--schema"))
    step = schema["$defs"]["StepResult"]["properties"]
    assert {"ttft_s", "tpot_s", "blocks", "steady"} <= step.keys()


def test_the_documented_fields_are_those_of_the_document(capsys: Capture) -> None:
    document = Path(__file__).parents[2] / "docs" / "result-document.md"
    text = document.read_text()
    assert text == call(capsys, "export", "--schema", "--markdown")
    schema = json.loads(call(capsys, "export", "--schema"))
    for name, definition in schema["$defs"].items():
        for field in definition.get("properties", {}):
            assert f"| `{field}` |" in text, (name, field)


def test_an_export_is_valid_against_the_schema(capsys: Capture) -> None:
    schema = json.loads(call(capsys, "export", "--schema"))
    exported = json.loads(call(capsys, "export", "last"))
    run_result = schema["$defs"]["RunResult"]
    assert set(run_result["required"]) <= set(exported) <= set(run_result["properties"])
    step = schema["$defs"]["StepResult"]
    assert set(step["required"]) <= set(exported["steps"][0]) <= set(step["properties"])


def test_a_run_that_never_ended_is_found_and_kept(capsys: Capture, own_home: Path) -> None:
    records = own_home / "data" / "runs" / "20260301T110000-abc123.jsonl"
    records.parent.mkdir(parents=True)
    lines = [
        {"step": n // 100, "id": n, "due_s": n * 0.1, "sent_s": n * 0.1, "end_s": n * 0.1 + 2,
         "first_token_s": n * 0.1 + 0.2, "last_token_s": n * 0.1 + 1.9, "ok": n % 50 != 0,
         "input_tokens": 10, "output_tokens": 18, "source": "usage"}
        for n in range(200)
    ]  # fmt: skip
    lines[0]["failure"] = "cut"
    lines[1]["phase"] = "warmup"
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 1, "id":'
    records.write_text(text)
    assert f"1 unfinished: `gpuroom bench import {records}`" in call(capsys, "list")
    call(capsys, "import", str(records))
    assert "1 unfinished:" not in call(capsys, "list")
    # The samples went where those of other runs are.
    assert not records.exists()
    assert len(call(capsys, "export", "20260301T11", "--format", "samples").splitlines()) == 200
    result = from_json(call(capsys, "show", "20260301T110000", "--json"))
    first, second = result.steps
    assert (first.sent, first.succeeded, first.failed, first.failures) == (99, 97, 2, {"cut": 1})
    assert second.ttft_s is not None
    assert second.ttft_s.p50 == pytest.approx(0.2)
    assert second.tpot_s is not None
    assert second.tpot_s.p50 == pytest.approx(0.1)
    assert len(second.blocks) >= 2


def test_import(capsys: Capture, tmp_path: Path) -> None:
    files = []
    for name in ("vllm", "sglang", "guidellm", "aiperf"):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(getattr(other_tools, name)()))
        files.append(str(path))
    own = tmp_path / "own.json"
    own.write_bytes(to_json(run(9)))
    ids = json.loads(call(capsys, "import", *files, str(own), "--tag", "other", "--json"))
    assert len(set(ids)) == 5
    assert ids[-1] == run(9).run_id
    assert len(json.loads(call(capsys, "list", "--tag", "other", "--json"))) == 5
    assert "by guidellm" in call(capsys, "list", "--tag", "other")
    for run_id in ids:
        assert "output" in call(capsys, "show", run_id)
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert "No result of a known tool" in call(capsys, "import", str(own), str(bad), status=2)


def test_files_can_be_compared_without_importing(capsys: Capture, tmp_path: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.json").write_bytes(to_json(run(number)))
    text = call(capsys, "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert "no difference shown" in text.lower()


def test_delete_asks_first(capsys: Capture) -> None:
    assert "--yes" in call(capsys, "delete", "last", status=2)
    call(capsys, "delete", "last", "--yes")
    assert len(json.loads(call(capsys, "list", "--json"))) == 2


@pytest.mark.parametrize("text", ["0", "100%", "-3%", "x", "nan", ""])
def test_a_share_that_is_none(text: str) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "compare", "a", "b", "--fail-if-slower", text])
