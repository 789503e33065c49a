"""The demo's /proc names the processes that its NVML names, and its counters grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.sim import nvml
from backends.sim.proc_tree import ProcTree, processes_of


@pytest.mark.parametrize("scenario", sorted(nvml.SETUPS))
def test_every_pid_of_nvml_is_a_process_with_a_command(scenario: str, tmp_path: Path) -> None:
    tree = ProcTree(tmp_path, scenario)
    tree.write()
    for process in nvml.server_processes(nvml.SETUPS[scenario]):
        folder = tmp_path / str(process.pid)
        assert (folder / "cmdline").read_bytes().endswith(b"\0")
        assert (folder / "cgroup").read_text().startswith("0::/")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        parent = int(fields[1])
        assert parent == 1 or (tmp_path / str(parent) / "cmdline").exists()
        assert int(fields[19]) > 0, "start ticks"


def test_the_servers_are_known_by_their_parents() -> None:
    commands = {p.pid: " ".join(p.argv) for p in processes_of(nvml.SETUPS["sixteen"])}
    assert "sglang.launch_server" in commands[48_100]
    assert "--tp-size 8" in commands[48_100]
    assert "vllm serve" in commands[48_500]
    assert commands[48_217] == "sglang::scheduler_TP7"
    assert len(commands) == 18
    assert processes_of(nvml.SETUPS["idle"]) == []


def test_counters_grow_with_time(tmp_path: Path) -> None:
    now_s = 50.0
    tree = ProcTree(tmp_path, "healthy", lambda: now_s)
    tree.write()

    def busy_ticks() -> tuple[int, int, int]:
        own = (tmp_path / "48210/stat").read_text().rpartition(")")[2].split()
        cpu = [int(word) for word in (tmp_path / "stat").read_text().split()[1:9]]
        return int(own[11]), sum(cpu) - cpu[3], sum(cpu)

    before = busy_ticks()
    now_s = 60.0
    tree.update()
    own, busy, total = (after - b for after, b in zip(busy_ticks(), before, strict=True))
    assert own == pytest.approx(1000, abs=2), "one core for 10 s"
    assert 0.02 < busy / total < 0.2
    assert not list(tmp_path.rglob("*.new"))
