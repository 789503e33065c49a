"""Before a run: who answers, how prompts are made, whether there is room."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

from backends.bench import preflight, servermetrics
from backends.bench.endpoint import Endpoint, Fetch
from backends.bench.identify import Server, identify
from backends.bench.plan import Plan
from backends.bench.prompts import Requests, prepare
from backends.bench.results import Finding, Severity
from backends.bench.steps import StepSpec, unroll


@dataclass(slots=True)
class Prepared:
    """A run that is ready to start: what was found out before it."""

    plan: Plan
    endpoint: Endpoint
    server: Server
    requests: Requests
    steps: list[StepSpec]
    findings: list[Finding] = field(default_factory=list)


async def look(
    plan: Plan, fetch: Fetch, *, model: str | None = None, room: preflight.Room | None = None
) -> tuple[Server, list[StepSpec], list[Finding]]:
    """Ask the server what it is and how it is, and check the room. Raises RoomError.

    Args:
        plan: What will be offered.
        fetch: Asks the server.
        model: The name to ask for instead of the server's first.
        room: That of the machine that will send the load, this one unless given.
    """
    server = await identify(fetch)
    if model is not None:
        server = replace(server, model=model)
    findings: list[Finding] = []
    path = preflight.ready_path(server)
    if path is not None:
        reply = await fetch("GET", path, timeout_s=10.0)
        if not reply.ok:
            findings.append(preflight.not_ready(path, reply.status))
    sampler = servermetrics.Sampler(fetch, time.monotonic)
    if await sampler.once() is not None:
        await asyncio.sleep(1.0)
        await sampler.once()
    findings.extend(preflight.idle(sampler.readings, sampler.error))
    steps = unroll(plan)
    findings.extend(preflight.client_room(room or preflight.local_room(), steps))
    findings.extend(preflight.fits(plan, server))
    return server, steps, findings


async def prepare_run(
    plan: Plan,
    endpoint: Endpoint,
    fetch: Fetch,
    *,
    model: str | None = None,
    room: preflight.Room | None = None,
) -> Prepared:
    """Ask the server what it is, settle the prompts, check the room. Raises RoomError.

    `model` is the name to ask for instead of the server's first; `room` that of the machine that
    will send the load, this one unless given.
    """
    server, steps, findings = await look(plan, fetch, model=model, room=room)
    requests = await prepare(plan, server, fetch)
    findings.extend(
        Finding(key="requests", severity=Severity.INFO, text=note) for note in requests.notes
    )
    return Prepared(plan, endpoint, server, requests, steps, findings)
