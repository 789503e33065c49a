"""Which engine an argument vector starts, also behind wrappers and in what a shell is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from backends.servers.engines import ENGINES, Engine, EngineId

_WORDS: Final[tuple[tuple[EngineId, re.Pattern[str]], ...]] = tuple(
    (engine, re.compile(pattern))
    for engine, pattern in (
        (EngineId.SGLANG, r"^sglang\.(?:launch_server|srt\.\w+)$|/sglang/launch_server\.py$"),
        (EngineId.VLLM, r"^vllm\.entrypoints\.|/vllm/entrypoints/\S+\.py$"),
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
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_MANY_CHARS: Final = 32_768
_ASIDE: Final = frozenset(
    {"ssh", "sshd:", "autossh", "docker", "podman", "nerdctl", "kubectl", "oc", "crictl", "tail"}
    | {"less", "grep", "journalctl", "vi", "vim", "nano", "man", "watch", "pip", "pip3", "echo"}
)
"""Programs whose words name what runs elsewhere, or not at all."""


def recognise(argv: Sequence[str]) -> Engine | None:
    """The engine that `argv` starts, by its first words; None where it is none that is known."""
    for words in _commands(argv):
        engine = _engine_of(words)
        if engine is not None:
            return engine
    return None


def server_words(argv: Sequence[str]) -> tuple[str, ...]:
    """The server's own command: what a shell is given to run (`sh -c "exec vllm serve M"`)."""
    for words in _commands(argv):
        if _engine_of(words) is not None:
            return tuple(words)
    return tuple(argv)


def _engine_of(argv: Sequence[str]) -> Engine | None:
    words = argv[:_LOOKED_AT]
    if not words:
        return None
    for engine, title in _TITLES:
        if title.search(words[0]):
            return ENGINES[engine]
    names = [PurePosixPath(word).name for word in words]
    if names[0] in _ASIDE:
        return None
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


def _commands(argv: Sequence[str]) -> Iterator[list[str]]:
    """The commands of what a shell is given, or the only one."""
    script = _script(argv)
    if script is None:
        yield list(argv)
        return
    lexer = shlex.shlex(
        script[:_MANY_CHARS].replace("\\\n", " ").replace("\n", " ; "),
        posix=True, punctuation_chars=True,
    )  # fmt: skip
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    tokens = iter(lexer)
    try:
        for token in tokens:
            if set(token) <= set("<>&") and set(token) & set("<>"):
                next(tokens, None)  # where its output goes
                if words and words[-1].isdigit():
                    words.pop()
            elif set(token) <= set("();|&"):
                yield _own(words)
                words = []
            else:
                words.append(token)
    except ValueError:  # a quotation without an end
        pass
    yield _own(words)


def _own(words: list[str]) -> list[str]:
    """A command without the variables and the words of the shell before it."""
    while words and (re.match(r"[A-Za-z_]\w*=", words[0]) or words[0] in ("exec", "nohup", "env")):
        words = words[1:]
    return words


def _script(argv: Sequence[str]) -> str | None:
    """What a shell among the first words is given by `-c`."""
    for index, word in enumerate(argv[:_LOOKED_AT]):
        name = PurePosixPath(word).name
        if name in _ASIDE:
            return None
        if name not in _SHELLS:
            continue
        rest = iter(argv[index + 1 :])
        for option in rest:
            if not option.startswith(("-", "+")):
                return None  # a file
            if not option.startswith("--") and "c" in option:
                return next((text for text in rest if not text.startswith("-")), None)
            if option.endswith(("o", "O")) or option in ("--rcfile", "--init-file"):
                next(rest, None)
        return None
    return None
