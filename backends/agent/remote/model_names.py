"""Which model a process serves, as far as its command line tells it."""

from __future__ import annotations

import os
import re
from typing import List, Optional

NAMED = (
    "--served-model-name",
    "--served_model_name",
    "--alias",
)
"""Options that name the model as its users know it: preferred."""
OPTIONS = (
    "--model-path",
    "--model_path",
    "--model",
    "--model-id",
    "--model_id",
    "--model-tag",
    "--model_name_or_path",
    "--model-name-or-path",
    "--model_name",
    "--model-name",
    "--hf-repo",
    "-hf",
    "-hfr",
    "--pretrained",
    "--engine_dir",
    "--engine-dir",
    "--model-repository",
    "--model-store",
)
SHORT = ("-m", "-a")
"""llama.cpp: `-m FILE`, `-a NAME`. Also python's own `-m MODULE`, which is skipped."""
BLOB = re.compile(r"sha256[-:]([0-9a-f]{8})[0-9a-f]*$")
SNAPSHOT = re.compile(r"models--([^/]+)--([^/]+)(?:/snapshots/[^/]*)?")
MAX_CHARS = 200


def model_name(argv: List[str]) -> Optional[str]:
    """The model of a serving process, or None.

    Knows how sglang, vLLM (`vllm serve NAME` too), llama.cpp, TensorRT-LLM (`trtllm-serve NAME`),
    text-generation-inference, Ollama's runner, Triton and transformers scripts are called.
    """
    arguments = argv[first_argument(argv) :]
    for options in (NAMED, OPTIONS):
        for option in options:
            value = option_value(arguments, option)
            if value:
                return tidy(value)
    if is_llama_cpp(argv):
        for option in SHORT[::-1]:
            value = option_value(arguments, option)
            if value:
                return tidy(value)
    return positional(argv)


def first_argument(argv: List[str]) -> int:
    """Where a program's own arguments begin: after `python`, its options and `-m MODULE`."""
    if not argv or not re.match(r"^python[\d.]*$", os.path.basename(argv[0])):
        return min(1, len(argv))
    position = 1
    while position < len(argv):
        word = argv[position]
        if word == "-m":
            return position + 2
        if word == "-c":
            return len(argv)
        if word in ("-X", "-W"):
            position += 2
        elif word.startswith("-"):
            position += 1
        else:
            return position + 1
    return position


def option_value(arguments: List[str], option: str) -> Optional[str]:
    """The value of `--option VALUE` or `--option=VALUE`; the first counts."""
    for position, word in enumerate(arguments):
        if word == option and position + 1 < len(arguments):
            value = arguments[position + 1]
            if not value.startswith("-"):
                return value
        elif word.startswith(option + "="):
            return word[len(option) + 1 :]
    return None


def is_llama_cpp(argv: List[str]) -> bool:
    """Whether this is one of llama.cpp's programs (or koboldcpp, or Ollama's runner)."""
    name = os.path.basename(argv[0]) if argv else ""
    return bool(re.match(r"^(llama[-_.]|koboldcpp|ollama|main$|server$)", name))


def positional(argv: List[str]) -> Optional[str]:
    """The model of `vllm serve NAME`, `trtllm-serve [serve] NAME` and `mlc_llm serve NAME`."""
    names = [os.path.basename(word) for word in argv[:4]]
    for position, name in enumerate(names):
        after = argv[position + 1 :]
        if name in ("vllm", "mlc_llm", "lmdeploy") and after[:1] == ["serve"]:
            after = after[1:]
            if name == "lmdeploy" and after[:1] == ["api_server"]:
                after = after[1:]
        elif name == "trtllm-serve":
            after = after[1:] if after[:1] == ["serve"] else after
        else:
            continue
        if after and not after[0].startswith("-"):
            return tidy(after[0])
        return None
    return None


def tidy(value: str) -> str:
    """A repository name, or the telling end of a path."""
    snapshot = SNAPSHOT.search(value)
    if snapshot:
        return "%s/%s" % snapshot.groups()
    blob = BLOB.search(value)
    if blob:
        return "blob " + blob.group(1)
    value = value.rstrip("/")
    if value.startswith(("/", ".", "~")) or value.count("/") > 1:
        parts = [part for part in value.split("/") if part not in ("", ".", "..", "~")]
        value = parts[-1] if parts else value
    return value[:MAX_CHARS]
