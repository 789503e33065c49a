"""A real llama.cpp server with a tiny random model: no download, no GPU, a few megabytes.

`tiny_gguf` writes the model; run as a program, this file serves it on the port that it prints:

    python tests/servers_real.py MODEL.gguf [--slots N] [--context N] [--port N]

The server is llama.cpp's own, in the process, by `xllamacpp`; it ends with its standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "world", "school")
VOCABULARY = 512
WIDTH = 64
LAYERS = 2
HEADS = 2
FEED_FORWARD = 128
CONTEXT = 4096


def tiny_gguf(path: Path, seed: int = 1) -> Path:
    """Write a llama of random weights whose tokenizer knows bytes and a few words."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + ["\u2581"]
    ordinary = letters + [f"\u2581{word}" for word in WORDS]
    ordinary += [f"\u2581w{number}" for number in range(VOCABULARY - len(tokens) - len(ordinary))]
    tokens += ordinary
    kinds += [gguf.TokenType.NORMAL] * len(ordinary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(number) for number in range(len(tokens))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    )

    rng = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        values = rng.standard_normal(shape) * 0.05
        writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", VOCABULARY, WIDTH)
    add("output.weight", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", np.ones(WIDTH, dtype=np.float32))
        writer.add_tensor(block + "ffn_norm.weight", np.ones(WIDTH, dtype=np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{name}.weight", WIDTH, WIDTH)
        add(block + "ffn_gate.weight", FEED_FORWARD, WIDTH)
        add(block + "ffn_up.weight", FEED_FORWARD, WIDTH)
        add(block + "ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True)
class LlamaServer:
    """A running server."""

    url: str
    port: int
    pid: int


@contextlib.contextmanager
def llama_server(model: Path, *, slots: int = 4, context: int = CONTEXT) -> Iterator[LlamaServer]:
    """Serve `model` in a process of its own until the block ends; ready when it begins."""
    command = [sys.executable, __file__, str(model), "--slots", str(slots)]
    command += ["--context", str(context)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        _wait_until_ready(port, process)
        yield LlamaServer(f"http://127.0.0.1:{port}", port, process.pid)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
        time.sleep(0.1)
    raise RuntimeError("the server was not ready within 60 s")


def main() -> None:
    """Serve a model until standard input ends."""
    import os
    import socket

    import xllamacpp

    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    port = arguments.port
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.context * arguments.slots
    params.endpoint_metrics = True
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    print(port, flush=True)
    sys.stdin.buffer.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    main()
