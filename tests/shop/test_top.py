"""`gpuroom top` against the demo host: a real SSH link, the real agent, simulated cards."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from backends.model import GpuReadings
from tests.ui import fakes
from tui.cli import main
from tui.cli.top import EXIT_NO_GPUS, is_whole


def test_once_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "demo", "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["host"] == "demo"
    assert len(found["gpus"]) == 8
    for gpu in found["gpus"]:
        for field in fields(GpuReadings):
            value = gpu[field.name]
            assert value is not None or gpu["absent"][field.name], field.name
        assert 0 < gpu["power_w"] <= gpu["power_limit_enforced_w"] * 1.1


def test_no_null_of_a_process_is_without_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "demo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["processes"]
    for process in found["processes"]:
        for key, value in process.items():
            assert value is not None or process["absent"][key], key


def test_a_stream_is_a_json_line_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "demo:idle", "--stream", "--interval", "0.2", "--count", "3"]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    times = [sample["time"] for sample in samples]
    assert len(samples) == 3
    assert times == sorted(set(times))


def test_mig_shows_power_and_no_utilisation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "demo:mig"]) == 0
    row = capsys.readouterr().out.splitlines()[2]
    assert "W" in row
    assert " - " in row


def test_a_host_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "nobody@127.0.0.1:1", "--timeout", "5"]) == 3
    assert "cannot reach" in capsys.readouterr().err


def test_a_host_without_a_driver(capsys: pytest.CaptureFixture[str]) -> None:
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        expected = EXIT_NO_GPUS
    else:
        expected = 0
    assert main(["top", "local", "--json"]) == expected
    found = json.loads(capsys.readouterr().out)
    assert found["readings"]["memory_total_bytes"] > 0
    if expected:
        assert found["gpus"] == []
        assert found["driver"]["state"] == "missing"


def test_a_sample_is_whole_only_with_what_runs_on_the_gpus() -> None:
    whole = fakes.snapshot("gpu01", [fakes.gpu(0)])
    assert is_whole(whole)
    assert not is_whole(replace(whole, processes_listed=False))
    by_smi = fakes.link(via="nvidia-smi")
    assert is_whole(replace(whole, processes_listed=False, link=by_smi)), "there it never comes"
