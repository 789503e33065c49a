"""Units and containers by programs that record what they were asked; tmux for real."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backends.errors import UsageError
from backends.servers.launchers.base import ProfileBusy, Run
from backends.servers.lifecycle import ANSWERING
from backends.servers.screenlog import finished, new_lines
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, profile_of, quick_profile

SHOW = """Id=gpuroom-glm.service
LoadState={load}
ActiveState={active}
MainPID={pid}
ExecMainPID={pid}
ExecMainCode=0
ExecMainStatus=0
Result=success
ControlGroup=
InvocationID=0123456789abcdef0123456789abcdef
ExecMainStartTimestamp=Wed 2026-12-02 10:00:00 UTC
Description=gpuroom glm, started by ann from desk
"""


class Programs:
    """Programs that write down their arguments and print what `say` was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    def add(self, name: str, answers: dict[str, tuple[int, str]]) -> None:
        """Answers by the first argument that is one of the keys."""
        program = self.folder / name
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, sys\n"
            f"with open({str(self.folder / 'asked')!r}, 'a') as f:\n"
            f"    f.write(json.dumps([{name!r}, *sys.argv[1:]]) + '\\n')\n"
            f"answers = {answers!r}\n"
            "code, text = next((answers[w] for w in sys.argv[1:] if w in answers), (0, ''))\n"
            "print(text, end='', file=sys.stderr if code else sys.stdout)\n"
            "sys.exit(code)\n"
        )
        program.chmod(0o755)

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = Programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    return found


async def test_a_unit_that_runs_is_busy_and_its_journal_is_its_log(programs: Programs) -> None:
    programs.add("id", {"-u": (0, "0\n")})
    state = {"load": "loaded", "active": "active", "pid": str(os.getpid())}
    programs.add("systemctl", {"show": (0, SHOW.format(**state))})
    profile = profile_of("glm", launcher="systemd", command=["serve"])
    async with desk_of(profile) as desk:
        with pytest.raises(ProfileBusy) as busy:
            await desk.start(profile)
        assert "ann" in busy.value.detail
        run = await desk.find("glm")
        assert (run.by, run.origin, run.pid) == ("ann", "desk", os.getpid())
        assert run.log is not None
        assert run.log.argv[0] == "journalctl"
        assert "--unit=gpuroom-glm.service" in run.log.argv
        look = await desk.launcher_of(run).look(run)
        assert look.alive


async def test_a_real_unit() -> None:
    if not Path("/run/systemd/system").is_dir():
        pytest.skip("no systemd here")
    profile = quick_profile("unit-test", launcher="systemd")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(run)).complete


async def test_a_container_is_started_watched_and_stopped(programs: Programs) -> None:
    def told(running: bool) -> str:
        state = {"Status": "running" if running else "exited", "Running": running,
                 "Pid": os.getpid() if running else 0, "ExitCode": 137, "OOMKilled": not running,
                 "StartedAt": "2026-12-02T10:00:00.123456789Z"}  # fmt: skip
        return json.dumps([{"Id": "a" * 64, "State": state, "HostConfig": {"NetworkMode": "host"}}])

    programs.add("docker", {"inspect": (0, told(False))})
    profile = profile_of("box", launcher="docker", unit="box", command=["docker"])
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        assert ["docker", "start", "box"] in programs.asked
        assert run.log is not None
        assert run.log.argv[:3] == ("docker", "logs", "--follow")
        look = await desk.launcher_of(run).look(run)
        assert (look.alive, look.exit_code, look.oom_killed) == (False, -9, True)
        assert (await desk.stop(run, grace_s=7)).complete
        assert ["docker", "stop", "--time=7", "box"] in programs.asked
        programs.add("docker", {"inspect": (0, told(True))})
        with pytest.raises(ProfileBusy):
            await desk.start(profile)


async def test_a_server_in_tmux_is_adopted_with_its_screen_as_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("tmux")
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    profile = quick_profile("inside")
    pid_argv = ["tmux", "list-panes", "-a", "-F", "#{pane_pid}"]
    subprocess.run(["tmux", "new-session", "-d", "-s", "t", *profile.command], check=True)
    try:
        pid = int(subprocess.run(pid_argv, check=True, capture_output=True).stdout)
        async with desk_of() as desk, asyncio.timeout(DEADLINE_S):
            run = await desk.adopt(pid)
            assert run.log is not None
            got: list[bytes] = []
            watch = await desk.watch(
                run, profile, log_sink=lambda piece: got.append(getattr(piece, "data", b""))
            )
            async with watch:
                while len(b"".join(got).splitlines()) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                assert b"".join(got) == b"loading\nlistening\n", "each line once"
            assert (await desk.stop(run)).complete
    finally:
        subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)


def test_new_lines_of_a_screen() -> None:
    assert new_lines([], ["a", "b"]) == ["a", "b"]
    assert new_lines(["a", "b"], ["a", "b", "c"]) == ["c"]
    assert new_lines(["a", "b", "c"], ["b", "c", "d"]) == ["d"], "the oldest line scrolled away"
    assert new_lines(["a", "b"], ["x"]) == ["x"], "the screen was cleared"
    assert new_lines(["a", "a"], ["a", "a", "a"]) == [], "the newest place wins"
    assert finished("a\nb\n\n", None) == ["a"]
    assert finished("a\nb\n\n", "b") == ["a", "b"]


@pytest.mark.parametrize("typed", [False, True], ids=["alone", "typed into a shell"])
async def test_the_server_of_a_session_that_a_profile_names_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: bool
) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    profile = quick_profile("inside", launcher="tmux", unit="work")
    begin = ["tmux", "new-session", "-d", "-s", "work", "-x", "200"]
    subprocess.run([*begin, *(["sh"] if typed else profile.command)], check=True)
    try:
        async with desk_of(profile) as desk, asyncio.timeout(DEADLINE_S):

            async def inside() -> list[Run]:
                return [run for run in await desk.runs() if run.launcher == "tmux"]

            if typed:
                assert await inside() == [], "a shell that waits is no server"
                line = shlex.join(profile.command)
                subprocess.run(["tmux", "send-keys", "-t", "work", line, "Enter"], check=True)
            while not (runs := await inside()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            (run,) = runs
            assert (run.profile, run.launcher, run.adopted) == ("inside", "tmux", True)
            with pytest.raises(UsageError, match="can't be started by tmux"):
                await desk.start(profile)
            async with await desk.watch(run, profile) as watch:
                await watch.until(is_state(*ANSWERING), DEADLINE_S)
            assert (await desk.stop(run)).complete
    finally:
        subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)
