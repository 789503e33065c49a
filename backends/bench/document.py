"""A run's document, put together from what was found before it and what was measured."""

from __future__ import annotations

import platform
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from backends.bench import planfile
from backends.bench.generator import VERSION
from backends.bench.messages import maybe, whole
from backends.bench.prepared import Prepared
from backends.bench.results import (
    ClientPlace,
    Environment,
    Finding,
    PlanEcho,
    RunResult,
    RunStatus,
    StepResult,
    Target,
)
from backends.text import clean


def new_run_id() -> str:
    """Sortable by time, and unique."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def document(
    prepared: Prepared,
    *,
    run_id: str,
    started: datetime,
    status: RunStatus,
    error: str | None,
    where: str,
    begin: Mapping[str, object],
    environment: Environment,
    profile: str | None,
    findings: Sequence[Finding],
    steps: Sequence[StepResult],
) -> RunResult:
    """The document; `begin` is what the generator said of itself first."""
    plan, server, requests = prepared.plan, prepared.server, prepared.requests
    if server.config and not environment.effective_config:
        environment = msgspec.structs.replace(
            environment, effective_config=server.config, effective_source="http"
        )
    return RunResult(
        run_id=run_id,
        started_utc=started,
        ended_utc=datetime.now(UTC),
        epoch_unix_s=maybe(begin.get("epoch_unix_s")),
        status=status,
        plan=PlanEcho(
            name=plan.name,
            toml=planfile.to_toml(plan),
            digest=planfile.digest(plan),
            seed=plan.seed,
            prompt_source=requests.source,
            workload_digest=requests.digest,
        ),
        target=Target(
            url=prepared.endpoint.url,
            engine=server.engine,
            engine_version=server.version,
            model=server.model,
            route=requests.route,
            streaming=plan.streaming,
            tls=prepared.endpoint.tls,
            profile=profile,
        ),
        client=_place(where, begin),
        environment=environment,
        findings=tuple(findings),
        steps=tuple(steps),
        error=error,
    )


def _place(where: str, begin: Mapping[str, object]) -> ClientPlace:
    room = begin.get("room")
    return ClientPlace(
        where=where,
        hostname=clean(str(begin.get("hostname") or socket.gethostname()), 200),
        python=clean(str(begin.get("python") or platform.python_version()), 50),
        generator=VERSION,
        cpus=whole(room.get("cpus")) or None if isinstance(room, dict) else None,
    )
