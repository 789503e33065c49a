"""A guest and its hypervisor as one machine, a boot in between, users without rights."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from backends.errors import AgentError
from backends.hub import RoomHub
from backends.storage.tuning_tables import TuningHistory
from backends.tuning import prepare
from backends.tuning.engine import evaluate
from backends.tuning.facts import Vantage
from backends.tuning.findings import Verdict
from backends.tuning.gather import Reading, gather
from backends.tuning.machines import Machines
from backends.tuning.reboot import preview
from backends.tuning.runs import fell_back, keep
from backends.tuning.snapshot import BACKUPS, Outcome
from tests.sshd import SshLab, free_port
from tests.tuning_live.conftest import DEADLINE_S, Bench, Open
from tests.tuning_live.tree import BOOT_A, BOOT_B, Tree, make_host

pytestmark = pytest.mark.real
CONF = "/etc/pve/lxc/129.conf"
OLD_CONF = """\
#GPU guest
arch: amd64
cores: 32
hostname: vllm
unprivileged: 0
rootfs: rpool:subvol-129-disk-0,size=200G
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 234:* rwm
lxc.cgroup2.devices.allow: c 508:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file

[before]
arch: amd64
lxc.cgroup2.devices.allow: c 508:* rwm
"""
PVE = HostConfig(name="pve")
GUEST = HostConfig(name="vllm", hypervisor="pve", container=129)


@pytest.fixture
def guest(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path / "guest")
    tree.put("/proc/sys/kernel/random/boot_id", BOOT_A + "\n")
    tree.put("/proc/devices", "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm\n")
    tree.program("systemd-detect-virt", "echo lxc")
    return tree


async def test_stale_majors_are_found_explained_and_mended_in_the_configuration(
    open_hosts: Open, tree: Tree, guest: Tree
) -> None:
    tree.put(CONF, OLD_CONF)
    async with open_hosts(GUEST, PVE) as (inside, outside):
        bench = Bench(Machines(inside, outside), guest, tree)
        found, findings = await bench.judge()
        assert {f.vantage for f in found.document.facts} == set(Vantage)
        wrong = [f for f in findings.values() if f.rule == "virt.lxc_majors"] or [
            f
            for f in findings.values()
            if f.fix is not None and "devN" in f.fix.summary and f.verdict is Verdict.FAIL
        ]
        assert wrong[0].verdict is Verdict.FAIL
        assert "nvidia-uvm is 509 today" in wrong[0].evidence
        raw = next(f for f in findings.values() if f.rule == "virt.lxc_devn")
        assert (raw.verdict, raw.cause) == (Verdict.WARN, "virt.lxc_majors"), "one root cause"
        plan = await bench.plan(wrong[0].check)
        assert plan.hosts == ("pve",)
        assert any("-lxc.cgroup2.devices.allow: c 508:* rwm" in line for line in plan.lines())
        results = await bench.carry_out(plan)
        (result,) = results.values()
        assert result.outcome in (Outcome.APPLIED, Outcome.NEEDS_RESTART), result
        new = tree.read(CONF).decode()
        assert "dev0: /dev/nvidia0" in new
        assert "c 508" not in new.partition("[before]")[0]
        assert new.endswith("[before]\narch: amd64\nlxc.cgroup2.devices.allow: c 508:* rwm\n")
        backup = f"{BACKUPS}/{plan.snapshot.snapshot_id}{CONF}"
        assert tree.read(backup).decode() == OLD_CONF
        _, after = await bench.judge()
        assert after[wrong[0].check].verdict is Verdict.PASS
        back = await bench.back(plan, list(results.values()))
        assert [r.outcome for r in back] == [Outcome.APPLIED]
        assert tree.read(CONF).decode() == OLD_CONF


async def test_a_hypervisor_out_of_reach_is_a_note(open_hosts: Open, guest: Tree) -> None:
    below = HostConfig(name="pve", target=f"127.0.0.1:{free_port()}")
    async with open_hosts(GUEST) as (inside,), RoomHub([below]) as hub:
        found = await gather(
            inside,
            hypervisor=hub.sessions[0],
            reading=Reading(root=str(guest.folder)),
            timeout_s=DEADLINE_S,
        )
    assert {f.vantage for f in found.document.facts} == {Vantage.GUEST}
    assert any("pve below was not read" in note for note in found.notes)
    assert not any(f.verdict is Verdict.PASS for f in evaluate(found.document) if "pve/" in f.check)


POSIX_TOOLS = ("cat", "env", "find", "grep", "ls", "stat", "sh")


@pytest.mark.parametrize("driver", [True, False], ids=["with-driver", "gpus-passed-through"])
async def test_a_hypervisor_without_python_is_read_with_its_own_tools(
    ssh_lab: SshLab, tmp_path: Path, guest: Tree, driver: bool
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in POSIX_TOOLS:
        (programs / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    (tmp_path / "smi.json").write_text("{}")
    smi = programs / "nvidia-smi"
    fake = Path(__file__).resolve().parent.parent / "agent" / "fake_smi.py"
    smi.write_text(
        f"#!/bin/sh\nFAKE_SMI='{tmp_path / 'smi.json'}' exec {sys.executable} {fake} \"$@\"\n"
    )
    smi.chmod(0o755)
    if not driver:
        smi.unlink()
    below = make_host(tmp_path / "pve")
    below.put(CONF, OLD_CONF)
    below.program("pveversion", "echo pve-manager/8.4.1/abc")
    ssh_lab.server("pve", path=str(programs))
    ssh_lab.server("vllm")
    config = Config(hosts=(GUEST, PVE), ssh=ssh_lab.settings())
    async with RoomHub((GUEST, PVE), config) as hub:
        inside, host = hub.sessions
        found = await gather(
            inside,
            hypervisor=host,
            reading=Reading(root=str(guest.folder), below=str(below.folder)),
            timeout_s=DEADLINE_S,
        )
        assert host.snapshot.link.via == ("nvidia-smi" if driver else "tools")
    assert any("no python3" in note for note in found.notes)
    assert found.boot_ids[Vantage.HOST] == BOOT_A
    facts = {f.key: f.value for f in found.document.facts if f.vantage is Vantage.HOST}
    assert facts["/proc/sys/kernel/numa_balancing"] == "1"
    assert facts["/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"] == "schedutil"
    assert facts["virt/kind"] == "none"
    assert facts["pve/version"] == "8.4.1"
    assert facts["boot/grub_cmdline"] == "quiet"
    assert "pci/0000:1f:00.0/mrrs_bytes" not in facts, "registers need python"
    judged = {f.check: f for f in evaluate(found.document)}
    majors = next(f for check, f in judged.items() if check.startswith("virt.lxc_majors"))
    assert majors.verdict is Verdict.FAIL
    assert "nvidia-uvm is 509 today" in majors.evidence
    governor = next(f for check, f in judged.items() if check.startswith("cpu.governor"))
    assert governor.verdict is Verdict.WARN
    mrrs = next(f for check, f in judged.items() if check.startswith("pcie.mrrs"))
    assert mrrs.verdict is not Verdict.PASS


async def test_a_boot_shows_what_fell_back(open_hosts: Open, tree: Tree) -> None:
    async with open_hosts(HostConfig(name="gpu01")) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing", "vm.max_map_count")
        results = await bench.carry_out(plan)
        found, findings = await bench.judge()
        history = TuningHistory.at_home()
        keep(history, found, list(findings.values()))
        assert fell_back(history.runs("gpu01"), found, list(findings.values())) is None
        tree.boot(BOOT_B)
        later, judged = await bench.judge()
        worse = fell_back(history.runs("gpu01"), later, list(judged.values()))
        assert worse is not None
        assert "numa.balancing" in {one.check for one in worse}
        back = await bench.back(plan, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.ALREADY_SO}, "the boot has reset them"
        facts = history.facts_of(history.runs("gpu01")[0].run_id)
        assert facts is not None
        assert b"numa_balancing" in facts
        history.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into."""
    folder = Path(tempfile.mkdtemp(prefix="gpuroom-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def test_a_user_without_rights_is_told_what_needs_root(open_folder: Path) -> None:
    python, setpriv = Path("/usr/bin/python3"), shutil.which("setpriv")
    if os.geteuid() != 0 or not python.exists() or setpriv is None or sys.platform != "linux":
        pytest.skip("needs root, setpriv and a python that everybody may run")
    tree = make_host(open_folder / "root")
    tree.put(CONF, OLD_CONF).chmod(stat.S_IRUSR)
    tree.at("/etc/pve/lxc").chmod(0o755)
    nobody = open_folder / "python-of-nobody"
    nobody.write_text(
        "#!/bin/sh\ncd /\n"
        f'exec {setpriv} --reuid=65534 --regid=65534 --clear-groups {python} "$@"\n'
    )
    nobody.chmod(0o755)
    host = HostConfig(name="gpu01", target="local", python=str(nobody))
    async with RoomHub([host]) as hub:
        bench = Bench(Machines(hub.sessions[0]), tree)
        found, findings = await bench.judge()
        denied = [f for f in found.document.facts if f.error == "EACCES"]
        assert CONF in {f.key for f in denied}
        assert all(f.needs_root for f in denied if f.key == CONF)
        assert any("need root" in note for note in found.notes)
        assert findings["numa.balancing"].verdict is Verdict.WARN
        with pytest.raises(AgentError, match="not allowed as root"):
            await bench.plan("numa.balancing")
        assert tree.read("/proc/sys/kernel/numa_balancing") == b"1\n"


async def test_without_devn_the_numbers_are_edited_and_a_preview_says_how_long_that_holds(
    open_hosts: Open, tree: Tree, guest: Tree
) -> None:
    """Proxmox VE older than 8.2: today's numbers in the real file."""
    tree.put(CONF, OLD_CONF)
    tree.program("pveversion", "echo 'pve-manager/8.1.4/ec5affc9 (running kernel: 6.5.11-8-pve)'")
    async with open_hosts(GUEST, PVE) as (inside, outside):
        bench = Bench(Machines(inside, outside), guest, tree)
        _, findings = await bench.judge()
        stale = next(f for f in findings.values() if f.check.startswith("virt.lxc_majors"))
        assert stale.verdict is Verdict.FAIL
        assert stale.cause == ""
        plan = await bench.plan(stale.check)
        lines = plan.lines()
        assert "  -lxc.cgroup2.devices.allow: c 508:* rwm" in lines
        assert "  +lxc.cgroup2.devices.allow: c 509:* rwm" in lines
        assert not any("dev0" in line for line in lines)
        results = await bench.carry_out(plan)
        new = tree.read(CONF).decode()
        assert new == OLD_CONF.replace("508", "509", 1).replace("234", "235", 1)
        assert tree.read(f"{BACKUPS}/{plan.snapshot.snapshot_id}{CONF}").decode() == OLD_CONF
        later, after = await bench.judge()
        assert after[stale.check].verdict is Verdict.PASS
        (uvm,) = [c for c in preview(later.document) if c.what == "major of nvidia-uvm"]
        assert uvm.after == "given out anew"
        assert "container 129" in uvm.note
        second = await prepare.prepare(bench.machines, later, [stale], reading=bench.reading)
        assert not second.changes
        assert {r.outcome for r in await bench.back(plan, list(results.values()))} == {
            Outcome.APPLIED
        }
        assert tree.read(CONF).decode() == OLD_CONF
