"""What a server runs with: what its engine prints, and what it tells over HTTP.

SGLang prints server_args, vLLM its resolved configuration, llama.cpp its loader's lines, TGI Args,
TensorRT-LLM its LLM Args; /server_info, /props and /info tell the same. Values are read as text by
a small parser of Python and JSON literals; nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from backends.servers.engines import Engine, EngineId
from backends.servers.lines import LogLine
from backends.servers.secretwords import masked

MAX_VALUES: Final = 2000
_MAX_VALUE_CHARS: Final = 2000
MAX_READ_CHARS: Final = 32_768
"""Of a line that tells a configuration; those of SGLang have 14,000."""
_SIGNS: Final = re.compile(r"""[\\'"(\[{<)\]}>,]""")
_FIELD: Final = re.compile(
    r"""\s*(?:'([^']{1,200})'|"([^"]{1,200})"|([A-Za-z_]\w{0,200}))\s*[=:]\s*(.*)$""", re.S
)


def parse_fields(text: str) -> dict[str, str]:
    """Split `a=1, b='x', c=[1, 2], d=Class(e=2)` or `'a': 1, 'b': 'x'` at its outer commas.

    Quoted strings lose their quotes, nested values stay text. Text that breaks off gives what
    came before the break.
    """
    fields: dict[str, str] = {}
    for part in _split(text[:MAX_READ_CHARS]):
        found = _FIELD.match(part)
        if found is None:
            continue
        name = found[1] or found[2] or found[3]
        fields[name] = masked(name, _unquote(found[4]))
        if len(fields) >= MAX_VALUES:
            break
    return fields


def _split(text: str) -> Iterable[str]:
    depth, quote, start, skipped = 0, "", 0, -1
    for found in _SIGNS.finditer(text):
        index, char = found.start(), found[0]
        if index == skipped:
            continue
        if char == "\\":
            skipped = index + 1 if quote else -1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            if depth == 0:
                yield text[start:index]
                return
            depth -= 1
        elif depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _unquote(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return value[:_MAX_VALUE_CHARS]


_LLAMA: Final = (
    (re.compile(r"^llama_(?:context|new_context\w*): (n_\w+|flash_attn)\s*= (\S+)"), None),
    (re.compile(r"offloaded (\d+/\d+) layers to GPU"), "offloaded_layers"),
    (re.compile(r"^\w*system_info: n_threads = (\d+)"), "n_threads"),
    (re.compile(r"initializing(?: slots)?, n_slots = (\d+)"), "n_slots"),
    (re.compile(r"\bn_ctx_slot = (\d+)"), "n_ctx_slot"),
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
    """

    engine: EngineId
    echoed: dict[str, str] = field(default_factory=dict)
    _values: dict[str, str] = field(default_factory=dict)
    _in_block: bool = False
    _name: str = ""
    _wrapped: str = ""
    _unread: bool = False

    @property
    def values(self) -> dict[str, str]:
        """What it runs with."""
        self._read_wrapped()
        return self._values

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
            self._read_wrapped()
            self._wrapped, self._unread = line.message[found.end() :], True
        elif self._wrapped and line.stamp is None and line.level is None:
            # A terminal has wrapped the one long line into many.
            self._wrapped += line.text
            self._unread = True
            if len(self._wrapped) > MAX_READ_CHARS:
                self._read_wrapped()
                self._wrapped = ""
        elif self._wrapped:
            self._read_wrapped()
            self._wrapped = ""
        adjusted = re.search(r"^max_total_num_tokens=\d+, ", line.message)
        if adjusted is not None:
            self.values.update(parse_fields(line.message))

    def _read_wrapped(self) -> None:
        """Read what has come of a wrapped line, once: when it is over or somebody asks."""
        if self._unread:
            self._unread = False
            self._values.update(parse_fields(self._wrapped))

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
                self.values[self._name] = masked(self._name, _unquote(value))

    def _trtllm(self, message: str) -> None:
        if _TRT_ARGS.search(message) is None:
            return
        for found in re.finditer(r"\b([a-z]\w*)=('[^']*'|\S+)", message[:65_536]):
            self.values.setdefault(found[1], masked(found[1], _unquote(found[2])))


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
        # n_ctx of a request's settings is the share of one slot, not what `-c` asks for.
        for there, here in (
            ("default_generation_settings.n_ctx", "n_ctx_slot"),
            ("default_generation_settings.n_batch", "n_batch"),
            ("default_generation_settings.n_ubatch", "n_ubatch"),
            ("total_slots", "n_slots"),
            ("model_path", "model"),
        ):
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
            values[name] = masked(str(key), plain[:_MAX_VALUE_CHARS])
