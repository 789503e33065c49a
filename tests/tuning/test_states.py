"""Running, configured and effective states, and what a reboot will change."""

from __future__ import annotations

from backends.tuning.engine import evaluate
from backends.tuning.facts import Fact, FactsDocument, Value
from backends.tuning.findings import Columns
from backends.tuning.reboot import preview
from tests.tuning.samples import LXC_STALE, PROC_DEVICES

CPU0 = "/sys/devices/system/cpu/cpu0"


def host(**more: Value) -> FactsDocument:
    facts: dict[str, Value] = {
        "/proc/sys/kernel/osrelease": "6.8.12-1-pve",
        "boot/default_kernel": "6.14.11-4-pve",
        "nvrm/version": "575.57.08",
        "module/nvidia/version": "580.95.05",
        "/proc/cmdline": "root=ZFS=rpool quiet mitigations=off",
        "/etc/kernel/cmdline": "root=ZFS=rpool quiet iommu=pt",
        "boot/loader": "systemd-boot",
        "/sys/devices/system/node/online": "0-1",
        "/proc/sys/kernel/numa_balancing": "0",
        "/proc/sys/vm/swappiness": "10",
        "/etc/sysctl.d/90-gpuroom.conf": "vm.swappiness = 10\n",
        "/sys/devices/system/cpu/online": "0",
        f"{CPU0}/cpufreq/scaling_governor": "performance",
        f"{CPU0}/cpuidle/state2/disable": "1",
        f"{CPU0}/cpuidle/state2/name": "C2",
        "/etc/tmpfiles.d/x.conf": f"w {CPU0[:-1]}*/cpufreq/scaling_governor - - - - powersave\n",
        "/etc/modprobe.d/uvm.conf": "# x\noptions nvidia_uvm uvm_disable_hmm=1\n",
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "Y",
        "/etc/pve/lxc/129.conf": LXC_STALE.replace("504", "509"),
        "/proc/devices": PROC_DEVICES,
        "gpu/0000:06:00.0/power_limit_w": 500,
        "gpu/0000:06:00.0/power_default_w": 600,
        "gpu/0000:06:00.0/ecc_current": "Enabled",
        "gpu/0000:06:00.0/ecc_pending": "Disabled",
        **more,
    }
    return FactsDocument([Fact(key, value, "test") for key, value in facts.items()])


def test_a_reboot_is_known_before_it_happens() -> None:
    changes = {(c.what, c.now, c.after): c for c in preview(host())}
    assert ("kernel", "6.8.12-1-pve", "6.14.11-4-pve") in changes
    assert ("NVIDIA module", "575.57.08", "580.95.05") in changes
    assert ("kernel flag", "not set", "iommu=pt") in changes
    assert ("kernel flag", "mitigations=off", "not set") in changes
    uvm = changes["major of nvidia-uvm", "509", "given out anew"]
    assert not uvm.certain
    assert "129" in uvm.note
    assert ("kernel.numa_balancing", "0", "1") in changes
    assert (f"{CPU0}/cpufreq/scaling_governor", "performance", "powersave") in changes
    assert ("idle state C2", "off", "on") in changes
    assert ("power limit of GPU 06:00.0", "500 W", "600 W") in changes
    assert ("ECC of GPU 06:00.0", "on", "off") in changes
    assert not any(c.what == "vm.swappiness" for c in changes.values())
    assert not any("195" in c.now for c in changes.values())


def test_nothing_read_is_nothing_said() -> None:
    assert preview(FactsDocument()) == []


def test_three_columns_of_what_persists() -> None:
    found = {f.check: f.columns for f in evaluate(host())}
    assert found["vm.swappiness"] == Columns("10", "10", "10")
    assert found["numa.balancing"] == Columns("0", "not set", "0")
    assert found["cpu.governor"] == Columns("performance", "powersave", "performance")
    assert found["gpu.hmm"] == Columns("Y", "1", "Y")
    mitigations = found["kernel.mitigations"]
    assert mitigations is not None
    assert (mitigations.running, mitigations.configured) == ("mitigations=off", "not set")
    assert found["cuda.init"] is None


def test_files_that_were_not_read_are_no_configuration() -> None:
    facts = FactsDocument([Fact("/proc/sys/vm/swappiness", "10", "test")])
    found = {f.check: f.columns for f in evaluate(facts)}
    assert found["vm.swappiness"] == Columns("10", None, "10")
