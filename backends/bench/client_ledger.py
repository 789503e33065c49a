"""The client's side of a step's ledger of tokens: asked, reported by `usage`, seen in events."""

from __future__ import annotations

from collections import Counter

from backends.bench.request_record import RequestRecord
from backends.bench.results import TokenLedger, TokenSource


class ClientLedger:
    """Counts the tokens of requests that succeeded while measuring."""

    def __init__(self) -> None:
        self._usage = Counter[str]()
        self._any = False
        self._missing = False
        self._unasked = False

    def add(self, record: RequestRecord) -> None:
        """Count a request that succeeded."""
        self._any = True
        if record.asked_input is None:
            self._unasked = True
        self._usage["asked_input"] += record.asked_input or 0
        self._usage["asked_output"] += record.asked_output or 0
        self._usage["seen_output"] += (
            sum(record.arrival_tokens) if record.arrival_tokens else record.events
        )
        if record.source is TokenSource.USAGE and record.input_tokens is not None:
            self._usage["input"] += record.input_tokens
            self._usage["output"] += record.output_tokens or 0
        else:
            self._missing = True
        if record.cached_tokens is not None:
            self._usage["cached"] += record.cached_tokens
            self._usage["cached_known"] += 1

    def result(self) -> TokenLedger:
        """The client's side of the ledger: asked, reported by `usage`, seen in events."""
        if not self._any:
            return TokenLedger()
        usage = self._usage
        asked, got = usage["asked_input"], usage["input"]
        remarks = []
        if not (self._missing or self._unasked) and asked and abs(got - asked) > 0.01 * asked:
            remarks.append(f"{got} input tokens by usage, {asked} asked for")
        return TokenLedger(
            asked_input=None if self._unasked else usage["asked_input"],
            asked_output=usage["asked_output"],
            usage_input=None if self._missing else usage["input"],
            usage_output=None if self._missing else usage["output"],
            usage_cached_input=usage["cached"] if usage["cached_known"] else None,
            seen_output=usage["seen_output"],
            remarks=tuple(remarks),
        )
