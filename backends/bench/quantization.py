"""How a checkpoint's weights are stored: bytes per parameter and arithmetic of each module.

Source of the fields: the `quantization_config` of Hugging Face configurations and NVIDIA ModelOpt's
`hf_quant_config.json`. The list of modules that are left alone decides more than the method does:
on GLM-5 it moves the ceiling from 318 to 584 tokens a second.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench.json_fields import Fields, ModelError
from backends.text import clean

MAX_PATTERNS: Final = 20_000
MAX_PATTERN_CHARS: Final = 400


class UnknownQuantization(ModelError):
    """A method that is not known here; headers of the weight files may still tell the bytes."""


class Arithmetic(StrEnum):
    """What the tensor cores multiply in."""

    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way of storing weights."""

    name: str
    bytes_per_parameter: float
    """Scales and zero points included."""
    arithmetic: Arithmetic


BF16: Final = Scheme("BF16", 2.0, Arithmetic.BF16)
FP32: Final = Scheme("FP32", 4.0, Arithmetic.BF16)
FP8: Final = Scheme("FP8", 1.0, Arithmetic.FP8)
INT8: Final = Scheme("INT8", 1.0, Arithmetic.FP8)
NVFP4: Final = Scheme("NVFP4", 0.5 + 1 / 16, Arithmetic.FP4)
MXFP4: Final = Scheme("MXFP4", 0.5 + 1 / 32, Arithmetic.FP4)
SCHEMES: Final = {
    "bf16": BF16,
    "fp32": FP32,
    "fp8": FP8,
    "int8": INT8,
    "nvfp4": NVFP4,
    "mxfp4": MXFP4,
    "int4": Scheme("INT4 g128", 0.5 + 2 / 128, Arithmetic.BF16),
}


def integer_scheme(bits: int, group: int, *, zero_points: bool) -> Scheme:
    """Weight-only integers: packed bits, one 16-bit scale a group, and a zero point of `bits`."""
    scale = 0.0 if group <= 0 else (2 + (bits / 8 if zero_points else 0)) / group
    label = f"INT{bits}" + (f" g{group}" if group > 0 else "")
    return Scheme(label, bits / 8 + scale, Arithmetic.BF16)


def fp8_block_scheme(block: int) -> Scheme:
    """FP8 with one float32 scale per block x block weights."""
    return Scheme(f"FP8 {block}x{block}", 1 + 4 / block**2, Arithmetic.FP8)


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules that match one of `patterns` are stored by `scheme`; no patterns means any linear."""

    scheme: Scheme
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which module is stored how.

    Attributes:
        method: As the checkpoint names it; empty for an unquantised one.
        rules: The first that matches wins.
        ignored: Patterns of modules that keep the model's own type.
        kv_cache: Type of the KV cache that the checkpoint asks for; empty where it doesn't.
    """

    method: str = ""
    rules: tuple[Rule, ...] = ()
    ignored: tuple[str, ...] = ()
    kv_cache: str = ""

    def scheme_of(self, module: str, unquantized: Scheme = BF16) -> Scheme:
        """How the linear layer named `module` (without `.weight`) is stored."""
        if any(matches(pattern, module) for pattern in self.ignored):
            return unquantized
        for rule in self.rules:
            if not rule.patterns or any(matches(pattern, module) for pattern in rule.patterns):
                return rule.scheme
        return unquantized


UNQUANTIZED: Final = Quantization()


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """A pattern as a regular expression; None where it is to be compared as a name.

    Raises:
        ModelError: An expression that could run for ever (a repeated group, or more than four
            open repetitions), or one that is not valid.
    """
    if pattern.startswith("re:"):
        body = pattern[3:]
        plain = re.sub(r"\\.", "x", body)
        if re.search(r"\)[*+{]", plain) or len(re.findall(r"[*+{]", plain)) > 4:
            raise ModelError(
                "A pattern of the model's quantisation list is too costly to evaluate",
                clean(pattern, 120),
                "Give the figures yourself with --weights, for example --weights nvfp4.",
            )
        try:
            return re.compile(body)
        except re.error as error:
            raise ModelError(
                "A pattern of the model's quantisation list is no valid expression",
                f"{clean(pattern, 120)}: {error}",
            ) from error
    if "*" in pattern or "?" in pattern:
        if pattern.count("*") > 4:
            raise ModelError("A pattern of the model's list is too costly", clean(pattern, 120))
        return re.compile(fnmatch.translate(pattern))
    return None


def matches(pattern: str, module: str) -> bool:
    """Whether a pattern of an ignore or target list means `module`.

    `re:` regular expressions, globs, whole names, parents, and bare parts of a name, as the
    formats use them (`re:.*lm_head`, `model.layers.0*`, `lm_head`, `model.layers.0`, `self_attn`).
    """
    expression = _compiled(pattern)
    if expression is not None:
        return expression.match(module) is not None
    name = pattern.removesuffix(".weight")
    return module == name or f".{name}." in f".{module}."


def parse_quantization(
    config: Mapping[str, object],
    extra: Mapping[str, object] | None = None,
    where: str = "config.json",
) -> Quantization:
    """Read how the weights are stored.

    Args:
        config: The decoded `config.json`.
        extra: The decoded `hf_quant_config.json`, where there is one.
        where: Name of the file, for errors.

    Raises:
        ModelError: A method that is not known here.
    """
    outer = Fields(config, where)
    fields = outer.object("quantization_config")
    for name in ("text_config", "llm_config", "language_config"):
        nested = outer.object(name)
        if fields is None and nested is not None:
            fields = nested.object("quantization_config")
    if extra is not None:
        modelopt = Fields(extra, "hf_quant_config.json").object("quantization")
        if modelopt is not None:
            return _modelopt(modelopt)
    if fields is None:
        return UNQUANTIZED
    method = fields.word("quant_method").lower()
    if method.startswith("modelopt") or (not method and fields.has("quant_algo")):
        return _modelopt(fields)
    if method == "compressed-tensors":
        return _compressed_tensors(fields)
    ignored = _patterns(fields, "modules_to_not_convert", "ignored_layers", "ignore")
    if method in ("fp8", "fbgemm_fp8"):
        block = fields.integers("weight_block_size") or []
        scheme = fp8_block_scheme(block[0]) if block and 0 < block[0] <= 65536 else FP8
        return Quantization(method, (Rule(scheme),), ignored)
    if method == "mxfp4":
        return Quantization(method, (Rule(MXFP4),), ignored)
    if method in ("awq", "gptq", "auto-round", "autoround", "gptq_marlin", "awq_marlin"):
        bits = fields.integer("bits", "w_bit", default=4, low=2, high=8)
        group = fields.integer("group_size", "q_group_size", default=128, low=-1, high=65536)
        symmetric = fields.flag("sym", False)
        scheme = integer_scheme(bits, group, zero_points=not symmetric)
        return Quantization(method, (Rule(scheme),), ignored)
    if method == "bitsandbytes":
        four = fields.flag("load_in_4bit")
        scheme = integer_scheme(4, 64, zero_points=False) if four else INT8
        return Quantization(method, (Rule(scheme),), ignored)
    raise UnknownQuantization(
        f"The quantisation method {clean(method, 60) or '(none named)'} is not known here",
        where,
        "Give the figures yourself with --weights, for example --weights int4.",
    )


def _patterns(fields: Fields, *names: str) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        found += [word for word in fields.words(name, MAX_PATTERNS) if word]
    return tuple(word[:MAX_PATTERN_CHARS] for word in found)


def _modelopt(fields: Fields) -> Quantization:
    ignored = _patterns(fields, "exclude_modules", "ignore")
    cache = fields.word("kv_cache_quant_algo")
    if not cache and fields.object("kv_cache_scheme") is not None:
        cache = "fp8"
    algorithm = fields.word("quant_algo").upper()
    if algorithm == "MIXED_PRECISION":
        layers = fields.object("quantized_layers")
        rules: dict[str, list[str]] = {}
        for name, value in list((layers.values if layers else {}).items())[:MAX_PATTERNS]:
            if isinstance(value, dict):
                inner = Fields(value, fields.where).word("quant_algo").upper()
                rules.setdefault(inner, []).append(clean(name, MAX_PATTERN_CHARS))
        return Quantization(
            "modelopt",
            tuple(Rule(_modelopt_scheme(key), tuple(names)) for key, names in rules.items()),
            ignored,
            cache.lower(),
        )
    return Quantization(
        "modelopt", (Rule(_modelopt_scheme(algorithm or "FP8")),), ignored, cache.lower()
    )


def _modelopt_scheme(algorithm: str) -> Scheme:
    if "NVFP4" in algorithm or algorithm == "W4A8_NVFP4_FP8":
        return NVFP4
    if "MXFP4" in algorithm:
        return MXFP4
    if algorithm.startswith(("W4A16", "W4A8", "INT4")):
        return integer_scheme(4, 128, zero_points=False)
    if "FP8" in algorithm:
        return FP8
    if "INT8" in algorithm or "W8A8" in algorithm:
        return INT8
    raise UnknownQuantization(
        f"The quantisation algorithm {clean(algorithm, 60)} is not known here",
        "hf_quant_config.json",
        "Give the figures yourself with --weights, for example --weights nvfp4.",
    )


def _compressed_tensors(fields: Fields) -> Quantization:
    ignored = _patterns(fields, "ignore")
    cache = "fp8" if fields.object("kv_cache_scheme") is not None else ""
    groups = fields.object("config_groups")
    rules: list[Rule] = []
    for name, value in list((groups.values if groups else {}).items())[:64]:
        if not isinstance(value, dict):
            continue
        group = Fields(value, f"{fields.where}, config_groups.{clean(name, 40)}")
        weights = group.object("weights")
        if weights is None:
            continue
        targets = tuple(t for t in _patterns(group, "targets") if t != "Linear")
        rules.append(Rule(_compressed_scheme(weights, group.object("input_activations")), targets))
    # Rules with names come first: `Linear` means what no other group has named.
    rules.sort(key=lambda rule: not rule.patterns)
    return Quantization("compressed-tensors", tuple(rules), ignored, cache)


def _compressed_scheme(weights: Fields, activations: Fields | None) -> Scheme:
    bits = weights.integer("num_bits", low=2, high=16)
    group = weights.integer("group_size", default=-1, low=-1, high=65536)
    if weights.word("type") == "float":
        if bits == 4:
            scheme = MXFP4 if group == 32 else NVFP4
            if activations is None:
                return Scheme(scheme.name + "A16", scheme.bytes_per_parameter, Arithmetic.BF16)
            return scheme
        return FP8 if bits == 8 else BF16
    if bits == 8 and activations is not None:
        return INT8
    return integer_scheme(bits, group, zero_points=not weights.flag("symmetric", True))
