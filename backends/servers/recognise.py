"""Which engine an argument vector starts, and the port and model it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from backends.servers.configuration import read_argv
from backends.servers.engines import ENGINES, Engine, EngineId

_WORDS: Final[tuple[tuple[EngineId, re.Pattern[str]], ...]] = tuple(
    (engine, re.compile(pattern))
    for engine, pattern in (
        (EngineId.SGLANG, r"^sglang\.(?:launch_server|srt\.\w+)$|/sglang/launch_server\.py$"),
        (EngineId.VLLM, r"^vllm\.entrypoints\.|/vllm/entrypoints/"),
        (EngineId.LLAMACPP, r"(?:^|/)(?:llama-server|llama-cpp-server)$|^llama_cpp\.server$"),
        (EngineId.TRTLLM, r"(?:^|/)trtllm-serve$"),
        (EngineId.TGI, r"(?:^|/)text-generation-(?:launcher|router|server)$"),
        (EngineId.OLLAMA, r"(?:^|/)ollama$"),
    )
)
_TITLES: Final[tuple[tuple[EngineId, re.Pattern[str]], ...]] = (
    (EngineId.SGLANG, re.compile(r"^sglang::")),
    (EngineId.VLLM, re.compile(r"^VLLM::")),
)
_SUBCOMMANDS: Final = {
    ("sglang", "serve"): EngineId.SGLANG,
    ("vllm", "serve"): EngineId.VLLM,
    ("transformers", "serve"): EngineId.TRANSFORMERS,
}
_LOOKED_AT: Final = 8
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh"})


def recognise(argv: Sequence[str]) -> Engine | None:
    """The engine that `argv` starts, by its first words; None where it is none that is known."""
    words = _of_shell(list(argv))[:_LOOKED_AT]
    if not words:
        return None
    for engine, title in _TITLES:
        if title.search(words[0]):
            return ENGINES[engine]
    names = [PurePosixPath(word).name for word in words]
    for first, second in pairwise(names):
        known = _SUBCOMMANDS.get((first.removesuffix(".py"), second))
        if known is not None:
            return ENGINES[known]
    for engine, pattern in _WORDS:
        for word in words:
            if pattern.search(word):
                if engine is EngineId.OLLAMA and "serve" not in words and "runner" not in words:
                    continue
                return ENGINES[engine]
    return None


def _of_shell(words: list[str]) -> list[str]:
    """The words of what a shell is given to run (`sh -c "exec vllm serve M"`), else `words`."""
    if len(words) > 2 and PurePosixPath(words[0]).name in _SHELLS and words[1] in ("-c", "-lc"):
        try:
            inside = shlex.split(words[2])
        except ValueError:
            return words
        return inside[1:] if inside[:1] == ["exec"] else inside
    return words


def named_port(engine: Engine, argv: Sequence[str]) -> int | None:
    """The port that the command names, else the engine's own."""
    text = read_argv(engine, _of_shell(list(argv))).options.get("port", "")
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else engine.default_port or None


def named_model(engine: Engine, argv: Sequence[str]) -> str | None:
    """The model that the command names: as it will be served, where that has a name of its own."""
    asked = read_argv(engine, _of_shell(list(argv))).options
    for key in ("served_model_name", "alias", "model", "model_path"):
        if asked.get(key):
            return asked[key].split(",")[0].split(" ")[0]
    return None
