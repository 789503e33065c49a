"""What a model weighs, by module: parameters, bytes stored, bytes read for a token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from backends.bench.model_shape import ModelShape
from backends.bench.model_tensors import NOT_READ, Module, Tensor, TensorPlan
from backends.bench.quantization import Arithmetic, Quantization
from backends.bench.weight_files import StoredWeights


@dataclass(frozen=True, slots=True)
class ModuleWeights:
    """One kind of module, over all layers."""

    module: Module
    parameters: int
    """Stored; of a tied head 0, as its table is the embedding's."""
    active_parameters: float
    """That one token passes through; the embedding, of which a row is read, counts 0."""
    stored_bytes: float
    full_bytes: float
    """Read for a step that needs all of the module (of routed experts: every expert)."""
    schemes: tuple[str, ...]
    by_arithmetic: tuple[tuple[Arithmetic, float], ...]
    """Active parameters by what they are multiplied in."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's weights."""

    shape: ModelShape
    modules: tuple[ModuleWeights, ...]
    source: str
    """Where the bytes come from, in words."""
    notes: tuple[str, ...] = ()
    kv_cache: str = ""
    """Type of the KV cache that the checkpoint asks for; empty where it doesn't."""

    @property
    def total_parameters(self) -> int:
        """Without multi-token-prediction layers, as models are named after."""
        return sum(m.parameters for m in self.modules if m.module is not Module.PREDICTION)

    @property
    def active_parameters(self) -> float:
        """That one token passes through."""
        return sum(m.active_parameters for m in self.modules)

    @property
    def stored_bytes(self) -> float:
        """All that lies in memory, without multi-token-prediction and vision parts."""
        left_out = (Module.PREDICTION, Module.VISION)
        return sum(m.stored_bytes for m in self.modules if m.module not in left_out)

    def distinct_experts(self, tokens: float) -> float:
        """Expected number of a layer's experts that a step of `tokens` tokens reads.

        E (1 - (1 - k/E)^B): each token picks k of E at random, independently.
        """
        mixture = self.shape.mixture
        if mixture is None:
            return 0.0
        share = mixture.experts_per_token / mixture.experts
        return float(mixture.experts * (1 - (1 - share) ** tokens))

    def read_bytes(self, module: ModuleWeights, tokens: float = 1) -> float:
        """Bytes of `module` read for one step of `tokens` tokens, all cards together."""
        if module.module is not Module.ROUTED or self.shape.mixture is None:
            return module.full_bytes
        return module.full_bytes * self.distinct_experts(tokens) / self.shape.mixture.experts

    def step_bytes(self, tokens: float = 1) -> float:
        """Bytes read for one step of `tokens` tokens, each once."""
        return sum(self.read_bytes(module, tokens) for module in self.modules)


def weights_of_config(shape: ModelShape, quantization: Quantization) -> Weights:
    """Weigh a model by its configuration alone."""
    tensors = list(TensorPlan(shape, quantization).all())
    modules = tuple(
        _module(shape, kind, [tensor for tensor in tensors if tensor.module is kind])
        for kind in Module
        if any(tensor.module is kind for tensor in tensors) or (kind is Module.HEAD and shape.tied)
    )
    if shape.tied:
        table = next(m for m in modules if m.module is Module.EMBEDDING)
        modules = tuple(
            replace(
                table,
                module=Module.HEAD,
                parameters=0,
                stored_bytes=0.0,
                full_bytes=table.stored_bytes,
                active_parameters=float(table.parameters),
                by_arithmetic=((Arithmetic.BF16, float(table.parameters)),),
            )
            if m.module is Module.HEAD
            else m
            for m in modules
        )
    source = "config.json: shapes x bytes per parameter"
    return Weights(shape, modules, source, kv_cache=quantization.kv_cache)


def _module(shape: ModelShape, kind: Module, tensors: Iterable[Tensor]) -> ModuleWeights:
    share = 1.0
    if kind in NOT_READ:
        share = 0.0
    elif kind is Module.ROUTED and shape.mixture is not None:
        share = shape.mixture.experts_per_token / shape.mixture.experts
    parameters = 0
    stored = 0.0
    schemes: dict[str, None] = {}
    arithmetic: dict[Arithmetic, float] = {}
    for tensor in tensors:
        parameters += tensor.parameters
        stored += tensor.stored_bytes
        schemes[tensor.scheme.name] = None
        kind_of = tensor.scheme.arithmetic
        arithmetic[kind_of] = arithmetic.get(kind_of, 0.0) + tensor.parameters * share
    return ModuleWeights(
        kind,
        parameters,
        parameters * share,
        stored,
        0.0 if kind in NOT_READ else stored,
        tuple(schemes),
        tuple(arithmetic.items()),
    )


def with_stored(weights: Weights, stored: StoredWeights, what: str = "safetensors") -> Weights:
    """The same model with the bytes that its files really have.

    Parameters stay those of the configuration, since packed integers hide theirs. Where files are
    missing the configuration's bytes are kept and a note says so.
    """
    if stored.missing:
        note = f"{len(stored.missing)} weight files are missing: sizes are those of config.json"
        return replace(weights, notes=(*weights.notes, note))
    notes = list(weights.notes)
    held = stored.bytes_by_module
    known = {module.module for module in weights.modules}
    modules = [_restored(module, held) for module in weights.modules]
    for kind, count in held.items():
        if kind not in known:
            read = 0.0 if kind in NOT_READ else float(count)
            modules.append(ModuleWeights(kind, 0, 0.0, float(count), read, (), ()))
    if stored.unknown:
        notes.append(
            f"tensors of unknown use, counted as read with each token: {', '.join(stored.unknown)}"
        )
    total = stored.index_bytes
    if total is not None and abs(total - stored.total_bytes) > 0.001 * max(total, 1):
        notes.append(f"the index says {total} bytes, the headers add up to {stored.total_bytes}")
    difference = _difference(weights, modules)
    if difference is not None:
        notes.append(difference)
    source = f"headers of {stored.files} {what} file{'s' if stored.files != 1 else ''}"
    return replace(weights, modules=tuple(modules), source=source, notes=tuple(notes))


def _restored(module: ModuleWeights, held: dict[Module, int]) -> ModuleWeights:
    count = float(held.get(module.module, 0))
    if module.module is Module.HEAD and not count:
        # Tied: the embedding table is read in full.
        return replace(module, stored_bytes=0.0, full_bytes=float(held.get(Module.EMBEDDING, 0)))
    read = 0.0 if module.module in NOT_READ else count
    return replace(module, stored_bytes=count, full_bytes=read)


def _difference(weights: Weights, modules: list[ModuleWeights]) -> str | None:
    """A note where files and configuration disagree by more than a tenth: one of them misleads."""
    by_config = weights.step_bytes()
    by_files = Weights(weights.shape, tuple(modules), "").step_bytes()
    if by_config and abs(by_files / by_config - 1) > 0.1:
        return (
            f"files give {by_files / 1e9:.2f} GB a token, config.json {by_config / 1e9:.2f} GB: "
            "the files are believed"
        )
    return None
