"""A server's own cgroup: where one is made, what it shows, and that it goes with the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.agent.remote import cgroups, supervisor
from backends.servers.lifecycle import State
from tests.servers_live.conftest import Host
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, profile_of

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
"""
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
OWN_V2 = "0::/user.slice/user-0.slice/session-3.scope\n"
OWN_V1 = "9:cpu,cpuacct:/\n4:memory:/job_12\n1:name=systemd:/user.slice/session-3.scope\n"
# Out of the session, of the process group, of the family, and with an environment of its own.
ADRIFT = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, ["adrift", "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
time.sleep(600)
"""
GREEDY = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
taken = []
while True:
    taken.append(bytearray(b"x") * (1 << 20))
"""


def process(folder: Path, mounts: str, own: str) -> str:
    (folder / "mountinfo").write_text(mounts)
    (folder / "cgroup").write_text(own)
    return str(folder)


@pytest.mark.parametrize(
    ("mounts", "own", "parents"),
    [
        pytest.param(
            V2, OWN_V2,
            ["/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/user-0.slice/session-3.scope"],
            id="version 2",
        ),
        pytest.param(V1, OWN_V1, ["/sys/fs/cgroup/memory/job_12"], id="version 1"),
        pytest.param(
            V1 + UNIFIED, OWN_V1 + "0::/\n",
            ["/sys/fs/cgroup/memory/job_12", "/sys/fs/cgroup/unified"], id="both",
        ),
        pytest.param(
            V2.replace(" / /sys", " /lxc/101 /sys"), "0::/lxc/101/init.scope\n",
            ["/sys/fs/cgroup", "/sys/fs/cgroup/init.scope"], id="a container's own view",
        ),
        pytest.param(V2, "0::/../../elsewhere\n", [], id="outside of what is mounted"),
        pytest.param("", OWN_V2, [], id="nothing mounted"),
    ],
)  # fmt: skip
def test_where_a_servers_cgroup_may_be_made(
    tmp_path: Path, mounts: str, own: str, parents: list[str]
) -> None:
    assert cgroups.parents(process(tmp_path, mounts, own)) == parents


def writable() -> list[str]:
    """The folders of this machine in which a cgroup can be made, of every kind there is."""
    found = []
    for place in cgroups.hierarchies():
        if place.name in ("unified", "memory"):
            made = supervisor.make_cgroup(f"probe-{os.getpid()}", [place.own])
            if made is not None:
                os.rmdir(made)
                found.append(place.own)
    return found


def test_each_kind_that_this_machine_has_holds_processes_and_lists_them() -> None:
    for parent in writable():
        made = supervisor.make_cgroup(f"kind-{os.getpid()}", ["/no/such/place", parent])
        assert made is not None
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            Path(made, "cgroup.procs").write_text(str(child.pid))
            assert cgroups.members(made) == [child.pid]
            assert cgroups.members(os.path.dirname(made)).count(child.pid) == 1
            if "unified" in {h.name for h in cgroups.hierarchies() if parent.startswith(h.mount)}:
                assert cgroups.of(child.pid) == made
        finally:
            child.kill()
            child.wait()
            os.rmdir(made)
    assert supervisor.make_cgroup("nowhere", ["/no/such/place"]) is None


async def test_a_server_is_kept_in_a_cgroup_of_its_own_where_one_can_be_made(host: Host) -> None:
    record = await host.python("kept", ADRIFT)
    possible = bool(writable())
    assert (record["cgroup"] is not None) == possible

    def drifted(state: dict[str, object]) -> bool:
        members = state["members"]
        assert isinstance(members, list)
        return any(member["command"].startswith("adrift") for member in members)

    state = await host.until(record["dir"], drifted)
    (adrift,) = [each for each in state["members"] if each["command"].startswith("adrift")]
    assert ("cgroup" in adrift["evidence"]) == possible
    if possible:
        assert {record["pid"], adrift["pid"]} <= set(cgroups.members(record["cgroup"]))
    pieces = await host.stop(record["dir"], grace_s=1)
    assert pieces[-1]["left"] == []
    assert not Path(f"/proc/{adrift['pid']}/exe").exists()
    if possible:
        await host.until(record["dir"], lambda state: not os.path.exists(record["cgroup"]))


def memory_limit(pid: int) -> Path | None:
    """The file that limits the memory of a server's own cgroup, where it has one that counts it."""
    for place in cgroups.hierarchies(f"/proc/{pid}"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if "gpuroom-" in place.own and Path(place.own, name).exists():
                return Path(place.own, name)
    return None


async def test_what_the_oom_killer_of_its_cgroup_ended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    go = tmp_path / "go"
    command = [sys.executable, "-c", GREEDY, str(go)]
    profile = profile_of("greedy", command=command, ready={"log": "never"})
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        limit = memory_limit(run.pid or 0)
        async with await desk.watch(run, profile) as watch:
            if limit is not None:
                limit.write_text(str(96 << 20))
                go.touch()
            else:  # no memory tree here: only that a kill without a word is no OOM
                os.kill(run.pid or 0, signal.SIGKILL)
            found = await watch.until(is_state(State.CRASHED), DEADLINE_S)
            found = await watch.until(lambda now: now.cause is not None, DEADLINE_S)
            assert watch.witnesses.process is not None
            assert watch.witnesses.process.oom_killed == (limit is not None)
            assert found.exit_code == -signal.SIGKILL
            assert found.cause == ("host-oom-killed" if limit is not None else "killed-no-message")
