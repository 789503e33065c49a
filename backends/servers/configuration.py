"""What was asked of a server beside what it says it runs with.

Asked is the argument vector; effective is what the engine prints (SGLang's server_args, vLLM's
resolved configuration, llama.cpp's loader, TGI's Args, TensorRT-LLM's LLM Args) or tells over HTTP
(/server_info, /props, /info). Values are read as text by a small parser of Python and JSON
literals; nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backends.servers.engines import Engine, EngineId
from backends.servers.lines import LogLine

MAX_VALUES: Final = 2000
_MAX_VALUE_CHARS: Final = 2000
_SECRET: Final = re.compile(r"(?i)(?:api_?key|token|password|secret|authorization)$")
_SECRET_IS_NONE: Final = frozenset({"None", "", "null", "[]"})
MASK: Final = "***"


class Standing(StrEnum):
    """How one argument fares."""

    DIFFERS = "differs"
    """Asked for, and the engine runs with something else."""
    UNASKED = "unasked"
    """Nobody asked for it, and it is not the engine's default."""
    NOT_REPORTED = "not-reported"
    """Asked for, and the engine does not say what it made of it."""
    SAME = "same"
    """Asked for, and taken."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One argument, asked and effective."""

    name: str
    asked: str | None
    effective: str | None
    standing: Standing
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of an argument vector, under canonical names."""

    options: Mapping[str, str]
    others: tuple[str, ...] = ()
    """Arguments that are no options: program, subcommand, model."""


# --- asked --------------------------------------------------------------------------------------

MANY_VALUES: Final = frozenset(
    {"--served-model-name", "--cuda-graph-bs", "--lora-paths", "--lora-modules"}
)
"""Options that may take several values."""
_ENGINE_WORDS: Final = frozenset({"serve", "run", "start"})


def read_argv(engine: Engine, argv: Sequence[str]) -> Asked:
    """Read the options of an argument vector.

    `--name value`, `--name=value`, flags (which become `True`) and repeated options are
    understood, as are the spellings that the engine's module lists. The first argument of
    `vllm serve` and `trtllm-serve` that is no option is the model.
    """
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
    masked = {name: _masked(name, value) for name, value in options.items()}
    return Asked(masked, tuple(others))


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


# --- effective ----------------------------------------------------------------------------------


def parse_fields(text: str) -> dict[str, str]:
    """Split `a=1, b='x', c=[1, 2], d=Class(e=2)` or `'a': 1, 'b': 'x'` at its outer commas.

    Quoted strings lose their quotes, nested values stay text. Text that breaks off gives what
    came before the break.
    """
    fields: dict[str, str] = {}
    for part in _split(text):
        found = re.match(
            r"""\s*(?:'([^']+)'|"([^"]+)"|([A-Za-z_]\w*))\s*[=:]\s*(.*)$""", part, re.S
        )
        if found is None:
            continue
        name = found[1] or found[2] or found[3]
        fields[name] = _masked(name, _unquote(found[4]))
        if len(fields) >= MAX_VALUES:
            break
    return fields


def _split(text: str) -> Iterable[str]:
    depth, quote, start, index = 0, "", 0, 0
    while index < len(text):
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:index]
            start = index + 1
        index += 1
    yield text[start:index]


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return value[:_MAX_VALUE_CHARS]


def _masked(name: str, value: str) -> str:
    if _SECRET.search(name) and value not in _SECRET_IS_NONE:
        return MASK
    return value


_LLAMA: Final = (
    (re.compile(r"^llama_(?:context|new_context\w*): (n_\w+|flash_attn)\s*= (\S+)"), None),
    (re.compile(r"offloaded (\d+/\d+) layers to GPU"), "offloaded_layers"),
    (re.compile(r"^\w*system_info: n_threads = (\d+)"), "n_threads"),
    (re.compile(r"initializing slots, n_slots = (\d+)"), "n_slots"),
    (re.compile(r"^llama_kv_cache\w*: size = .*K \((\w+)\)"), "cache_type_k"),
    (re.compile(r"^llama_kv_cache\w*: size = .*V \((\w+)\)"), "cache_type_v"),
    (re.compile(r"load_model: loading model '([^']+)'"), "model"),
    (re.compile(r"server is listening on https?://\S+:(\d+)"), "port"),
)  # fmt: skip
_SGLANG_ARGS: Final = re.compile(r"\bserver_args=(?:ServerArgs\(|\{)")
_VLLM_ASKED: Final = re.compile(r"^(?:non-default args: \{|args: Namespace\()")
_VLLM_RESOLVED: Final = re.compile(r"^Initializing an? .{0,20}engine \([^)]*\) with config: ")
_TRT_ARGS: Final = re.compile(r"^(?:model|backend)=\S+ .*\b(?:tokenizer|dtype)=")
_TGI_FIELD: Final = re.compile(r"^\s*(\w+): (.*?),?$")


@dataclass(slots=True)
class EffectiveReader:
    """Collects the configuration that a log tells, line by line.

    Attributes:
        echoed: What the engine repeats of what it was asked (vLLM's non-default args).
        values: What it runs with.
    """

    engine: EngineId
    echoed: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    _in_block: bool = False
    _name: str = ""
    _wrapped: str = ""

    @property
    def merged(self) -> dict[str, str]:
        """What it runs with; where it does not say, what it repeats of what it was asked."""
        return {**self.echoed, **self.values}

    def take(self, line: LogLine) -> None:
        """Take the next line."""
        message = line.message
        if self.engine is EngineId.SGLANG:
            self._sglang(line)
        elif self.engine is EngineId.VLLM:
            self._vllm(message)
        elif self.engine is EngineId.LLAMACPP:
            self._llamacpp(message)
        elif self.engine is EngineId.TGI:
            self._tgi(message)
        elif self.engine is EngineId.TRTLLM:
            self._trtllm(message)

    def _sglang(self, line: LogLine) -> None:
        found = _SGLANG_ARGS.search(line.message)
        if found is not None:
            self._wrapped = line.message[found.end() :]
            self.values.update(parse_fields(self._wrapped))
        elif self._wrapped and line.stamp is None and line.level is None:
            # A terminal has wrapped the one long line into many.
            self._wrapped = (self._wrapped + line.text)[:65_536]
            self.values.update(parse_fields(self._wrapped))
        else:
            self._wrapped = ""
        adjusted = re.search(r"^max_total_num_tokens=\d+, ", line.message)
        if adjusted is not None:
            self.values.update(parse_fields(line.message))

    def _vllm(self, message: str) -> None:
        found = _VLLM_ASKED.search(message)
        if found is not None:
            self.echoed.update(parse_fields(message[found.end() :]))
            return
        found = _VLLM_RESOLVED.search(message)
        if found is not None:
            self.values.update(parse_fields(message[found.end() :]))

    def _llamacpp(self, message: str) -> None:
        for pattern, name in _LLAMA:
            found = pattern.search(message)
            if found is None:
                continue
            if name is None:
                self.values[found[1]] = found[2]
            else:
                self.values[name] = found[1]

    def _tgi(self, message: str) -> None:
        if message.startswith("Args {"):
            self._in_block = True
            inline = message[len("Args {") :].rstrip("} ")
            self.values.update(parse_fields(inline))
        elif message.startswith("}"):
            self._in_block = False
        elif self._in_block:
            found = _TGI_FIELD.match(message)
            if found is not None:
                self._name = found[1]
            value = found[2] if found is not None else message.strip().rstrip(",")
            some = re.fullmatch(r"Some\((.*)\)", value.strip())
            value = some[1] if some is not None else value
            if self._name and value not in ("Some(", ")"):
                self.values[self._name] = _masked(self._name, _unquote(value))

    def _trtllm(self, message: str) -> None:
        if _TRT_ARGS.search(message) is None:
            return
        for found in re.finditer(r"\b([a-z]\w*)=('[^']*'|\S+)", message[:65_536]):
            self.values.setdefault(found[1], _masked(found[1], _unquote(found[2])))


def read_http(engine: Engine, body: bytes) -> dict[str, str]:
    """Read the answer of a configuration endpoint: names to values as text, nested ones joined.

    An answer that is no JSON object gives nothing.
    """
    try:
        answer = json.loads(body[: 1 << 20])
    except (ValueError, RecursionError):
        return {}
    if not isinstance(answer, dict):
        return {}
    values: dict[str, str] = {}
    _flatten(answer, "", values, 0)
    if engine.id is EngineId.LLAMACPP:
        for name in ("n_ctx", "n_batch", "n_ubatch"):
            nested = values.get(f"default_generation_settings.{name}")
            if nested is not None:
                values.setdefault(name, nested)
        for there, here in (("total_slots", "n_slots"), ("model_path", "model")):
            if there in values:
                values.setdefault(here, values[there])
    return values


def _flatten(node: Mapping[str, object], path: str, values: dict[str, str], depth: int) -> None:
    for key, value in node.items():
        if len(values) >= MAX_VALUES:
            return
        name = f"{path}{key}"
        if isinstance(value, dict) and depth < 4:
            _flatten(value, f"{name}.", values, depth + 1)
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            plain = {"true": "True", "false": "False", "null": "None"}.get(text, text)
            values[name] = _masked(str(key), plain[:_MAX_VALUE_CHARS])


# --- compared -----------------------------------------------------------------------------------

_ORDER: Final = {
    Standing.DIFFERS: 0,
    Standing.UNASKED: 1,
    Standing.NOT_REPORTED: 2,
    Standing.SAME: 3,
}
_NOTHING: Final = frozenset({"none", "null", "", "auto", "-1"})
_YES: Final = frozenset({"true", "1", "on", "yes", "enabled"})
_NO: Final = frozenset({"false", "0", "off", "no", "disabled"})
_RESOLVED_NAMES: Final[Mapping[EngineId, Mapping[str, str]]] = {
    EngineId.VLLM: {"max_model_len": "max_seq_len", "model": "model"},
    EngineId.LLAMACPP: {"n_gpu_layers": "offloaded_layers"},
}


def compare(
    engine: Engine,
    asked: Asked,
    effective: Mapping[str, str],
    *,
    baseline: Mapping[str, str] | None = None,
) -> list[Comparison]:
    """Lay asked and effective side by side, what differs first.

    Args:
        engine: Tells spellings and defaults.
        asked: Of the argument vector.
        effective: What the engine says.
        baseline: The effective configuration of an earlier run with the same arguments: whatever
            differs from it counts as unasked, beside what differs from known defaults.
    """
    rows: list[Comparison] = []
    names = _RESOLVED_NAMES.get(engine.id, {})
    defaults = {option.name: option.default for option in engine.options}
    for name, value in asked.options.items():
        have = effective.get(name)
        if have is None and name in names:
            have = effective.get(names[name])
        default = defaults.get(name)
        if have is None:
            rows.append(Comparison(name, value, None, Standing.NOT_REPORTED, default))
        elif _same(name, value, have):
            rows.append(Comparison(name, value, have, Standing.SAME, default))
        else:
            rows.append(Comparison(name, value, have, Standing.DIFFERS, default))
    taken = set(asked.options) | {names[name] for name in asked.options if name in names}
    for name, have in effective.items():
        if name in taken:
            continue
        default = baseline.get(name) if baseline is not None else defaults.get(name)
        if default is not None and not _same(name, default, have):
            rows.append(Comparison(name, None, have, Standing.UNASKED, default))
    return sorted(rows, key=lambda row: (_ORDER[row.standing], row.name))


def _same(name: str, asked: str, have: str) -> bool:
    left, right = asked.strip().lower(), have.strip().lower()
    if left == right:
        return True
    if name == "n_gpu_layers" and "/" in right:
        return _layers(left, right)
    if left in _NOTHING and right in _NOTHING:
        return True
    if left in _YES and right in _YES:
        return True
    if left in _NO and right in _NO:
        return True
    wanted, found = _numbers(asked.strip()), _numbers(right)
    if wanted and found:
        return any(abs(one - two) <= 1e-9 * max(abs(one), 1.0) for one in wanted for two in found)
    if right.startswith(("[", "{", "(")):
        bare = re.sub(r"[\[\]{}()'\"\s]", "", right)
        return bare == re.sub(r"[\[\]{}()'\"\s]", "", left) or bare == left.replace(" ", ",")
    return left.rpartition(".")[2] == right.rpartition(".")[2] and "torch." in left + right


def _layers(asked: str, offloaded: str) -> bool:
    done, _, of = offloaded.partition("/")
    if not done.isdigit() or not of.isdigit():
        return False
    if asked in ("all", "auto", "-1"):
        return done == of
    return asked.isdigit() and (int(done) == int(asked) or (int(asked) >= int(of) and done == of))


def _numbers(text: str) -> tuple[float, ...]:
    """What a number may mean: engines differ about whether 8k is 8000 or 8192."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)([kmg]?)", text.lower())
    if found is None:
        return ()
    power = {"": 0, "k": 1, "m": 2, "g": 3}[found[2]]
    return (float(found[1]) * 1000**power, float(found[1]) * 1024**power)
