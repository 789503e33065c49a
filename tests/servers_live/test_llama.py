"""A real llama.cpp server through the desk: started, watched, killed, adopted, stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.model import Severity
from backends.servers.catalogue import load_catalogue
from backends.servers.configuration import Standing, compare, read_argv
from backends.servers.desk import ServerDesk
from backends.servers.launchers.base import ProfileBusy
from backends.servers.lifecycle import ANSWERING, OVER, State
from backends.servers.profiles import Profile
from backends.servers.report import server_data
from backends.servers.witnesses import PortOwner
from backends.storage.starts import StartHistory
from backends.tuning.gather import reached
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, llama_profile

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_state")]

from tests.servers_real import tiny_gguf  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


async def test_from_start_to_ready_to_stop(model: Path) -> None:
    profile = llama_profile(model)
    starts = StartHistory.at_home()
    async with desk_of(profile, starts=starts) as desk:
        assert await desk.check(profile) == []
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            found = await watch.until(is_state(*ANSWERING), DEADLINE_S)
            await desk.record(watch, found)
            assert watch.verdict.ready_line is not None
            assert watch.witnesses.port is not None
            assert watch.witnesses.port.owner is PortOwner.OURS
            assert found.disagreements == ()
            with pytest.raises(ProfileBusy, match="running already"):
                await desk.start(profile)
            watch.stop_asked()
            steps: list[str] = []
            result = await desk.stop(run, lambda step: steps.append(step.words))
            assert result.complete
            assert steps == ["SIGTERM to the main process"]
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
        (kept,) = starts.starts("here", profile.name)
        assert (kept.run_id, kept.outcome, kept.engine) == (run.run_id, "ready", "llamacpp")
    starts.close()


async def test_a_kill_is_a_crash_that_is_seen(model: Path) -> None:
    profile = llama_profile(model)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            assert run.pid is not None
            os.kill(run.pid, signal.SIGKILL)
            found = await watch.until(is_state(State.CRASHED), DEADLINE_S)
            assert found.exit_code == -signal.SIGKILL
            assert found.cause == "killed-no-message"


async def test_a_port_that_is_taken(model: Path) -> None:
    profile = llama_profile(model)
    with socket.create_server(("127.0.0.1", profile.port or 0)):
        async with desk_of(profile) as desk:
            (finding,) = [f for f in await desk.check(profile) if f.id == "port-taken"]
            assert finding.severity is Severity.CRITICAL
            assert f"pid {os.getpid()}" in finding.title
            run = await desk.start(profile)
            async with await desk.watch(run, profile) as watch:
                found = await watch.until(is_state(*OVER), DEADLINE_S)
                await watch.until(lambda now: now.cause is not None, DEADLINE_S)
                assert found.state in (State.CRASHED, State.EXITED)
                assert watch.assessment.cause == "port-in-use"
                assert watch.verdict.remedies


async def test_a_broken_model(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:40_000])
    profile = llama_profile(broken)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(lambda found: found.cause is not None, DEADLINE_S)
            assert "model" in watch.verdict.title.lower() or "file" in watch.verdict.title.lower()
        await desk.stop(run)


async def test_a_server_that_somebody_else_started(model: Path, tmp_path: Path) -> None:
    profile = llama_profile(model)
    log = tmp_path / "somebody.log"
    with log.open("wb") as file, _running(list(profile.command), file.fileno()) as pid:
        async with desk_of() as desk:
            run = await desk.adopt(pid)
            assert run.adopted
            assert run.log is not None
            assert run.log.path == str(log)
            async with await desk.watch(run, profile) as watch:
                await watch.until(is_state(*ANSWERING), DEADLINE_S)
            result = await desk.stop(run)
            assert result.complete
            assert not Path(f"/proc/{pid}/exe").exists()


async def test_what_was_asked_beside_what_runs(model: Path) -> None:
    profile = llama_profile(model)
    more = ("--ctx-size", "512", "--parallel", "2")
    command = (*profile.command, *more)
    profile = replace(profile, command=command)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            effective = await desk.effective(watch)
        rows = {
            r.name: r
            for r in compare(profile.engine, read_argv(profile.engine, command), effective)
        }
        assert rows["n_slots" if "n_slots" in rows else "parallel"].standing is Standing.SAME
        await desk.stop(run)


async def test_a_log_line_a_path_and_a_prompt_are_demanded_together(model: Path) -> None:
    ready = {"log": "listening", "path": "/v1/models", "code": 200, "prompt": "Say yes."}
    profile = llama_profile(model, ready=ready)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            assert watch.witnesses.log is not None
            assert watch.witnesses.log.pattern_seen
            assert watch.witnesses.completion is not None
            assert watch.witnesses.completion.ok
        never = replace(profile, ready=replace(profile.ready, path="/no/such/path"))
        async with await desk.watch(run, never) as watch:
            await watch.until(
                lambda found: any("404" in each.said for each in found.testimonies), DEADLINE_S
            )
            assert watch.assessment.state not in ANSWERING
        assert (await desk.stop(run)).complete


KEY = "sesame-open-7731"


async def test_a_server_that_wants_a_key_completes_the_prompt(model: Path, tmp_path: Path) -> None:
    profile = _with_key(model, env={"TINY_KEY": KEY}, api_key_env="TINY_KEY")
    here = HostConfig(name="here", target="local", python=sys.executable)
    async with RoomHub([here], Config()) as hub:
        await reached(hub.sessions[0], DEADLINE_S)
        desk = ServerDesk(hub.sessions[0], [profile], load_catalogue())
        run = await desk.start(profile)
        async with await desk.watch(run) as watch:
            found = await watch.until(is_state(*ANSWERING), DEADLINE_S)
            assert watch.witnesses.completion is not None
            assert watch.witnesses.completion.ok
            assert (await desk.effective(watch))["n_slots"] == "1", "/props wants the key, too"
            shown = json.dumps(server_data(watch, 0.0)) + repr(watch.watched) + repr(found)
        await desk.stop(run)
        asked = [entry.request for entry in hub.journal]
        assert any("/v1/completions" in request for request in asked)
        assert any('"authorization": "***"' in request for request in asked)
        assert KEY not in "".join(asked)
    assert KEY not in shown
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "id.json" for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


async def test_without_its_key_a_server_is_not_ready_and_the_way_out_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    profile = _with_key(model, api_key_env="NO_SUCH_KEY")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run) as watch:
            words = "HTTP answers well, while a completion fails"
            found = await watch.until(lambda found: words in found.disagreements, DEADLINE_S)
            assert found.state not in ANSWERING
            assert any("401" in e.said and "api_key_env" in e.said for e in found.testimonies)
        # The operator's own environment has it.
        monkeypatch.setenv("NO_SUCH_KEY", KEY)
        async with await desk.watch(run) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        # Without a word of the profile it is what the command gives to the server.
        async with await desk.watch(run, replace(profile, api_key_env=None)) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        await desk.stop(run)


def _with_key(model: Path, **more: object) -> Profile:
    profile = llama_profile(model, ready={"prompt": "Say yes."}, **more)
    return replace(profile, command=(*profile.command, "--api-key", KEY))


class _running:
    """A program, reaped at the end."""

    def __init__(self, command: list[str], log: int) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def __enter__(self) -> int:
        return self.process.pid

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
