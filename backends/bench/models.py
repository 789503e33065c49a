"""From what a user names to a model's weights: a folder, a file, or a model shipped as data."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from backends.bench import gguf_file
from backends.bench.json_fields import ModelError, read_json
from backends.bench.model_config import parse_shape
from backends.bench.model_shape import ModelShape
from backends.bench.quantization import (
    SCHEMES,
    UNQUANTIZED,
    Quantization,
    Rule,
    UnknownQuantization,
    parse_quantization,
)
from backends.bench.weight_files import StoredWeights, read_safetensors_folder
from backends.bench.weights import Weights, weights_of_config, with_stored
from backends.errors import UsageError
from backends.text import clean

MODELS_FILE: Final = Path(__file__).with_name("models.toml")
KEPT_PARTS: Final = {
    "attention": ("self_attn", "linear_attn"),
    "experts": ("mlp.experts",),
    "shared": ("mlp.shared_experts",),
    "dense": ("re:.*mlp\\.(gate_proj|up_proj|down_proj|fc1|fc2)$",),
}
"""Parts of a model that `--keep` leaves unquantised, and the names of their modules."""


class ShippedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `models.toml`."""

    name: str
    aliases: tuple[str, ...]
    source: str
    published_total_b: float
    config: dict[str, object]
    published_active_b: float | None = None
    rounded: bool = False
    """Whether the total is known only as makers round it."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[ShippedModel, ...]


@functools.cache
def shipped_models() -> tuple[ShippedModel, ...]:
    """The models that are known without their files."""
    return msgspec.toml.decode(MODELS_FILE.read_bytes(), type=_File).models


def load_model(name: str, override: Quantization | None = None) -> tuple[str, Weights]:
    """Find and weigh a model.

    Args:
        name: A folder with config.json, a config.json, a GGUF file, or a shipped model's name.
        override: Takes the place of the quantisation that the model's files state.

    Returns:
        The model's name for people, and its weights.

    Raises:
        UsageError: Nothing of that name; the nearest names are said.
        ModelError: Its files cannot be used.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path, override)
    if path.suffix == ".gguf" and path.exists():
        return _gguf(path)
    if path.is_file():
        config = read_json(path)
        return path.name, weigh(config, str(path), override)
    known = shipped_model(name, override)
    if known is None:
        raise _not_found(name)
    return known


def shipped_model(name: str, override: Quantization | None = None) -> tuple[str, Weights] | None:
    """A model that is known by name, weighed; None where it is not."""
    for model in shipped_models():
        if name.lower() in (known.lower() for known in (model.name, *model.aliases)):
            return model.name, weigh(model.config, model.source, override)
    return None


def weigh(
    config: Mapping[str, object], where: str, override: Quantization | None = None
) -> Weights:
    """Weigh a model by its decoded config.json."""
    quantization = parse_quantization(config, where=where) if override is None else override
    return weights_of_config(parse_shape(config, where), quantization)


def _folder(folder: Path, override: Quantization | None) -> tuple[str, Weights]:
    path = folder / "config.json"
    if not path.exists():
        ggufs = sorted(folder.glob("*.gguf"))
        if ggufs:
            return _gguf(ggufs[0])
        raise ModelError(
            "The folder holds no config.json",
            str(folder),
            "Give the folder that the server loads: the one with config.json and the weights.",
        )
    config = read_json(path)
    if override is not None:
        return folder.resolve().name, weigh(config, str(path), override)
    extra_path = folder / "hf_quant_config.json"
    extra = read_json(extra_path) if extra_path.exists() else None
    shape = parse_shape(config, str(path))
    stored = read_safetensors_folder(folder, len(shape.layers))
    return folder.resolve().name, weigh_checkpoint(shape, config, extra, str(path), stored)


def weigh_checkpoint(
    shape: ModelShape,
    config: Mapping[str, object],
    extra: Mapping[str, object] | None,
    where: str,
    stored: StoredWeights | None,
) -> Weights:
    """Weigh a model by its configuration and, where they are there, by its files' headers.

    Args:
        shape: Of the model.
        config: The decoded config.json.
        extra: The decoded hf_quant_config.json, where there is one.
        where: Name of the configuration, for errors.
        stored: What the headers say; None where there are no files.

    Raises:
        ModelError: Neither configuration nor headers tell how the weights are stored.
    """
    try:
        weights = weights_of_config(shape, parse_quantization(config, extra, where))
    except UnknownQuantization as error:
        if stored is None or stored.missing:
            raise
        weights = weights_of_config(shape, UNQUANTIZED)
        note = f"{error.title}: bytes are those of the headers, arithmetic is counted as bf16"
        weights = replace(weights, notes=(note,))
    return weights if stored is None else with_stored(weights, stored)


def _gguf(path: Path) -> tuple[str, Weights]:
    return path.name, weigh_gguf(gguf_file.read_gguf_model(path), str(path))


def weigh_gguf(header: gguf_file.GgufHeader, where: str) -> Weights:
    """Weigh a GGUF model by its header."""
    shape = parse_shape(gguf_file.config_of(header), where)
    stored = StoredWeights(files=1)
    types: dict[str, int] = {}
    for tensor in header.tensors:
        stored.add(tensor.name, tensor.stored_bytes, len(shape.layers), gguf=True)
        types[tensor.type_name] = types.get(tensor.type_name, 0) + tensor.stored_bytes
    weights = with_stored(weights_of_config(shape, UNQUANTIZED), stored, "GGUF")
    largest = sorted(types, key=lambda name: -types[name])[:4]
    note = f"GGUF types {', '.join(largest)}; arithmetic counted as bf16"
    kept = tuple(n for n in weights.notes if not n.startswith("files give"))
    return replace(weights, notes=(*kept, note))


def chosen_quantization(scheme: str, keep: tuple[str, ...] = ()) -> Quantization:
    """A quantisation as a user states it: every linear layer in `scheme`, except parts in `keep`.

    Raises:
        UsageError: An unknown scheme or part.
    """
    if scheme not in SCHEMES:
        raise UsageError(
            f"No weight format {clean(scheme, 40)!r}", hint=f"Known: {', '.join(SCHEMES)}."
        )
    ignored: list[str] = []
    for part in keep:
        if part not in KEPT_PARTS:
            raise UsageError(
                f"No part of a model is called {clean(part, 40)!r}",
                hint=f"Known: {', '.join(KEPT_PARTS)}.",
            )
        ignored += KEPT_PARTS[part]
    return Quantization("given", (Rule(SCHEMES[scheme]),), ("lm_head", *ignored))


def _not_found(name: str) -> UsageError:
    names = [known for model in shipped_models() for known in (model.name, *model.aliases)]
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), list(lower), n=4, cutoff=0.4)
    hint = f"Near it: {', '.join(lower[item] for item in near)}. " if near else ""
    return UsageError(
        f"No model {clean(name, 120)!r}: no such file or folder, and none shipped by that name",
        hint=hint + "`gpuroom roofline --list-models` names all; or give the model's folder.",
    )
