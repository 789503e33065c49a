"""What was asked of a server: the options of its argument vector, under canonical names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.servers.engines import Engine, EngineId
from backends.servers.recognise import server_words
from backends.servers.secretwords import masked


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of an argument vector, under canonical names."""

    options: Mapping[str, str]
    others: tuple[str, ...] = ()
    """Arguments that are no options: program, subcommand, model."""


MANY_VALUES: Final = frozenset(
    {"--served-model-name", "--cuda-graph-bs", "--lora-paths", "--lora-modules"}
)
"""Options that may take several values."""
_NAMES: Final = ("served_model_name", "alias")
"""Options that may give a model several names."""
_ENGINE_WORDS: Final = frozenset({"serve", "run", "start"})


def read_argv(engine: Engine, argv: Sequence[str]) -> Asked:
    """Read the options of an argument vector.

    `--name value`, `--name=value`, flags (which become `True`) and repeated options are
    understood, as are the spellings that the engine's module lists. The first argument of
    `vllm serve` and `trtllm-serve` that is no option is the model. Of what a shell is given, the
    server's own command counts.
    """
    argv = server_words(argv)
    spelled = {word: option.name for option in engine.options for word in option.spellings}
    flags = {
        word
        for option in engine.options
        if (option.default or "").lower() == "false"
        for word in option.spellings
    }
    options: dict[str, str] = {}
    others: list[str] = []
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        runs_module = word == "-m" and bool(others) and "python" in others[-1]
        if runs_module or not is_option(word):
            others.append(word)
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        wanted = 0 if equals or name in flags else len(argv) if name in MANY_VALUES else 1
        while wanted and position < len(argv) and not is_option(argv[position]):
            values.append(argv[position])
            position, wanted = position + 1, wanted - 1
        canonical = spelled.get(name) or spelled.get(name.replace("_", "-"))
        if canonical is None:
            canonical = name.lstrip("-").replace("-", "_")
        options[canonical] = " ".join(values) if values else "True"
    _negate(options)
    _find_model(engine, options, others)
    shown = {name: masked(name, value) for name, value in options.items()}
    return Asked(shown, tuple(others))


def named_port(engine: Engine, argv: Sequence[str]) -> int | None:
    """The port that the command names, else the engine's own."""
    text = read_argv(engine, argv).options.get("port", "")
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else engine.default_port or None


def named_model(engine: Engine, argv: Sequence[str]) -> str | None:
    """The model that the command names: as it will be served, where that has a name of its own."""
    asked = read_argv(engine, argv).options
    for key in (*_NAMES, "model", "model_path"):
        value = asked.get(key)
        if value:
            return value.split(",")[0].split(" ")[0] if key in _NAMES else value
    return None


def is_option(word: str) -> bool:
    """Whether an argument is the name of an option, and not a value such as -1."""
    return len(word) > 1 and word[0] == "-" and not re.fullmatch(r"-[\d.]+(?:e-?\d+)?", word)


def _negate(options: dict[str, str]) -> None:
    """`--no-enable-x` is `--enable-x` set to False."""
    for name in [name for name in options if name.startswith("no_") and options[name] == "True"]:
        positive = name[3:]
        if positive.startswith(("enable_", "async", "prefix", "trust")):
            del options[name]
            options[positive] = "False"


def _find_model(engine: Engine, options: dict[str, str], others: list[str]) -> None:
    if "model" in options or engine.id not in (EngineId.VLLM, EngineId.TRTLLM):
        return
    for index, word in enumerate(others):
        if word in _ENGINE_WORDS or word.endswith("trtllm-serve"):
            rest = [other for other in others[index + 1 :] if other not in _ENGINE_WORDS]
            if rest:
                options["model"] = rest[0]
            return
