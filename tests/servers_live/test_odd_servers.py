"""Servers and operators that do what they should not: background, taken ports, killed waits."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from backends.servers.lifecycle import State
from backends.servers.report import cause_lines
from tests.servers_live.rooms import (
    DEADLINE_S,
    OF_THIS_RUN,
    Play,
    desk_of,
    is_state,
    members_alive,
    quick_profile,
)
from tests.servers_live.test_cut_off import configure, finished, gpuroom
from tests.servers_live.test_cut_sessions import heard
from tests.servers_live.test_half_done import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_state")]


async def test_a_server_that_goes_into_the_background_is_told_and_wholly_stopped() -> None:
    profile = quick_profile(f"daemon{OF_THIS_RUN}", "--daemon")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
        async with await desk.watch(run, profile) as watch:
            found = await watch.until(is_state(State.EXITED), DEADLINE_S)
            assert "1 process of it went on in the background" in found.why
        (pid,) = members_alive(run.run_id)
        assert os.getsid(pid) != run.pid, "it has left its session"
        found_ids = {finding.id for finding in await desk.check(profile)}
        assert {"earlier-left", "port-taken"} <= found_ids
        assert (await desk.stop(run, grace_s=0)).complete
        assert members_alive(run.run_id) == []
        assert await desk.check(profile) == []


async def test_a_port_that_is_taken_after_the_check_is_named_with_who_has_it() -> None:
    profile = quick_profile(f"taken{OF_THIS_RUN}")
    async with desk_of(profile) as desk:
        assert await desk.check(profile) == []
        with socket.create_server(("127.0.0.1", profile.port or 0)):
            run = await desk.start(profile)
            async with await desk.watch(run, profile) as watch:
                holder = f"the port is taken: {profile.port} by pid {os.getpid()} "
                found = await watch.until(lambda now: now.why.startswith(holder), DEADLINE_S)
                assert (found.state, found.cause) == (State.CRASHED, "port-in-use")
                assert cause_lines(found, watch.verdict)[0] == found.why


async def test_a_wait_that_is_killed_ends_nothing_and_the_next_one_sees_it_ready(
    tmp_path: Path,
) -> None:
    play = Play(tmp_path)
    play.now(say=["one"], answers={"/health": 503})
    profile = play.profile("custom", ready={"path": "/health"})
    configure(profile)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        try:
            waiting = gpuroom("wait-ready", profile.name)
            await heard(waiting, b"loading")
            waiting.send_signal(signal.SIGKILL)
            await finished(waiting)
            assert members_alive(run.run_id) == [run.pid]
            play.now(answers={"/health": 200})
            status, out, said = await finished(gpuroom("wait-ready", profile.name, "--json"))
            assert status == 0, said
            answer = json.loads(out)
            assert (answer["run_id"], answer["pid"], answer["state"]) == (
                run.run_id, run.pid, "ready",
            )  # fmt: skip
        finally:
            assert (await desk.stop(run, grace_s=1)).complete
