"""The engines, one module each, as data; and which of them wrote a log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from backends.servers.engines import (
    custom,
    llamacpp,
    ollama,
    sglang,
    tgi,
    transformers,
    trtllm,
    vllm,
)
from backends.servers.engines.base import (
    PHASE_ORDER,
    Advice,
    Endpoint,
    Engine,
    EngineId,
    Mark,
    Option,
    Phase,
)
from backends.servers.prefixes import without_collector

__all__ = [
    "ENGINES",
    "PHASE_ORDER",
    "Advice",
    "Endpoint",
    "Engine",
    "EngineGuess",
    "EngineId",
    "Mark",
    "Option",
    "Phase",
]

ENGINES: Final[Mapping[EngineId, Engine]] = MappingProxyType(
    {
        module.ENGINE.id: module.ENGINE
        for module in (sglang, vllm, llamacpp, trtllm, tgi, transformers, ollama, custom)
    }
)
_PROGRAM: Final = re.compile(
    r"(?:ollama|vllm|sglang|llama-server|trtllm-serve|text-generation-(?:launcher|router))(?=\[\d+\]$)"
)
"""The journal names the program itself: `ollama[812]`."""
_SURE: Final = 24
_LEAD: Final = 12
_MAX_LINES: Final = 20_000


class EngineGuess:
    """Adds up what the lines of a log say about who wrote it.

    A hint of weight 0 decides only where no other speaks.

    SGLang prints some of vLLM's lines, Ollama most of llama.cpp's: so no single phrase decides,
    but the sum of what each engine alone would print.
    """

    def __init__(self, known: EngineId | None = None) -> None:
        self._scores: dict[EngineId, int] = {}
        self._named: dict[EngineId, int] = {}
        self._lines = 0
        self._known = known

    @property
    def settled(self) -> bool:
        """Whether more lines would change nothing."""
        if self._known is not None or self._lines >= _MAX_LINES:
            return True
        ranked = sorted(self._scores.values(), reverse=True)
        return (
            bool(ranked)
            and ranked[0] >= _SURE
            and (len(ranked) == 1 or ranked[0] - ranked[1] >= _LEAD)
        )

    def look(self, text: str, message: str) -> None:
        """Take one line into account: whole, and without its prefixes."""
        self._lines += 1
        written, names = without_collector(text)
        program = _PROGRAM.match(names)
        said = (written, message, program[0] if program is not None else "")
        for engine in ENGINES.values():
            for hint in engine.hints:
                if any(hint.pattern.search(words) for words in said):
                    self._scores[engine.id] = self._scores.get(engine.id, 0) + hint.weight
                elif names and hint.pattern.search(names):
                    self._named[engine.id] = self._named.get(engine.id, 0) + 1

    @property
    def best(self) -> Engine:
        """The likeliest engine so far; custom where nothing points anywhere."""
        if self._known is not None:
            return ENGINES[self._known]
        # What a pod or a unit is called decides only where its program says nothing telling.
        scores = self._scores or self._named
        if not scores:
            return ENGINES[EngineId.CUSTOM]
        return ENGINES[max(scores, key=lambda engine: scores[engine])]
