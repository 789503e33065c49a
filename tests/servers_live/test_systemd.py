"""Transient units: what systemd is asked for, where secrets go, who finds them again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.agent.remote import units
from backends.agent.remote.rpc import RpcError
from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.model import Severity
from backends.servers.catalogue import load_catalogue
from backends.servers.desk import ServerDesk
from backends.servers.launchers.base import LaunchError, ProfileBusy
from backends.servers.lifecycle import ANSWERING, State
from backends.tuning.gather import reached
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, profile_of, quick_profile

FAKE = Path(__file__).with_name("fake_systemd.py")
SECRET = 'hf_"$(x)`\\ 秘密'
ODD = "a b \"c\" $HOME `id` \\ 'd'\nsecond line"


class Systemd:
    """The fake one, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        place = self.folder / "calls"
        return [json.loads(line) for line in place.read_text().splitlines()]

    def of(self, program: str) -> list[Mapping[str, Any]]:
        return [call for call in self.calls if call["argv"][0] == program]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    folder, programs = tmp_path / "systemd", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    for name in ("systemd-run", "systemctl", "journalctl", "loginctl", "id"):
        program = programs / name
        program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMD", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Systemd(folder)


async def test_a_transient_unit_from_start_to_stop(systemd: Systemd, tmp_path: Path) -> None:
    profile = quick_profile(
        "unit", launcher="systemd", cwd=str(tmp_path), env={"HF_TOKEN": SECRET, "ODD": ODD}
    )
    async with desk_of(profile) as desk:
        assert await desk.check(profile) == []
        plan = await desk.plan(profile)
        assert systemd.of("systemd-run") == []
        run = await desk.start(profile)
        (asked,) = systemd.of("systemd-run")
        forgot, made = plan.commands
        assert forgot == ("systemctl", "reset-failed", "gpuroom-unit.service")
        file = "--property=EnvironmentFile="
        assert [word for word in asked["argv"] if not word.startswith(file)] == [
            word for word in made if not word.startswith(file)
        ]
        options = asked["argv"][1 : asked["argv"].index("--")]
        (place,) = [word for word in options if word.startswith("--property=EnvironmentFile=")]
        assert options == [
            "--unit=gpuroom-unit.service",
            "--quiet",
            f"--description=gpuroom unit, started by {run.by} from {run.origin}",
            "--property=TimeoutStopSec=30",
            place,
            f"--working-directory={tmp_path}",
            "--property=Type=exec",
        ]
        assert asked["argv"][asked["argv"].index("--") + 1 :] == list(profile.command)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            assert [f.id for f in await desk.check(profile)][:1] == ["earlier-run"]
            with pytest.raises(ProfileBusy, match="active already"):
                await desk.start(profile)
            watch.stop_asked()
            assert (await desk.stop(run)).complete
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
        assert not Path(f"/proc/{run.pid}/exe").exists()


async def test_a_unit_that_systemd_stops_for_somebody_else_is_stopping(systemd: Systemd) -> None:
    profile = quick_profile("unit", "--deaf", launcher="systemd")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            stop = asyncio.create_task(desk.stop(run))
            await watch.until(is_state(State.STOPPING), DEADLINE_S)
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
            assert (await stop).complete


async def test_secrets_reach_the_server_and_nobody_else(systemd: Systemd) -> None:
    profile = quick_profile("unit", launcher="systemd", env={"HF_TOKEN": SECRET, "ODD": ODD})
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        assert SECRET[:4] not in json.dumps(systemd.calls)
        environ = Path(f"/proc/{run.pid}/environ").read_bytes().decode().split("\0")
        assert f"HF_TOKEN={SECRET}" in environ
        assert f"ODD={ODD}" in environ
        (asked,) = systemd.of("systemd-run")
        assert asked["modes"] == [0o600, 0o700]
        (place,) = [w for w in asked["argv"] if w.startswith("--property=EnvironmentFile=")]
        assert not Path(place.partition("EnvironmentFile=")[2]).parent.exists()
        await desk.stop(run)


@pytest.mark.parametrize("launcher", ["systemd", "process"])
async def test_secrets_are_not_in_the_journal(systemd: Systemd, launcher: str) -> None:
    profile = quick_profile("unit", launcher=launcher, env={"HF_TOKEN": "t0p", "DB": "u://a:pw9@h"})
    profile = replace(profile, command=(*profile.command, "--api-key", "k3y"))
    host = HostConfig(name="here", target="local", python=sys.executable)
    async with RoomHub([host], Config()) as hub:
        await reached(hub.sessions[0], DEADLINE_S)
        desk = ServerDesk(hub.sessions[0], [profile], load_catalogue())
        with contextlib.suppress(LaunchError):
            await desk.stop(await desk.start(profile))
        written = json.dumps([repr(entry) for entry in hub.journal])
    assert "GPUROOM_RUN" in written or "servers.start" in written
    for secret in ("t0p", "pw9", "k3y"):
        assert secret not in written


async def test_an_operator_without_the_profile_finds_the_unit(systemd: Systemd) -> None:
    profile = quick_profile("lonely", launcher="systemd")
    async with desk_of(profile) as desk:
        started = await desk.start(profile)
    async with desk_of() as desk:
        run = await desk.find("lonely")
        assert (run.launcher, run.pid, run.by) == ("systemd", started.pid, started.by)
        assert run.argv == profile.command
        assert run.log is not None
        assert "--unit=gpuroom-lonely.service" in run.log.argv
        got: list[bytes] = []
        sink = await desk.watch(run, log_sink=lambda piece: got.append(getattr(piece, "data", b"")))
        async with sink as watch:
            await watch.until(lambda _: b"listening" in b"".join(got), DEADLINE_S)
        assert (await desk.stop(run)).complete
        assert [each.profile for each in await desk.runs() if each.launcher == "systemd"] == []


async def test_a_unit_that_exists_is_started_and_does_not_get_the_profiles_variables(
    systemd: Systemd,
) -> None:
    table = quick_profile("inner")
    (systemd.folder / "glm.service.argv").write_text(json.dumps(table.command))
    profile = profile_of(
        "named", launcher="systemd", unit="glm", port=table.port, ready={"path": "/health"},
        env={"HF_HOME": "/m", "NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    async with desk_of(profile) as desk:
        (found,) = await desk.check(profile)
        assert (found.id, found.severity) == ("env-unused", Severity.WARNING)
        assert "glm.service" in found.title
        assert "HF_HOME, NCCL_DEBUG" in found.title
        assert found.way_out == "systemctl edit glm.service: Environment="
        plan = await desk.plan(profile)
        assert plan.commands == (("systemctl", "start", "--no-block", "glm.service"),)
        assert plan.env == {}
        run = await desk.start(profile)
        assert tuple(systemd.of("systemctl")[-2]["argv"]) == plan.commands[0]
        assert b"HF_HOME" not in Path(f"/proc/{run.pid}/environ").read_bytes()
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(run)).complete
        plain = replace(profile, env={})
        assert await desk.check(plain) == []
        missing = replace(profile, unit="other")
        assert [each.id for each in await desk.check(missing)] == ["unit-missing"]


async def test_what_cannot_be_executed_is_said(systemd: Systemd) -> None:
    profile = profile_of("gone", launcher="systemd", command=["/no/such/program"])
    async with desk_of(profile) as desk:
        with pytest.raises(LaunchError, match="/no/such/program"):
            await desk.start(profile)


@pytest.mark.parametrize(("linger", "found"), [("yes", []), ("no", ["no-linger"])])
async def test_lingering_is_asked_for_this_user(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch, linger: str, found: list[str]
) -> None:
    monkeypatch.setenv("FAKE_UID", "1234")
    monkeypatch.setenv("FAKE_LINGER", linger)
    profile = profile_of("glm", launcher="systemd", command=["true"])
    async with desk_of(profile) as desk:
        assert [finding.id for finding in await desk.check(profile)] == found
        (asked,) = systemd.of("loginctl")
        assert asked["argv"] == ["loginctl", "show-user", "1234", "--property=Linger", "--value"]
        assert all("--user" in call["argv"] for call in systemd.of("systemctl"))


def test_what_systemd_would_pass_over_is_refused() -> None:
    with pytest.raises(RpcError, match="control characters"):
        units.environment_text({"A": "x\x01"})
    with pytest.raises(RpcError, match="no environment variable"):
        units.environment_text({"A-B": "x"})


def test_a_file_that_was_left_behind_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "runtime", lambda: str(tmp_path))
    left = tmp_path / f"{units.FOLDER}left"
    left.mkdir()
    (left / "environment").write_text('TOKEN="x"\n')
    os.utime(left, (1, 1))
    with units.environment_file({"A": "b"}) as path:
        assert Path(path).read_text() == 'A="b"\n'
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []
