"""Asked against effective configuration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.servers.configuration import (
    MASK,
    EffectiveReader,
    Standing,
    compare,
    parse_fields,
    read_argv,
    read_http,
)
from backends.servers.engines import ENGINES, EngineId
from backends.servers.lines import LogLine, LogReader

SGLANG, VLLM = ENGINES[EngineId.SGLANG], ENGINES[EngineId.VLLM]
LLAMACPP, TGI = ENGINES[EngineId.LLAMACPP], ENGINES[EngineId.TGI]


def read(engine: EngineId, text: str) -> EffectiveReader:
    reader = EffectiveReader(engine)
    lines = LogReader(updates=False)
    for event in (*lines.feed(text.encode()), *lines.finish()):
        assert isinstance(event, LogLine)
        reader.take(event)
    return reader


def test_an_argument_vector_is_read_under_canonical_names() -> None:
    asked = read_argv(
        SGLANG,
        [
            "python",
            "-m",
            "sglang.launch_server",
            "--model",
            "/m",
            "--tp",
            "8",
            "--mem-fraction-static=0.8",
            "--trust-remote-code",
            "--served-model-name",
            "a",
            "b",
            "--random-seed",
            "-1",
            "--api-key",
            "hush",
        ],
    )
    assert asked.options == {
        "model_path": "/m",
        "tp_size": "8",
        "mem_fraction_static": "0.8",
        "trust_remote_code": "True",
        "served_model_name": "a b",
        "random_seed": "-1",
        "api_key": MASK,
    }


def test_the_model_of_vllm_serve_is_an_argument_without_a_name() -> None:
    asked = read_argv(VLLM, ["vllm", "serve", "org/model", "--no-enable-prefix-caching"])
    assert asked.options == {"model": "org/model", "enable_prefix_caching": "False"}


def test_expert_parallelism_that_nobody_asked_for_is_found() -> None:
    asked = read_argv(SGLANG, ["sglang", "serve", "--model-path", "/m", "--tp", "8"])
    log = read(
        EngineId.SGLANG,
        "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', tp_size=8, ep_size=8, "
        "attention_backend=None, moe_a2a_backend='deepep', api_key='hush')\n",
    )
    rows = compare(SGLANG, asked, log.merged)
    assert log.values["api_key"] == MASK
    assert [(row.name, row.standing) for row in rows] == [
        ("ep_size", Standing.UNASKED),
        ("moe_a2a_backend", Standing.UNASKED),
        ("model_path", Standing.SAME),
        ("tp_size", Standing.SAME),
    ]
    assert rows[0].default == "1"


def test_what_vllm_repeats_is_not_what_it_runs_with() -> None:
    asked = read_argv(
        VLLM,
        ["vllm", "serve", "/m", "--enforce-eager", "--max-model-len", "32k", "--max-num-seqs", "8"],
    )
    log = read(
        EngineId.VLLM,
        "(APIServer pid=1) INFO 01-01 00:00:00 [utils.py:1] non-default args: "
        "{'model': '/m', 'enforce_eager': True, 'max_model_len': 32768, 'max_num_seqs': 8}\n"
        "(EngineCore pid=2) INFO 01-01 00:00:01 [core.py:1] Initializing a V1 LLM engine (v0.13.0)"
        " with config: model='/m', max_seq_len=32768, enforce_eager=False, dtype=torch.bfloat16\n",
    )
    standing = {row.name: row.standing for row in compare(VLLM, asked, log.merged)}
    assert standing["enforce_eager"] is Standing.DIFFERS
    assert standing["max_model_len"] is Standing.SAME
    assert standing["max_num_seqs"] is Standing.SAME
    assert next(iter(standing)) == "enforce_eager"


def test_layers_that_stay_on_the_cpu() -> None:
    asked = read_argv(
        LLAMACPP, ["llama-server", "-m", "m.gguf", "-ngl", "99", "-c", "32768", "-fa", "on"]
    )
    log = read(
        EngineId.LLAMACPP,
        "load_tensors: offloaded 20/49 layers to GPU\n"
        "llama_context: n_ctx         = 16384\n"
        "llama_context: flash_attn    = enabled\n",
    )
    rows = {row.name: row for row in compare(LLAMACPP, asked, log.merged)}
    assert rows["n_gpu_layers"].standing is Standing.DIFFERS
    assert rows["n_gpu_layers"].effective == "20/49"
    assert rows["n_ctx"].standing is Standing.DIFFERS
    assert rows["flash_attn"].standing is Standing.SAME
    assert rows["model"].standing is Standing.NOT_REPORTED


@pytest.mark.parametrize(
    ("asked", "slot", "standing", "effective"),
    [
        ("16384", "4096", Standing.SAME, "16384"),  # divided among the slots
        ("16384", "16384", Standing.SAME, "16384"),  # a unified cache: each may have all of it
        ("10000", "2560", Standing.SAME, "10000"),  # a share is rounded up to 256
        ("0", "4096", Standing.SAME, "16384"),  # 0 asks for what the model has
        ("16384", "1024", Standing.DIFFERS, "4096"),
    ],
)
def test_the_context_of_llama_cpp_is_divided_among_its_slots(
    asked: str, slot: str, standing: Standing, effective: str
) -> None:
    argv = ["llama-server", "-m", "m.gguf", "-c", asked, "-np", "4"]
    answer = {"default_generation_settings": {"n_ctx": int(slot)}, "total_slots": 4}
    log = f"srv    load_model: initializing, n_slots = 4, n_ctx_slot = {slot}, kv_unified = 'false'"
    for values in (
        read_http(LLAMACPP, json.dumps(answer).encode()),
        read(EngineId.LLAMACPP, log + "\n").merged,
    ):
        rows = {row.name: row for row in compare(LLAMACPP, read_argv(LLAMACPP, argv), values)}
        assert (rows["n_ctx"].standing, rows["n_ctx"].effective) == (standing, effective)
        assert rows["n_slots"].standing is Standing.SAME


def test_the_block_that_tgi_prints() -> None:
    text = (
        "2025-01-01T00:00:00.000001Z  INFO text_generation_launcher: Args {\n"
        '    model_id: "org/m",\n    num_shard: Some(\n        2,\n    ),\n'
        "    quantize: None,\n    port: 3000,\n}\n"
        "2025-01-01T00:00:00.000002Z  INFO text_generation_launcher: next: thing\n"
    )
    values = read(EngineId.TGI, text).values
    assert values["model_id"] == "org/m"
    assert values["port"] == "3000"
    assert "next" not in values


def test_answers_over_http() -> None:
    body = json.dumps(
        {
            "default_generation_settings": {"n_ctx": 4096},
            "total_slots": 4,
            "model_path": "/m.gguf",
            "api_key": "hush",
            "flag": True,
        }
    ).encode()
    values = read_http(LLAMACPP, body)
    assert values["n_ctx_slot"] == "4096"
    assert "n_ctx" not in values
    assert values["n_slots"] == "4"
    assert values["api_key"] == MASK
    assert values["flag"] == "True"
    assert read_http(LLAMACPP, b"<html>") == {}
    assert read_http(LLAMACPP, b"[1]") == {}
    assert read_http(LLAMACPP, b"[" * 100_000) == {}


def test_an_earlier_run_is_a_better_baseline_than_defaults() -> None:
    asked = read_argv(SGLANG, ["sglang", "serve", "--tp", "2"])
    before = {"tp_size": "2", "page_size": "1", "ep_size": "2"}
    rows = compare(SGLANG, asked, {**before, "page_size": "64"}, baseline=before)
    assert [(row.name, row.standing) for row in rows] == [
        ("page_size", Standing.UNASKED),
        ("tp_size", Standing.SAME),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1, b='x, y', c=[1, 2]", {"a": "1", "b": "x, y", "c": "[1, 2]"}),
        ("d=D(e=2, f='g')", {"d": "D(e=2, f='g')"}),
        ("'a': None, \"b\": True}", {"a": "None", "b": "True"}),
        (r"a='it\'s', b=2", {"a": r"it\'s", "b": "2"}),
        ("a=<Mode.X: 3>, b=1", {"a": "<Mode.X: 3>", "b": "1"}),
        ("a=1, b='broken", {"a": "1", "b": "'broken"}),
        ("", {}),
    ],
)  # fmt: skip
def test_fields_are_split_at_outer_commas(text: str, wanted: dict[str, str]) -> None:
    assert parse_fields(text) == wanted


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text: str) -> None:
    for name, value in parse_fields(text).items():
        assert name
        assert isinstance(value, str)
