"""Sizes from the headers of weight files, and files of strangers."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.bench.gguf_file import GgufHeader, Value, config_of, read_gguf
from backends.bench.json_fields import ModelError
from backends.bench.model_tensors import Module, classify
from backends.bench.models import load_model
from backends.bench.weight_files import read_safetensors_folder, read_safetensors_header
from tests.bench_data.checkpoints import write_checkpoint, write_gguf


def test_headers_give_exact_bytes(tmp_path: Path) -> None:
    total = write_checkpoint(tmp_path, fp4=False)
    _, weights = load_model(str(tmp_path))
    assert weights.source == "headers of 1 safetensors file"
    assert weights.stored_bytes == total
    by_config = load_model(str(tmp_path / "config.json"))[1]
    assert weights.step_bytes() == pytest.approx(by_config.step_bytes())


def test_headers_win_over_a_configuration_that_hides_its_quantisation(tmp_path: Path) -> None:
    total = write_checkpoint(tmp_path, fp4=True)
    _, weights = load_model(str(tmp_path))
    routed = next(m for m in weights.modules if m.module is Module.ROUTED)
    parameters = 2 * 4 * 3 * 64 * 32
    assert routed.stored_bytes == parameters * 0.5625 + 4 * 2 * 4 * 3
    assert weights.stored_bytes == total
    assert any("the files are believed" in note for note in weights.notes)


def test_headers_tell_the_bytes_of_an_unknown_method(tmp_path: Path) -> None:
    total = write_checkpoint(tmp_path, fp4=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "brand-new"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, weights = load_model(str(tmp_path))
    assert weights.stored_bytes == total
    assert any("brand-new" in note for note in weights.notes)
    with pytest.raises(ModelError):
        load_model(str(tmp_path / "config.json"))


def test_missing_shards_fall_back_to_the_configuration(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, fp4=False)
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": {"x": "a.safetensors",
                                                           "y": "b.safetensors"}}  # fmt: skip
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    _, weights = load_model(str(tmp_path))
    assert any("1 weight files are missing" in note for note in weights.notes)


def test_an_index_must_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    index = {"weight_map": {"x": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError):
        read_safetensors_folder(tmp_path, 2)


def hostile_headers() -> dict[str, bytes]:
    def file(header: bytes, data: int = 0) -> bytes:
        return struct.pack("<Q", len(header)) + header + bytes(data)

    def one(**tensor: object) -> bytes:
        return file(json.dumps({"a": tensor}).encode(), 8)

    return {
        "empty": b"",
        "short": b"\x01\x02",
        "endless": struct.pack("<Q", 1 << 62),
        "huge": struct.pack("<Q", 33 * 1024 * 1024) + b"{",
        "beyond the file": struct.pack("<Q", 1000) + b"{}",
        "no json": file(b"hello"),
        "no object": file(b"[]"),
        "deep": file(b"[" * 200_000),
        "no utf-8": file(b'{"\xff": 1}'),
        "tensor is a number": file(b'{"a": 1}'),
        "outside": one(dtype="F32", shape=[4], data_offsets=[0, 16]),
        "backwards": one(dtype="F32", shape=[1], data_offsets=[8, 4]),
        "negative": one(dtype="F32", shape=[-1], data_offsets=[0, 4]),
        "shape lies": one(dtype="F32", shape=[1000, 1000], data_offsets=[0, 4]),
        "many dimensions": one(dtype="F32", shape=[1] * 40, data_offsets=[0, 4]),
        "no offsets": one(dtype="F32", shape=[1]),
    }


@pytest.mark.parametrize("kind", hostile_headers())
def test_hostile_headers_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(hostile_headers()[kind])
    with pytest.raises(ModelError) as caught:
        read_safetensors_header(path)
    assert str(path) in caught.value.detail


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ModelError):
        read_safetensors_header(tmp_path / "model.safetensors")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(data)
        for read in (read_safetensors_header, read_gguf):
            try:
                read(path)
            except ModelError:
                continue


def test_a_configuration_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(ModelError) as caught:
        load_model(str(path))
    assert "too large" in caught.value.title


def test_gguf_headers(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    header = read_gguf(path)
    assert [tensor.stored_bytes for tensor in header.tensors] == [34816, 2304, 6720, 256]
    assert config_of(header)["tie_word_embeddings"] is True
    name, weights = load_model(str(path))
    assert name == "tiny.gguf"
    # Tied: the table is read as the output head.
    assert weights.step_bytes() == 34816 + 2304 + 6720 + 256


def test_gguf_with_states_instead_of_a_cache() -> None:
    base: dict[str, Value] = {"general.architecture": "qwen3next", "qwen3next.ssm.state_size": 128,
                              "qwen3next.ssm.inner_size": 4096, "qwen3next.ssm.group_count": 16,
                              "qwen3next.ssm.time_step_rank": 32}  # fmt: skip
    config = config_of(GgufHeader(base, ()))
    assert (config["linear_num_value_heads"], config["linear_value_head_dim"]) == (32, 128)
    other: dict[str, Value] = {"general.architecture": "mamba", "mamba.ssm.state_size": 16}
    assert config_of(GgufHeader(other, ()))["mamba_d_state"] == 16


def test_gguf_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ModelError):
        read_gguf(path)


def test_gguf_of_the_real_writer(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    writer_module = pytest.importorskip("gguf")
    path = tmp_path / "real.gguf"
    writer = writer_module.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(128)
    writer.add_context_length(2048)
    for name, shape in (("token_embd.weight", (512, 64)), ("output.weight", (512, 64)),
                        ("blk.0.attn_q.weight", (64, 64))):  # fmt: skip
        writer.add_tensor(name, numpy.zeros(shape, dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _, weights = load_model(str(path))
    assert weights.shape.context_limit == 2048
    assert weights.step_bytes() == (512 * 64 + 64 * 64) * 2


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("model.layers.3.mlp.experts.7.down_proj.weight_scale", Module.ROUTED),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", Module.SHARED),
        ("model.layers.3.mlp.gate.weight", Module.ROUTER),
        ("model.layers.3.mlp.gate.e_score_correction_bias", Module.ROUTER),
        ("model.layers.3.mlp.gate_proj.weight", Module.DENSE),
        ("model.layers.3.self_attn.q_a_proj.weight", Module.LATENT_DOWN),
        ("model.layers.3.self_attn.q_a_layernorm.weight", Module.NORM),
        ("model.layers.3.self_attn.indexer.wk.weight", Module.INDEXER),
        ("model.layers.3.block_sparse_moe.experts.1.w1.weight", Module.ROUTED),
        ("model.layers.3.block_sparse_moe.gate.weight", Module.ROUTER),
        ("model.layers.61.self_attn.o_proj.weight", Module.PREDICTION),
        ("model.language_model.layers.3.linear_attn.in_proj_qkvz.weight", Module.LINEAR),
        ("model.visual.blocks.3.attn.qkv.weight", Module.VISION),
        ("model.embed_tokens.weight", Module.EMBEDDING),
        ("lm_head.weight", Module.HEAD),
        ("something.else", Module.OTHER),
    ],
)
def test_names_of_checkpoints(name: str, module: Module) -> None:
    assert classify(name, 61) is module
