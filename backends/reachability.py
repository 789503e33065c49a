"""Which hosts can be reached, all tried at once, within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from backends.clock import SYSTEM_CLOCK, Clock
from backends.config import Config, HostConfig
from backends.errors import RoomError
from backends.link.base import Prompter
from backends.link.limiter import Limiter
from backends.link.transports import transport_to
from backends.text import clean


@dataclass(frozen=True, slots=True)
class Reachability:
    """Whether one host could be reached.

    Attributes:
        host: Its name.
        address: Where it was looked for.
        reachable: It let us in.
        error: Why not; empty where it did.
        hint: What to do about that.
        took_s: How long it took to know.
    """

    host: str
    address: str
    reachable: bool
    error: str
    hint: str
    took_s: float


async def reach_all(
    hosts: Sequence[HostConfig],
    config: Config,
    prompter: Prompter,
    timeout_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Reachability]:
    """Connect to every host and let go again; the order stays."""
    limiter = Limiter()
    return await asyncio.gather(
        *(_reach(host, config, prompter, limiter, timeout_s, clock) for host in hosts)
    )


async def _reach(
    host: HostConfig,
    config: Config,
    prompter: Prompter,
    limiter: Limiter,
    timeout_s: float,
    clock: Clock,
) -> Reachability:
    began_s = clock.monotonic_s()
    error = hint = ""
    try:
        transport = transport_to(host, config.ssh, prompter, limiter)
        try:
            async with asyncio.timeout(timeout_s):
                await transport.connect()
        finally:
            await transport.close()
    except RoomError as failure:
        error, hint = str(failure), failure.hint
    except TimeoutError:
        error = f"no login within {timeout_s:g} s"
        hint = "The host is slow, or was waiting for an answer of yours; allow it more --timeout."
    except Exception as failure:
        # One host's trouble, whatever it is, must not hide the others.
        error = clean(f"{type(failure).__name__}: {failure}", 400)
    return Reachability(
        host.name, host.address, not error, error, hint, clock.monotonic_s() - began_s
    )
