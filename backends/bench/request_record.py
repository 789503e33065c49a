"""One request of a run, as the generator writes it and the sample files keep it."""

from __future__ import annotations

import msgspec

from backends.bench.results import Failure, ReceiveClock, TokenSource


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, as the generator writes it: a line of the sample file.

    Times are seconds since the run began, on the receive clock. Arrivals are the reads that
    carried at least one token event: the first is `first_token_s`, each later one follows its
    neighbour by `gaps_us`.
    """

    step: int
    """Position in the plan's list of steps as run, repetitions unrolled."""
    id: int
    phase: str = "measure"
    """`warmup`, `measure` or `cooldown`."""
    worker: int = 0
    slot: int | None = None
    kind: str | None = None
    """Which part of a mix."""
    due_s: float
    connect_s: float | None = None
    """How long opening took, if a connection was opened for this request."""
    sent_s: float | None = None
    first_byte_s: float | None = None
    first_token_s: float | None = None
    first_answer_s: float | None = None
    last_token_s: float | None = None
    end_s: float
    status: int | None = None
    ok: bool = False
    cancelled: bool = False
    failure: Failure | None = None
    detail: str = ""
    finish: str | None = None
    asked_input: int | None = None
    asked_output: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    source: TokenSource | None = None
    events: int = 0
    """Token-carrying events."""
    merged: int = 0
    """Of these, how many shared an arrival with an earlier one."""
    first_tokens: int | None = None
    """Tokens of the first arrival, where known."""
    gaps_us: tuple[int, ...] = ()
    arrival_tokens: tuple[int, ...] | None = None
    """Tokens of each arrival; None when it was one each."""
    tokens_known: bool = False
    """Whether the tokens of each event are known and not shared out."""
    drained: bool = False
    """Not read event by event: gaps say when it was read, not when tokens came."""
    clock: ReceiveClock = ReceiveClock.KERNEL
    retried: bool = False
    """Sent again because the server had closed the idle connection."""
    server_ttft_s: float | None = None
    """The server's own figures, where its answer carries them."""
    server_tpot_s: float | None = None
