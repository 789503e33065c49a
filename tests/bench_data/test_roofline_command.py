"""`gpuroom roofline`: output, document, errors with near names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench_data.checkpoints import SMALL
from tui.cli.main import main


def test_text_says_four_figures_and_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["roofline", "GLM-5-NVFP4", "--gpus", '8x"RTX PRO 6000"', "--measured", "10.36"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    for word in ("paper", "live clock", "realistic", "measured", "assumptions", "tp 8"):
        assert word in text
    assert "325." in text


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["roofline", "glm-5", "--weights", "nvfp4", "--keep", "attention", "--json"]
    assert main([*arguments, "--gpus", "8xRTX PRO 6000", "--live-bandwidth", "1790"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [figure["figure"] for figure in document["decode"]] == [
        "paper", "live clock", "realistic", "measured",
    ]  # fmt: skip
    assert document["decode"][0]["stream_tokens_per_s"] == pytest.approx(325, rel=0.005)
    assert document["decode"][2]["stream_tokens_per_s"] == pytest.approx(159, rel=0.005)
    assert document["decode"][3]["stream_tokens_per_s"] is None
    assert document["parameters"] / 1e9 == pytest.approx(743.9, rel=0.005)


def test_what_does_not_fit_is_loud(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["roofline", "GLM-5", "--gpus", "8xRTX 4090"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    loud = next(n for n, line in enumerate(lines) if line.startswith("DOES NOT FIT: the weights"))
    assert loud < next(n for n, line in enumerate(lines) if line.startswith("paper"))
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fits"] is False
    assert "do not fit" in document["misfit"]
    assert main(["roofline", "Qwen3-8B", "--gpus", "H200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["fits"], document["misfit"]) == (True, None)


def test_a_live_clock(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["roofline", "Qwen3-8B", "--gpus", "H200", "--json", "--memory-clock", "3201"]
    assert main([*arguments, "--bus-width", "6016"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["decode"][1]["bandwidth_gbps"] == pytest.approx(4814.3, rel=0.001)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "A model and cards"),
        (["nothing-like-it", "--gpus", "H200"], "--list-models"),
        (["GLM-5", "--gpus", "8xRTX PRO 7000"], "RTX PRO 6000"),
        (["GLM-5", "--gpus", "8xH200", "--tp", "3"], "3 cards, 8 are given"),
        (["GLM-5", "--gpus", "8xH200", "--keep", "dense"], "--weights"),
        (["GLM-5", "--gpus", "8xH200", "--weights", "fp3"], "nvfp4"),
        (["GLM-5", "--gpus", "8xH200", "--link", "rope"], "pcie5"),
        (["GLM-5", "--gpus", "8xH200", "--memory-clock", "3201"], "--bus-width"),
        (["GLM-5", "--gpus", "8xH200", "--reachable", "nan"], "above 0"),
        (["GLM-5", "--gpus", "8xH200", "--batch", "0"], "count from 1"),
    ],
)
def test_errors_say_what_to_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_cache_type_that_a_checkpoint_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**SMALL, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8",
                                               "kv_cache_quant_algo": "FP8"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = ["roofline", str(tmp_path), "--gpus", "H200", "--context", "4096"]
    assert main(arguments) == 0
    assert "KV cache in FP8" in capsys.readouterr().out
    assert main([*arguments, "--kv-type", "bf16"]) == 0
    assert "KV cache in BF16" in capsys.readouterr().out


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--list-models"]) == 0
    assert "GLM-5-NVFP4" in capsys.readouterr().out
    assert main(["roofline", "--list-cards"]) == 0
    assert "data sheet" in capsys.readouterr().out
    assert main(["roofline", "--list-cards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cards"]
