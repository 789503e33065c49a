"""What goes on around a run: the server's own metrics and the host's GPUs, step by step."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from backends.bench import servermetrics
from backends.bench.bound import what_bound
from backends.bench.endpoint import Fetch
from backends.bench.gpuwindow import GpuSampler, energy_source, joules_per_token
from backends.bench.identify import FLUSH
from backends.bench.results import GpuWindow, StepResult
from backends.errors import RoomError

SETTLE_S: Final = 0.3
"""What server and driver get to bring their counters up to date."""


class Surroundings:
    """Samples through a run; told when its clock and its steps begin and end.

    Args:
        fetch: Asks the server.
        gpus: Watches the GPUs of its host; None where they are out of sight.
    """

    def __init__(self, fetch: Fetch, gpus: GpuSampler | None = None) -> None:
        self._fetch = fetch
        self._gpus = gpus
        self._sampler = servermetrics.Sampler(fetch, time.monotonic)
        self._began_s = time.monotonic()
        self._quiet: servermetrics.Reading | None = None
        self._after: servermetrics.Reading | None = None

    def start(self) -> None:
        """Begin to sample, in tasks that `stop` ends."""
        self._sampler.start()
        if self._gpus is not None:
            self._gpus.start()

    async def stop(self) -> None:
        """End all sampling."""
        await self._sampler.stop()
        if self._gpus is not None:
            await self._gpus.stop()

    def begin(self) -> None:
        """Second 0 of the run is now."""
        self._began_s = time.monotonic()

    async def edge(self) -> None:
        """What is measured begins or ends."""
        if self._gpus is not None:
            await self._gpus.edge()

    async def before_step(self) -> None:
        """Nothing of the run is in flight: the counters' state before a step."""
        self._quiet = await self._sampler.once()

    async def after_step(self) -> None:
        """Nothing is in flight any more: the counters' state after it."""
        self._after = None
        if self._quiet is not None or self._gpus is not None:
            await asyncio.sleep(SETTLE_S)
        if self._quiet is not None:
            self._after = await self._sampler.once()

    async def flush(self, engine: str) -> str:
        """Empty the server's prefix cache, where it can be; why it was not, in words."""
        flush = FLUSH.get(engine)
        if flush is None:
            return ""
        try:
            reply = await self._fetch(*flush, timeout_s=30.0)
        except RoomError as error:
            return str(error)
        return "" if reply.ok else f"{flush[1]} answers with {reply.status}"

    def with_server(
        self, result: StepResult, start_s: float, end_s: float, ours: float | None
    ) -> StepResult:
        """The step with the server's own metrics, and the ledger's third column.

        `ours` is every output token that any request of the step received, warm-up and failures
        included: what the server counts beyond that is somebody else's. None says nothing of it.
        """
        ledger = result.ledger
        if self._quiet is not None and self._after is not None:
            pair = (self._quiet, self._after)
            made = servermetrics.difference(pair, "output_tokens")
            read = servermetrics.difference(pair, "input_tokens")
            surplus = None
            if made is not None and ours is not None:
                surplus = max(0.0, made - ours) / made if made else 0.0
            ledger = msgspec.structs.replace(
                ledger,
                server_input=None if read is None else round(read),
                server_output=None if made is None else round(made),
                foreign_output_share=surplus,
            )
        window = servermetrics.window(
            self._sampler.between(self._began_s + start_s, self._began_s + end_s)
        )
        return msgspec.structs.replace(result, ledger=ledger, server=window)

    def with_gpus(self, result: StepResult) -> StepResult:
        """The step with what the GPUs did in its window, and what bound the server."""
        rates = result.steady or result.whole
        if rates is None:
            return result
        gpus: tuple[GpuWindow, ...] = ()
        if self._gpus is not None:
            gpus = self._gpus.between(self._began_s + rates.start_s, self._began_s + rates.end_s)
        found = what_bound(
            result.server,
            gpus,
            rates.end_s - rates.start_s,
            open_loop=result.rate_per_s is not None,
            has_metrics=self._quiet is not None,
        )
        return msgspec.structs.replace(
            result,
            gpus=gpus,
            joules_per_output_token=joules_per_token(gpus, rates.output_tokens),
            joules_per_total_token=joules_per_token(gpus, rates.input_tokens + rates.output_tokens),
            energy_source=energy_source(gpus),
            bound=found.word,
            bound_evidence=found.evidence,
        )
