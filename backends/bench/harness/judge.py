"""What a tool's words and figures show of it: why it failed, whether to believe it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
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
    return f"sent {ended} requests at {rate:.3g}/s, and {step.rate_per_s:g}/s was asked for"


def miscounted(step: StepResult, warm_up: int, output_tokens: int, by_time: bool) -> str | None:
    """Whether a tool's output tokens are others than those that the server made meanwhile.

    Args:
        step: With the tool's count (`seen_output`) and the server's in its ledger.
        warm_up: Tokens that the tool asks for before it measures, and doesn't count.
        output_tokens: Of each answer: requests that failed or were cut off count for none with the
            tool, and for up to so many with the server.
        by_time: Whether time ended the step, with as many requests cut off as ran at once.
    """
    counted, made = step.ledger.seen_output, step.ledger.server_output
    if counted is None or made is None:
        return None
    loose = step.failed + step.cancelled
    if by_time:
        loose += max(step.concurrency or 0, step.max_in_flight)
    most = counted + warm_up + loose * output_tokens
    if counted * (1 - FOREIGN_SHARE) <= made <= most * (1 + FOREIGN_SHARE):
        return None
    text = f"counted {counted} output tokens"
    if made > most and most > counted:
        text += f" (and {most - counted} at most beside what it measured)"
    text += f", the server's own counters {made}"
    if made > most:
        return text + ": it miscounts, or somebody else used the server"
    return text + ": it miscounts"
