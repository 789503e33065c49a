"""Containers: named ones, ones that a command makes, ones that somebody else started."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import AgentError
from backends.servers.desk import operator, origin
from backends.servers.launchers.base import LaunchError, ProfileBusy, Run
from backends.servers.launchers.containerfacts import Container, asks_for_gpus, epoch, parse
from backends.servers.lifecycle import ANSWERING, State
from backends.servers.profiles import Profile
from tests.servers_live import gpus
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, quick_profile

FAKE = Path(__file__).with_name("fake_docker.py")


class Docker:
    """The fake one, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def make(self, name: str, argv: list[str] | tuple[str, ...], **more: object) -> None:
        """A container that exists and was never started."""
        (self.folder / f"{name}.json").write_text(json.dumps({"argv": list(argv), "more": more}))


@pytest.fixture(params=["docker", "podman"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Docker:
    folder, programs = tmp_path / "docker", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    program = programs / kind
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Docker(folder)


def boxed(kind: str, *command: str, **more: object) -> Profile:
    """A profile whose server runs in the container `box`."""
    return quick_profile("served", launcher=kind, unit="box", **more)


async def test_a_named_container_is_started_watched_and_stopped(docker: Docker, kind: str) -> None:
    profile = boxed(kind)
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as desk:
        assert await desk.check(profile) == []
        planned = [list(argv) for argv in (await desk.plan(profile)).commands]
        assert planned == [[kind, "start", "box"]]
        assert planned[0] not in docker.calls
        run = await desk.start(profile)
        assert planned[0] in docker.calls
        assert await desk.stop_commands(run) == ((kind, "stop", "--time=30", "box"),)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            with pytest.raises(ProfileBusy):
                await desk.start(profile)
            assert "earlier-run" in [finding.id for finding in await desk.check(profile)]
            assert run.log is not None
            assert run.log.argv[:3] == (kind, "logs", "--follow")
            watch.stop_asked()
            assert (await desk.stop(run, grace_s=7)).complete
            assert [kind, "stop", "--time=7", "box"] in docker.calls
            await watch.until(is_state(State.STOPPED), DEADLINE_S)


async def test_a_container_is_made_by_the_profiles_own_command(docker: Docker, kind: str) -> None:
    inner = quick_profile("inner")
    made = [kind, "run", "-d", "--rm", "--name", "other", "--gpus", "all", "image", *inner.command]
    profile = quick_profile("served", launcher=kind)
    profile = type(profile)(
        name="served", host="here", engine=profile.engine, command=tuple(made), port=inner.port,
        launcher=profile.launcher, unit="box", ready=profile.ready,
    )  # fmt: skip
    async with desk_of(profile) as desk:
        plan = await desk.plan(profile)
        run = await desk.start(profile)
        (asked,) = [call for call in docker.calls if call[1] == "run"]
        head = [kind, "run", "--detach", "--name=box", "--rm", "--gpus", "all", "image"]
        assert asked == [*head, *inner.command]
        assert plan.commands == (tuple(asked),)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(run)).complete


async def test_a_server_in_a_container_that_nobody_configured_is_found(
    docker: Docker, kind: str, tmp_path: Path
) -> None:
    profile = quick_profile("inner")
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\n" + Path(profile.command[1]).read_text())
    program.chmod(0o755)
    command = [str(program), "--port", str(profile.port)]
    if kind == "docker":  # as many images begin
        command = ["bash", "-ec", f"umask 022 && exec {shlex.join(command)}"]
    docker.make(
        "theirs",
        command,
        HostConfig={"NetworkMode": "bridge"},
        NetworkSettings={"Ports": {f"{profile.port}/tcp": [{"HostPort": str(profile.port)}]}},
    )
    docker.make("sleeper", ["sleep", "600"], HostConfig=None, Config={"Env": None})
    async with desk_of() as desk:
        assert [run.profile for run in await desk.runs() if run.launcher == kind] == []
        for name in ("theirs", "sleeper"):
            await _ask([kind, "start", name])
        run = await desk.find("theirs")
        assert (run.launcher, run.engine, run.port) == (kind, "llamacpp", profile.port)
        assert [r.profile for r in await desk.runs() if r.port == profile.port] == ["theirs"]
        async with await desk.watch(run) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(run)).complete
        await _ask([kind, "stop", "sleeper"])


async def test_a_container_that_sees_no_gpu_is_told(
    docker: Docker, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.install(tmp_path / "gpus.json", monkeypatch).now(processes=[])
    profile = boxed(kind)
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as desk:
        await gpus.seen(desk)
        assert "container-without-gpus" in [f.id for f in await desk.check(profile)]
        docker.make("box", profile.command, HostConfig={"DeviceRequests": [{"Count": -1}]})
        assert "container-without-gpus" not in [f.id for f in await desk.check(profile)]


@pytest.mark.parametrize("kind", ["podman"])  # docker has no word for it
async def test_a_container_that_somebody_else_stops_is_stopping(docker: Docker, kind: str) -> None:
    profile = boxed(kind)
    profile = replace(profile, command=(*profile.command, "--deaf"))
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            stop = asyncio.create_task(_ask([kind, "stop", "box"]))
            await watch.until(is_state(State.STOPPING), DEADLINE_S)
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
            await stop


async def test_who_stops_a_container_is_told_to_a_newcomer(docker: Docker, kind: str) -> None:
    """Docker itself has no word for it: the operator who does it is asked."""
    profile = boxed(kind)
    profile = replace(profile, command=(*profile.command, "--deaf"))
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as one, desk_of(profile) as newcomer:
        run = await one.start(profile)
        async with await newcomer.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            stop = asyncio.create_task(one.stop(run, grace_s=3.0))
            seen = await watch.until(is_state(State.STOPPING), DEADLINE_S)
            assert f"asked to stop by {operator()} from {origin()}" in seen.why
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
            assert (await stop).complete


async def test_two_operators_at_one_container(docker: Docker, kind: str) -> None:
    profile = boxed(kind, "--deaf")
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as one, desk_of(profile) as other:
        begun = await asyncio.gather(
            one.start(profile), other.start(profile), return_exceptions=True
        )
        (run,) = [each for each in begun if isinstance(each, Run)]
        assert [type(each) for each in begun if each is not run] == [ProfileBusy]
        assert len([call for call in docker.calls if call[1] == "start"]) == 1
        stops = await asyncio.gather(one.stop(run), other.stop(run), return_exceptions=True)
        (busy,) = [each for each in stops if isinstance(each, ProfileBusy)]
        assert f"{operator()} is stopping it already (from {origin()})" in busy.detail


async def test_variables_that_reach_no_container_are_told(docker: Docker, kind: str) -> None:
    profile = boxed(kind, env={"HF_HOME": "/m"})
    docker.make("box", profile.command, HostConfig={"NetworkMode": "host"})
    async with desk_of(profile) as desk:
        (found,) = await desk.check(profile)
        assert found.id == "env-unused"
        assert "HF_HOME" in found.title
        assert (await desk.plan(profile)).env == {}


async def test_a_container_that_is_not_there(docker: Docker, kind: str) -> None:
    profile = boxed(kind)
    async with desk_of(profile) as desk:
        (finding,) = [f for f in await desk.check(profile) if f.id == "container-missing"]
        assert "knows no container box" in finding.title
        with pytest.raises(LaunchError, match="knows no container"):
            await desk.start(profile)


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("--gpus all i", True),
        ("--gpus=2 i", True),
        ("--device nvidia.com/gpu=all i", True),
        ("--device=/dev/kfd i", True),
        ("--device /dev/nvidia0:/dev/nvidia0 i", True),
        ("--runtime nvidia i", True),
        ("--runtime=nvidia-container-runtime i", True),
        ("--privileged i", True),
        ("--privileged=false i", False),
        ("-v /dev:/dev i", True),
        ("-e NVIDIA_VISIBLE_DEVICES=0,1 i", True),
        ("--env=NVIDIA_VISIBLE_DEVICES=all i", True),
        ("-e NVIDIA_VISIBLE_DEVICES=void i", False),
        ("--device /dev/fuse i", False),
        ("i vllm serve M --device cuda", False),
    ],
)
def test_whether_a_command_asks_for_gpus(words: str, asks: bool) -> None:
    assert asks_for_gpus(["docker", "run", *words.split()]) is asks


VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("config", "host", "sees"),
    [
        ({}, {"Privileged": True, "Runtime": "runc"}, True),
        ({}, {"Devices": [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/x"}]}, True),
        ({}, {"Devices": [{"PathOnHost": "nvidia.com/gpu=all"}]}, True),
        ({}, {"Devices": [{"PathOnHost": "/dev/fuse"}], "Runtime": "runc"}, False),
        ({}, {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}, True),
        ({}, {"Runtime": "nvidia"}, True),
        ({"Env": [f"{VISIBLE}=void"]}, {"Runtime": "nvidia"}, False),
        ({"Env": [f"{VISIBLE}="]}, {"Runtime": "nvidia"}, False),
        ({"Env": [f"{VISIBLE}=all"]}, {"Runtime": "nv-legacy"}, True),
        ({"Env": [f"{VISIBLE}=all"]}, {"Runtime": "runc"}, False),  # by its image
        ({"Env": [f"{VISIBLE}=all"]}, {"Runtime": "oci"}, False),
        ({"CreateCommand": ["podman", "run", "--device", "nvidia.com/gpu=all"]}, {}, True),
        ({}, {"Annotations": {"cdi.k8s.io/gpus": "nvidia.com/gpu=all"}}, True),
        ({}, {"Binds": ["/dev:/dev"]}, True),
        ({}, {"Binds": ["/devel:/dev/x"], "Annotations": None, "Devices": None}, False),
    ],
)  # fmt: skip
def test_whether_a_container_sees_gpus(
    config: dict[str, object], host: dict[str, object], sees: bool
) -> None:
    told = [{"Id": "1", "State": {}, "Path": "vllm", "Config": config, "HostConfig": host}]
    assert [container.sees_gpus for container in parse(json.dumps(told))] == [sees]


def test_a_description_of_an_odd_shape_hides_no_other() -> None:
    nulls = {"Id": "1", "State": None, "Path": "vllm", "Args": None, "Config": None,
             "HostConfig": None, "NetworkSettings": {"Ports": {"80/tcp": None}}}  # fmt: skip
    string = {"Id": "2", "State": {"Pid": "7", "ExitCode": "1"}, "Config": {"Entrypoint": "/x y"}}
    odd = {"Id": "3", "State": [], "Args": "serve"}
    found = parse(json.dumps([nulls, 5, string, odd]))
    assert [container.id for container in found] == ["1", "2"]
    assert found[0] == Container("1", path="vllm")
    assert (found[1].state.pid, found[1].state.exit_code) == (7, 1)
    for text in ("{", "[3]", '[{"Id": 1}]'):
        with pytest.raises(AgentError, match="makes no sense"):
            parse(text)
    assert parse("") == []


@pytest.mark.parametrize(
    ("text", "epoch_s"),
    [
        ("2026-12-02T10:00:00.123456789Z", 1_796_205_600.0),
        ("2026-12-02T12:00:00.123456789+02:00", 1_796_205_600.0),
        ("2026-12-02T04:30:00-05:30", 1_796_205_600.0),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_when_a_container_was_started(text: str, epoch_s: float | None) -> None:
    """Podman says it in the host's own time."""
    assert epoch(text) == epoch_s


async def _ask(argv: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*argv)
    assert await process.wait() == 0
