"""What a roster knows of one server, and the picture of it that screens draw."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from backends.clock import Clock
from backends.servers.asked import named_model, named_port
from backends.servers.configuration import Comparison, compare, read_argv
from backends.servers.desk import ServerDesk
from backends.servers.engines import Phase
from backends.servers.launchers.base import Run
from backends.servers.lifecycle import OVER, Assessment
from backends.servers.profiles import Profile
from backends.servers.verdict import Verdict
from backends.servers.view import Doing, PhaseTime, ServerView, phase_times
from backends.servers.watch import ServerWatch
from backends.storage.starts import Start


@dataclass(slots=True)
class Server:
    """One server of a roster, which alone changes it."""

    key: str
    name: str
    profile: Profile | None = None
    run: Run | None = None
    watch: ServerWatch | None = None
    task: asyncio.Task[None] | None = None
    over: tuple[Assessment, Verdict] | None = None
    """How it ended, once that is settled; its watch has ended then."""
    doing: Doing | None = None
    step: str = ""
    left_over: tuple[str, ...] = ()
    earlier: tuple[Start, ...] = ()
    http_values: dict[str, str] = field(default_factory=dict)
    compared: tuple[int, tuple[Comparison, ...]] = (-1, ())
    error: str = ""


def view_of(
    server: Server, desk: ServerDesk, clock: Clock, *, whole: bool = False, listed: bool = True
) -> ServerView:
    """A server now.

    Args:
        server: What is known of it.
        desk: Of its host.
        clock: Tells how long its phase has lasted.
        whole: With its configuration, which costs more.
        listed: Whether the host has been asked what runs there.
    """
    run, watch, profile = server.run, server.watch, server.profile
    found: Assessment | None = None
    verdict: Verdict | None = None
    if server.over is not None:
        found, verdict = server.over
    elif watch is not None and watch.last_look is not None:
        found, verdict = watch.assessment, watch.verdict
    engine = desk.engine_of(run, profile) if run is not None else None
    if engine is None and profile is not None:
        engine = profile.engine
    argv = run.argv if run is not None else profile.command if profile is not None else ()
    port = run.port if run is not None else profile.port if profile is not None else None
    if port is None and engine is not None:
        port = named_port(engine, argv)
    now_s = clock.monotonic_s()
    silent = dict(watch.errors) if watch is not None and server.over is None else {}
    if server.error:
        silent["watch"] = server.error
    alive = watch is not None and found is not None and found.state not in OVER
    return ServerView(
        key=server.key,
        name=server.name,
        listed=listed,
        host=desk.host.name,
        engine=engine.id.value if engine is not None else "",
        profile=profile,
        run=run,
        found=found,
        verdict=verdict,
        now_s=now_s,
        up_s=watch.age_s if alive and watch is not None else None,
        phases=_phases(server, found, clock),
        members=watch.last_look.members if alive and watch and watch.last_look else (),
        port=port,
        model=named_model(engine, argv) if engine is not None else None,
        doing=server.doing,
        step=server.step,
        left_over=server.left_over,
        last_lines=watch.last_lines if watch is not None else (),
        complaints=watch.complaints if watch is not None else (),
        silent=silent,
        earlier=server.earlier,
        configuration=_configuration(server) if whole else (),
    )


def _phases(server: Server, found: Assessment | None, clock: Clock) -> tuple[PhaseTime, ...]:
    history: dict[Phase, list[float]] = {}
    for start in server.earlier:
        mine = server.run is not None and start.run_id == server.run.run_id
        if start.outcome == "ready" and not mine:
            for name, took_s in start.phases.items():
                if name in set(Phase):
                    history.setdefault(Phase(name), []).append(took_s)
    watch = server.watch
    if watch is None or found is None or not watch.from_start:
        now = found.phase if found is not None and _is_starting(found) else None
        since = watch.phase_since_s if watch is not None else None
        took = clock.monotonic_s() - since if now is not None and since else None
        return phase_times({}, history, now, took, found.progress if found else None)
    now = found.phase if _is_starting(found) else None
    since = watch.phase_since_s
    took = clock.monotonic_s() - since if since is not None else None
    return phase_times(watch.phases, history, now, took, found.progress)


def _is_starting(found: Assessment) -> bool:
    return not found.was_ready and found.state not in OVER


def _configuration(server: Server) -> tuple[Comparison, ...]:
    """Asked beside effective; made anew only where the log or an endpoint has said more."""
    run, watch = server.run, server.watch
    if run is None or watch is None:
        return ()
    values = {**watch.effective.merged, **server.http_values}
    if server.compared[0] != len(values):
        engine = watch.watched.engine
        argv = run.argv or (server.profile.command if server.profile is not None else ())
        rows = compare(engine, read_argv(engine, argv), values)
        server.compared = (len(values), tuple(rows))
    return server.compared[1]
