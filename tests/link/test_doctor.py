from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from backends.doctor import (
    Device,
    Finding,
    Outcome,
    Probe,
    examine,
    judge_devices,
    judge_gpus,
    probe_program,
)
from backends.errors import AgentError, LinkError
from backends.link.base import NobodyToAsk
from backends.model import (
    DriverState,
    DriverStatus,
    GpuState,
    GpuStatus,
    HostSnapshot,
    LinkState,
    LinkStatus,
)
from backends.reachability import reach_all
from tests.sshd import SshLab, free_port

ROOT = Path(__file__).resolve().parents[2]


async def examined(name: str, config: Config | None = None) -> dict[str, Finding]:
    host = HostConfig(name=name)
    return {f.step: f async for f in examine(host, config or Config(), NobodyToAsk())}


def probe(**changed: object) -> Probe:
    seen: dict[str, object] = {
        "python": "3.10.2",
        "executable": "/usr/bin/python3",
        "user": "ops",
        "container": None,
        "module": "580.1",
        "nouveau": False,
        "library": "/usr/lib/x",
        "pci_gpus": 8,
        "majors": {"nvidia": 195, "nvidia-uvm": 507},
        "devices": [Device("/dev/nvidia0")],
    }
    return Probe(**{**seen, **changed})  # type: ignore[arg-type]


def snapshot(driver: DriverStatus | None, *gpus: GpuStatus) -> HostSnapshot:
    link = LinkStatus(LinkState.LIVE, 0.0)
    return HostSnapshot(host="h", version=1, link=link, interval_s=1.0, driver=driver, gpus=gpus)


class TestJudgement:
    def test_all_well(self) -> None:
        assert [f.outcome for f in judge_devices(probe())] == [Outcome.OK, Outcome.OK]

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            ("EPERM", "nvidia 195, nvidia-uvm 507"),
            ("EACCES", "Add ops to the group"),
            ("ENOENT", "nvidia-smi as root"),
            ("ENXIO", "earlier boot"),
            ("EIO", "Xid"),
        ],
    )
    def test_permissions_say_what_to_do(self, error: str, words: str) -> None:
        denied = [Device(f"/dev/nvidia{n}", error=error) for n in range(8)]
        finding = judge_devices(probe(devices=denied))[-1]
        assert finding.outcome is Outcome.FAILED
        assert finding.step == "permissions"
        assert words in finding.advice
        assert "7 more" in finding.detail

    def test_cards_without_a_module(self) -> None:
        (finding,) = judge_devices(probe(module=None, devices=[]))
        assert "modprobe" in finding.advice
        (finding,) = judge_devices(probe(module=None, devices=[], nouveau=True))
        assert "nouveau" in finding.advice

    def test_a_host_without_cards_has_no_finding_about_them(self) -> None:
        assert judge_devices(probe(module=None, devices=[], pci_gpus=0)) == []

    @pytest.mark.parametrize("state", [state for state in DriverState if state != DriverState.OK])
    def test_every_state_of_a_driver_has_advice(self, state: DriverState) -> None:
        (finding,) = judge_gpus(snapshot(DriverStatus(state, detail="words")), None)
        assert finding.outcome is Outcome.FAILED
        assert "words" in finding.detail
        assert finding.advice

    def test_a_lost_gpu_and_one_that_never_came(self) -> None:
        driver = DriverStatus(DriverState.OK, "580.1", "13.0")
        lost = GpuStatus("u", 3, "RTX", "0", GpuState.LOST, "fell off the bus")
        finding = judge_gpus(snapshot(driver, lost), probe())[-1]
        assert (finding.outcome, finding.exit_code) == (Outcome.FAILED, 1)
        assert "GPU 3 lost fell off the bus" in finding.detail
        fine = GpuStatus("u", 0, "RTX", "0")
        finding = judge_gpus(snapshot(driver, fine), probe(pci_gpus=8))[-1]
        assert "1 x RTX, but 8 on the bus" in finding.detail
        assert judge_gpus(snapshot(driver), None)[-1].outcome is Outcome.FAILED


def test_the_probe_runs_alone_and_under_noise() -> None:
    done = subprocess.run(
        [sys.executable, "-c", probe_program()], capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout.split("@@gpuroom-doctor-1@@\n")[1])
    assert seen["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "\n" not in probe_program()


def test_the_probe_is_python_3_8() -> None:
    source = (ROOT / "backends" / "doctor_probe.py").read_text()
    ast.parse(source, feature_version=(3, 8))


async def test_local_and_demo() -> None:
    found = await examined("local")
    assert found["python"].outcome is Outcome.OK
    assert found["agent"].outcome is Outcome.OK
    assert "driver" in found
    found = await examined("demo")
    assert found["GPUs"].detail.startswith("8 x ")
    assert all(finding.outcome is Outcome.OK for finding in found.values()), found


async def test_where_the_way_ends() -> None:
    found = await examined("no-such-host.invalid")
    assert found["name"].outcome is Outcome.FAILED
    assert found["name"].exit_code == LinkError.exit_code
    assert "port" not in found
    found = await examined(f"127.0.0.1:{free_port()}")
    assert found["port"].outcome is Outcome.FAILED
    assert list(await examined("a b")) == ["target"]


@pytest.mark.real
class TestOverSsh:
    async def test_all_steps(self, ssh_lab: SshLab) -> None:
        ssh_lab.server("jump")
        server = ssh_lab.server("gpu01", alias=False, shell="fish", noise="moo")
        ssh_lab.add_alias("gpu01", server, "ProxyJump jump")
        found = await examined("gpu01", Config(ssh=ssh_lab.settings()))
        assert "through jump" in found["configuration"].detail
        for step in ("name", "port", "host key", "login", "python", "agent"):
            assert found[step].outcome is Outcome.OK, found[step]

    async def test_unknown_host_key(self, ssh_lab: SshLab) -> None:
        ssh_lab.server("gpu01", known=False)
        found = await examined("gpu01", Config(ssh=ssh_lab.settings()))
        assert found["host key"].outcome is Outcome.FAILED
        assert "SHA256:" in found["host key"].detail
        assert "login" not in found

    async def test_nobody_let_in(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server("gpu01")
        (server.folder / "authorized_keys").write_text("")
        found = await examined("gpu01", Config(ssh=ssh_lab.settings()))
        assert found["host key"].outcome is Outcome.OK
        assert found["login"].outcome is Outcome.FAILED

    async def test_no_python(self, ssh_lab: SshLab) -> None:
        ssh_lab.server("gpu01", path=str(ssh_lab.folder / "nothing-here"))
        found = await examined("gpu01", Config(ssh=ssh_lab.settings()))
        assert found["login"].outcome is Outcome.OK
        assert found["python"].exit_code == AgentError.exit_code
        assert "Install python3" in found["python"].advice

    async def test_hosts_all_at_once(self, ssh_lab: SshLab) -> None:
        ssh_lab.server("fine")
        hosts = [HostConfig(name=name) for name in ("fine", f"127.0.0.1:{free_port()}", "a b")]
        fine, refused, nonsense = await reach_all(
            hosts, Config(ssh=ssh_lab.settings()), NobodyToAsk(), 20.0
        )
        assert (fine.reachable, fine.error) == (True, "")
        assert not refused.reachable
        assert "refuses" in refused.error
        assert "is not a host" in nonsense.error

    def test_the_commands(self, ssh_lab: SshLab, tmp_path: Path) -> None:
        ssh_lab.server("fine")
        config = tmp_path / "config.toml"
        config.write_text(
            f'[ssh]\nconfig_file = "{ssh_lab.config_file}"\n[[hosts]]\nname = "fine"\n'
            f'[[hosts]]\nname = "gone"\ntarget = "127.0.0.1:{free_port()}"\n'
        )

        def gpuroom(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, ROOT / "gpuroom.py", *arguments, "--config", config],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                env=os.environ,
            )

        done = gpuroom("hosts", "--json")
        assert done.returncode == 3
        assert [entry["reachable"] for entry in json.loads(done.stdout)] == [True, False]
        done = gpuroom("hosts", "fine")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("fine  ok")
        done = gpuroom("doctor", "gone", "--json")
        assert done.returncode == 3
        findings = json.loads(done.stdout)["findings"]
        assert findings[-1]["step"] == "port"
        assert findings[-1]["advice"]
        done = gpuroom("doctor", "gone")
        assert "FAIL  port" in done.stdout
