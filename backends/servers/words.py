"""The patterns of an engine that every line of its log is compared with, made fast."""

from __future__ import annotations

import re
from typing import Final

from backends.servers.engines import Engine
from backends.servers.phrases import Phrases, split_alternatives

_USUAL_PREFIX: Final = (
    rb"(?:\x1b\[[\d;]{0,12}m|\([A-Za-z_][^()\n]{1,80}\) |INFO:\s{2,8}|"
    rb"INFO \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]{1,60}:\d+\] |"
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]\n]{0,24}\] |"
    rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}Z +|INFO [\w:]{1,40}: )*"
)


class Words:
    """All of them, by what a match means."""

    def __init__(self, engine: Engine) -> None:
        self.banner = Phrases(engine.banner)
        self.marks = Phrases(mark.pattern for mark in engine.marks)
        self.ready = Phrases(engine.ready)
        self.not_ready = Phrases(engine.not_ready)
        self.fatal = Phrases(engine.fatal)
        self.served = Phrases(engine.served)
        self.stop = Phrases(engine.stop.marks)
        self.waiting = Phrases(engine.waiting)
        self.advice = Phrases(advice.pattern for advice in engine.advice)
        self.serving_advice = Phrases(
            advice.pattern for advice in engine.advice if advice.while_serving
        )
        self.skim = _skim_pattern(engine)


def _skim_pattern(engine: Engine) -> re.Pattern[bytes] | None:
    """An engine's routine lines, on bytes and with the prefixes that they usually have."""
    if engine.routine is None:
        return None
    parts = [part.removeprefix("^") for part in split_alternatives(engine.routine.pattern)]
    return re.compile(_USUAL_PREFIX + b"(?:" + "|".join(parts).encode() + b")")
