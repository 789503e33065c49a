"""What a tool's words and figures show of it: why it failed, whether to believe it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backends.bench.results import StepResult

FOREIGN_SHARE: Final = 0.01
"""How far a count of tokens may be from the server's own."""
_FINAL_WORD: Final = re.compile(
    r"(?:\([^)]{1,60}\)\s*)?"  # the process that speaks, as vLLM puts it before its lines
    r"((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Failure|Interrupt)(?:: \S.*)?"
    r"|\S{1,60}: error: \S.*)"
)


def final_word(line: str) -> str | None:
    """The end of a traceback, or a parser's complaint of its arguments, if a line is one."""
    found = _FINAL_WORD.fullmatch(line.strip())
    return found[1] if found else None


def why_failed(final: str | None, last: Iterable[str], error: str) -> str:
    """Why a tool ended as it did.

    Args:
        final: The newest `final_word` among its lines: what it prints behind (leaks, progress
            bars, warnings) would hide it.
        last: Its last lines.
        error: What the system said where it could not even be started.
    """
    return final or "; ".join(list(last)[-3:]) or error


def too_fast(step: StepResult) -> str | None:
    """Whether an open loop came faster than it was asked to, beyond what chance allows.

    Of n Poisson arrivals the time that they take varies by 1 / sqrt(n) of itself; four times that
    is let pass. Slower says nothing: a server that is late drags the end out.
    """
    ended = step.succeeded + step.failed
    seconds = step.whole.end_s - step.whole.start_s if step.whole is not None else 0.0
    if step.rate_per_s is None or ended < 2 or seconds <= 0:
        return None
    rate = ended / seconds
    if rate <= step.rate_per_s * (1 + 4 / math.sqrt(ended)):
        return None
    return (
        f"sent {ended} requests at {rate:.3g}/s, and {step.rate_per_s:g}/s was asked for: the "
        "figures are of another load"
    )


@dataclass(frozen=True, slots=True)
class Beside:
    """Tokens that a tool may have asked for beside what it counts.

    Attributes:
        input: Of prompts.
        output: Of answers.
    """

    input: int = 0
    output: int = 0


def beside(step: StepResult, warm_up: Beside, each: Beside, by_time: bool) -> Beside:
    """What a tool may have asked for beside what it counts.

    Args:
        step: Its requests that failed or were cut off count for none with the tool, and for up to
            a whole one with the server.
        warm_up: What it asks for before it measures.
        each: One request.
        by_time: Whether time ended the step, with as many requests cut off as ran at once.
    """
    loose = step.failed + step.cancelled
    if by_time:
        loose += max(step.concurrency or 0, step.max_in_flight)
    return Beside(warm_up.input + loose * each.input, warm_up.output + loose * each.output)


def output_miscounted(step: StepResult, more: Beside) -> str | None:
    """Whether the output tokens of a step are others than those that the server made meanwhile."""
    counted, made = step.ledger.seen_output, step.ledger.server_output
    if counted is None or made is None:
        return None
    most = counted + more.output
    if counted * (1 - FOREIGN_SHARE) <= made <= most * (1 + FOREIGN_SHARE):
        return None
    text = f"counted {counted} output tokens"
    if made > most > counted:
        text += f" (and {more.output} at most beside what it measured)"
    text += f", the server's own counters {made}: it miscounts"
    return text + (", or somebody else used the server" if made > most else "")


def input_miscounted(step: StepResult, more: Beside) -> str | None:
    """Whether the server read more input tokens than a tool says; less says nothing (caches)."""
    counted = step.whole.input_tokens if step.whole is not None else None
    read = step.ledger.server_input
    if counted is None or read is None:
        return None
    if read <= (counted + more.input) * (1 + FOREIGN_SHARE):
        return None
    return (
        f"counted {counted} input tokens, the server's own counters {read}: its tokenizer is not "
        "the model's, a chat template came on top, or somebody else used the server; what it says "
        "of input + output is too little"
    )
