"""A llama.cpp model of 160 kB with random weights: enough to load and to answer."""

from __future__ import annotations

from pathlib import Path

EMBEDDING, HEADS, LAYERS, FEED_FORWARD, VOCABULARY = 32, 4, 2, 64, 300


def write_model(path: Path) -> None:
    """Write the model; the same bytes every time."""
    import gguf
    import numpy

    random = numpy.random.default_rng(0)

    def tensor(*shape: int) -> object:
        return random.standard_normal(shape).astype(numpy.float32) * 0.02

    def ones() -> object:
        return numpy.ones(EMBEDDING, numpy.float32)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(VOCABULARY)
    letters = [f"<0x{code:02X}>".encode() for code in range(256)]
    words = [f"word{number}".encode() for number in range(VOCABULARY - 259)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *letters, *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", tensor(VOCABULARY, EMBEDDING))
    writer.add_tensor("output_norm.weight", ones())
    writer.add_tensor("output.weight", tensor(VOCABULARY, EMBEDDING))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", ones())
        writer.add_tensor(block + "ffn_norm.weight", ones())
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}{name}.weight", tensor(EMBEDDING, EMBEDDING))
        writer.add_tensor(block + "ffn_gate.weight", tensor(FEED_FORWARD, EMBEDDING))
        writer.add_tensor(block + "ffn_up.weight", tensor(FEED_FORWARD, EMBEDDING))
        writer.add_tensor(block + "ffn_down.weight", tensor(EMBEDDING, FEED_FORWARD))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
