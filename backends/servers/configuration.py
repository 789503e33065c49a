"""What was asked of a server beside what it says it runs with: what differs first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.servers.asked import MANY_VALUES, Asked, is_option, read_argv
from backends.servers.effective import MAX_VALUES, EffectiveReader, parse_fields, read_http
from backends.servers.engines import Engine, EngineId
from backends.servers.secretwords import MASK

__all__ = [
    "MANY_VALUES",
    "MASK",
    "MAX_VALUES",
    "Asked",
    "Comparison",
    "EffectiveReader",
    "Standing",
    "compare",
    "is_option",
    "parse_fields",
    "read_argv",
    "read_http",
]


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
        if have is None and engine.id is EngineId.LLAMACPP and name == "n_ctx":
            have = _of_slots(value, effective)
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
    if name == "n_ctx" and left.isdigit() and right.isdigit():
        return int(left) in (0, int(right)) or _padded(int(left)) == int(right)
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


_CONTEXT_STEP: Final = 256
"""llama.cpp rounds a context up to a multiple of this (`GGML_PAD` in llama-context.cpp)."""


def _padded(tokens: int) -> int:
    return -(-tokens // _CONTEXT_STEP) * _CONTEXT_STEP


def _of_slots(asked: str, effective: Mapping[str, str]) -> str | None:
    """The whole context that llama.cpp runs with, from a slot's share of it.

    The cache that `-c` asks for is divided among the slots (`-np`), unless it is unified: then
    each of them may have all of it.
    """
    share, slots = effective.get("n_ctx_slot", ""), effective.get("n_slots", "")
    if not share.isdigit():
        return None
    if not slots.isdigit() or int(slots) < 2 or not asked.isdigit():
        return share
    if _padded(int(asked)) == int(share) or _padded(int(asked) // int(slots)) == int(share):
        return asked
    return str(int(share) * int(slots))


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
