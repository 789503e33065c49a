"""Starts whatever can tell the readings of a host, best first."""

from __future__ import annotations

from typing import Final

from backends.agent.bare import BareClient
from backends.agent.client import (
    AgentClient,
    NotificationHandler,
    PythonMissing,
    PythonTooOld,
    Source,
)
from backends.agent.smi import SmiClient
from backends.clock import Clock
from backends.errors import AgentError
from backends.link.base import Transport

START_S: Final = 20.0
"""A host under full load may take its time to start a python."""


async def start_source(
    transport: Transport, python: str, take: NotificationHandler, interval_s: float, clock: Clock
) -> Source:
    """Start the agent, or a streamed `nvidia-smi` where the host has no python for it.

    A Linux with neither (a hypervisor that passes its GPUs through) is still held, for its facts.

    Args:
        transport: A connected way to the host.
        python: The interpreter to use there.
        take: Is called with every notification.
        interval_s: Wanted between samples.
        clock: Of durations.

    Raises:
        AgentError: Neither can be started.
        LinkError: The link was lost meanwhile.
    """
    agent = AgentClient(
        transport,
        python=python,
        on_notification=take,
        clock=clock,
        settings={"interval_s": interval_s},
    )
    try:
        await agent.start(START_S)
    except (PythonMissing, PythonTooOld) as error:
        stream = SmiClient(transport, on_notification=take, clock=clock, interval_s=interval_s)
        try:
            await stream.start(START_S)
        except AgentError as second:
            await stream.close()
            bare = BareClient(transport, on_notification=take, clock=clock, interval_s=interval_s)
            try:
                await bare.start(START_S)
            except AgentError:
                await bare.close()
                raise AgentError(
                    error.title,
                    f"{error.detail}; and no nvidia-smi: {second}".lstrip("; "),
                    error.hint,
                ) from error
            return bare
        return stream
    return agent
