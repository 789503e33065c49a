"""From records of requests to the figures of a step.

Definitions are those of `docs/bench.md`; nothing here does I/O. Latencies are of the requests
that were sent while measuring and succeeded; rates are of the tokens that arrived in the window,
whichever request they belong to.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from backends.bench import request_figures as figures
from backends.bench.client_ledger import ClientLedger
from backends.bench.request_record import RequestRecord
from backends.bench.results import (
    Goodput,
    StepResult,
    Throughput,
    TimeBlock,
    TokenSource,
)
from backends.bench.summaries import counted_summary, percentile, summary

BIN_S: Final = 0.01
"""Tokens are counted in bins of this width; windows begin and end on their edges."""
MAX_BLOCKS: Final = 30
MIN_BLOCK_S: Final = 1.0
_SOURCES: Final = (TokenSource.USAGE, TokenSource.IDS, TokenSource.EVENTS)


class StepMetrics:
    """Gathers the records of one step and gives its figures.

    Memory grows by some 150 bytes a request, and by nothing for a token.

    Attributes:
        all_output_tokens: Of every request, whatever its phase and its end.
        cut_short: Some request ended before its answer did, so the server may have made tokens
            that nobody received.
    """

    def __init__(
        self, *, closed: bool, goodput_limits_s: Mapping[str, float] | None = None
    ) -> None:
        self._closed = closed
        self._limits = dict(goodput_limits_s or {})
        self._gaps_us: Counter[int] = Counter()
        self._itl_us: Counter[int] = Counter()
        self._itl_known = True
        self._bins: dict[int, float] = defaultdict(float)
        self._partial: dict[int, float] = defaultdict(float)
        self._failures: Counter[str] = Counter()
        self._series: dict[str, array[float]] = {
            name: array("d")
            for name in (
                "connect",
                "queue",
                "ttfb",
                "ttft",
                "ttfa",
                "tpot",
                "e2e",
                "e2e_due",
                "input",
                "output",
            )
        }
        # Of every request that succeeded, whatever its phase: first token, end, lengths, latencies.
        self._done: list[tuple[float, float, int, int, float | None, float | None, float]] = []
        self._slots: dict[tuple[int, int], tuple[float, float]] = {}
        self.all_output_tokens = 0
        self.cut_short = False
        self._sent = self._cancelled = self._failed = self._succeeded = self._good = 0
        self._events = self._event_tokens = self._full_events = self._merged = 0
        self._reasoning: int | None = None
        self._worst = -1
        self._ledger = ClientLedger()
        self._first_sent = math.inf
        self._last_byte = -math.inf
        self._last_measured_sent = -math.inf
        self._first_measured_sent = math.inf
        self._clocks: set[str] = set()

    @property
    def merged_share(self) -> float | None:
        """Of the token events of streams read in full, those that shared a read."""
        return self._merged / self._full_events if self._full_events else None

    @property
    def clocks(self) -> frozenset[str]:
        """Every receive clock that was used."""
        return frozenset(self._clocks)

    def add(self, record: RequestRecord) -> None:
        """Take a record."""
        self._clocks.add(record.clock)
        self.all_output_tokens += record.output_tokens or record.events
        self.cut_short = self.cut_short or not record.ok
        self._arrivals(record)
        if record.sent_s is not None:
            self._first_sent = min(self._first_sent, record.sent_s)
        self._last_byte = max(self._last_byte, record.last_token_s or record.end_s)
        if record.slot is not None:
            key = (record.worker, record.slot)
            ready = record.first_token_s or record.end_s
            known = self._slots.get(key)
            self._slots[key] = (
                min(known[0], ready) if known else ready,
                max(known[1], record.end_s) if known else record.end_s,
            )
        if record.ok:
            inputs = record.asked_input if record.input_tokens is None else record.input_tokens
            self._done.append(
                (
                    record.first_token_s or record.end_s,
                    record.last_token_s or record.end_s,
                    inputs or 0,
                    record.output_tokens or 0,
                    figures.ttft(record),
                    figures.tpot(record),
                    figures.e2e(record),
                )
            )
        if record.phase == "measure":
            self._measured(record)

    def _arrivals(self, record: RequestRecord) -> None:
        """Tokens into bins, by when they arrived; an answer in one piece arrives at its end."""
        tokens = record.output_tokens or 0
        if not tokens:
            return
        bins = self._bins if record.ok else self._partial
        if record.first_token_s is None:
            bins[int((record.last_token_s or record.end_s) / BIN_S)] += tokens
            return
        shares = figures.arrival_tokens(record)
        at_us = round(record.first_token_s * 1e6)
        width = round(BIN_S * 1e6)
        bins[at_us // width] += shares[0]
        for gap, share in zip(record.gaps_us, shares[1:], strict=True):
            if record.drained and gap > width:
                # Read late on purpose: its tokens came some time since the last read.
                steps = -(-gap // width)
                for part in range(steps):
                    bins[(at_us + gap * (part + 1) // steps) // width] += share / steps
            else:
                bins[(at_us + gap) // width] += share
            at_us += gap

    def _measured(self, record: RequestRecord) -> None:
        self._sent += 1
        if record.sent_s is not None:
            self._first_measured_sent = min(self._first_measured_sent, record.sent_s)
            self._last_measured_sent = max(self._last_measured_sent, record.sent_s)
        if record.cancelled:
            self._cancelled += 1
            return
        if not record.ok:
            self._failed += 1
            self._failures[record.failure or "protocol"] += 1
            return
        self._succeeded += 1
        assert record.sent_s is not None
        series = self._series
        ttft, token_s, e2e = figures.ttft(record), figures.tpot(record), figures.e2e(record)
        series["e2e"].append(e2e)
        if ttft is not None:
            series["ttft"].append(ttft)
        if token_s is not None:
            series["tpot"].append(token_s)
        if record.connect_s is not None:
            series["connect"].append(record.connect_s)
        if record.first_byte_s is not None:
            # The answer may begin before `send` has returned.
            series["ttfb"].append(max(0.0, record.first_byte_s - record.sent_s))
        if record.first_answer_s is not None:
            series["ttfa"].append(record.first_answer_s - record.sent_s)
        if not self._closed:
            series["queue"].append(record.sent_s - record.due_s)
            series["e2e_due"].append(e2e + record.sent_s - record.due_s)
        if record.input_tokens is not None:
            series["input"].append(record.input_tokens)
        if record.output_tokens is not None:
            series["output"].append(record.output_tokens)
        if not record.drained and record.gaps_us:
            self._gaps_us.update(record.gaps_us)
            if record.tokens_known:
                shares = record.arrival_tokens or (1,) * (len(record.gaps_us) + 1)
                since = 0
                for gap, share in zip(record.gaps_us, shares[1:], strict=True):
                    since += gap
                    if share:  # an event without a token is on the way to the next
                        self._itl_us[round(since / share)] += share
                        since = 0
            else:
                self._itl_known = False
        if not record.drained:
            self._full_events += record.events
            self._merged += record.merged
        self._events += record.events
        self._event_tokens += record.output_tokens or 0
        if record.reasoning_tokens is not None:
            self._reasoning = (self._reasoning or 0) + record.reasoning_tokens
        if record.source is not None:
            self._worst = max(self._worst, _SOURCES.index(record.source))
        self._ledger.add(record)
        if self._limits and self._meets(record, ttft, token_s, e2e):
            self._good += 1

    def _meets(
        self, record: RequestRecord, ttft: float | None, token_s: float | None, e2e: float
    ) -> bool:
        values = {
            "ttft": ttft,
            "tpot": token_s,
            "e2e": e2e,
            "gap_max": max(record.gaps_us) / 1e6 if record.gaps_us else None,
        }
        # What an answer of one token cannot have (tpot, gaps) it cannot fail either.
        return all(
            (value := values[name]) is None or value <= limit
            for name, limit in self._limits.items()
        )

    # --- windows --------------------------------------------------------------------------

    def steady_window(self, measure_s: float, warmed: bool) -> tuple[float, float] | None:
        """When all slots were busy, on bin edges; None when there was no such time.

        A closed loop: from the beginning of measuring, or, without a warm-up, from when every
        slot has had its first token; until the first slot has nothing more to send. An open
        loop: from the beginning of measuring to the last request sent.
        """
        if self._closed:
            if not self._slots:
                return None
            start = measure_s
            if not warmed:
                start = max(first for first, _ in self._slots.values())
            end = min(last for _, last in self._slots.values())
        else:
            start = measure_s
            end = self._last_measured_sent
        if not math.isfinite(end):
            return None
        start = math.ceil(start / BIN_S - 1e-6) * BIN_S
        end = math.floor(end / BIN_S + 1e-6) * BIN_S
        return (start, end) if end - start >= 2 * BIN_S else None

    def throughput(self, start_s: float, end_s: float) -> Throughput:
        """Rates of what succeeded between two times.

        Output tokens count where they arrived; input tokens where the prompt was done, at the
        first token; a request where it ended.
        """
        seconds = max(end_s - start_s, 1e-9)
        first, last = round(start_s / BIN_S), round(end_s / BIN_S)
        output = round(sum(n for place, n in self._bins.items() if first <= place < last))
        requests = sum(1 for done in self._done if start_s <= done[1] < end_s)
        inputs = sum(done[2] for done in self._done if start_s <= done[0] < end_s)
        return Throughput(
            start_s=round(start_s, 6),
            end_s=round(end_s, 6),
            requests=requests,
            input_tokens=inputs,
            output_tokens=output,
            requests_per_s=requests / seconds,
            output_tokens_per_s=output / seconds,
            total_tokens_per_s=(inputs + output) / seconds,
        )

    def blocks(self, start_s: float, end_s: float) -> tuple[TimeBlock, ...]:
        """The steady window in slices of equal width, at least a second each."""
        count = int(min(MAX_BLOCKS, (end_s - start_s) / MIN_BLOCK_S))
        if count < 2:
            return ()
        edges = [round((start_s + (end_s - start_s) * i / count) / BIN_S) for i in range(count + 1)]
        tokens = [0.0] * count
        inputs = [0] * count
        ended: list[list[tuple[float | None, float | None, float]]] = [[] for _ in range(count)]
        width = (edges[-1] - edges[0]) / count

        def block_of(place: float) -> int | None:
            if not edges[0] <= place < edges[-1]:
                return None
            guess = min(int((place - edges[0]) / width), count - 1)
            if place < edges[guess]:
                return guess - 1
            return guess + 1 if place >= edges[guess + 1] else guess

        for place, amount in self._bins.items():
            if (block := block_of(place)) is not None:
                tokens[block] += amount
        for first, last, input_tokens, _, ttft, token_s, e2e in self._done:
            if (block := block_of(first / BIN_S)) is not None:
                inputs[block] += input_tokens
            if (block := block_of(last / BIN_S)) is not None:
                ended[block].append((ttft, token_s, e2e))
        return tuple(
            TimeBlock(
                start_s=round(edges[i] * BIN_S, 6),
                end_s=round(edges[i + 1] * BIN_S, 6),
                requests=len(ended[i]),
                input_tokens=inputs[i],
                output_tokens=round(tokens[i]),
                ttft_s=_mean(row[0] for row in ended[i]),
                ttft_p99_s=_p99([row[0] for row in ended[i] if row[0] is not None]),
                tpot_s=_mean(row[1] for row in ended[i]),
                e2e_s=_mean(row[2] for row in ended[i]),
            )
            for i in range(count)
        )

    def result(self, step: StepResult, measure_s: float, warmed: bool) -> StepResult:
        """`step` with every figure that comes from the records."""
        series = self._series
        window = self.steady_window(measure_s, warmed)
        whole = None
        if self._done and self._last_byte > self._first_sent:
            whole = self.throughput(self._first_sent, self._last_byte + BIN_S)
            seconds = self._last_byte - self._first_sent
            whole = msgspec.structs.replace(
                whole,
                end_s=round(self._last_byte, 6),
                requests_per_s=whole.requests / seconds,
                output_tokens_per_s=whole.output_tokens / seconds,
                total_tokens_per_s=(whole.input_tokens + whole.output_tokens) / seconds,
            )
        goodput = None
        if self._limits:
            span = max(self._last_byte - self._first_measured_sent, 1e-9)
            goodput = Goodput(
                limits_s=self._limits,
                good=self._good,
                of=self._succeeded + self._failed,
                requests_per_s=self._good / span if self._good else 0.0,
            )
        return msgspec.structs.replace(
            step,
            sent=self._sent,
            succeeded=self._succeeded,
            failed=self._failed,
            cancelled=self._cancelled,
            failures=dict(self._failures),
            steady=self.throughput(*window) if window else None,
            whole=whole,
            goodput=goodput,
            connect_s=summary(series["connect"]),
            queue_s=summary(series["queue"]),
            ttfb_s=summary(series["ttfb"]),
            ttft_s=summary(series["ttft"]),
            ttfa_s=summary(series["ttfa"]),
            gap_s=counted_summary(self._gaps_us, 1e-6),
            itl_s=counted_summary(self._itl_us, 1e-6) if self._itl_known else None,
            tpot_s=summary(series["tpot"]),
            e2e_s=summary(series["e2e"]),
            e2e_due_s=summary(series["e2e_due"]),
            input_length=summary(series["input"]),
            output_length=summary(series["output"]),
            reasoning_tokens=self._reasoning,
            token_source=_SOURCES[self._worst] if self._worst >= 0 else None,
            events=self._events,
            tokens_per_event=self._event_tokens / self._events if self._events else None,
            blocks=self.blocks(*window) if window else (),
            ledger=self._ledger.result(),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _p99(values: list[float]) -> float | None:
    return percentile(sorted(values), 0.99) if values else None
