"""Edits of files: what changes, what stays, twice without harm, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.tuning.engine import evaluate
from backends.tuning.fixes import EditFile
from backends.tuning.plans import PlanError, cmdline, dropins, plan, proxmox
from tests.tuning.cases import CASES, document
from tests.tuning.samples import LXC_DEVN, LXC_STALE

GRUB = """\
# If you change this file, run 'update-grub' afterwards.
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_CMDLINE_LINUX_DEFAULT="quiet amd_iommu=off"   # ours
GRUB_CMDLINE_LINUX="console=tty0"

#GRUB_GFXMODE=640x480
"""
ZFS = "root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet\n"


def test_grub_changes_one_line_alone() -> None:
    new = cmdline.edit_grub(GRUB, ["iommu=pt", "amd_iommu=on"])
    assert 'GRUB_CMDLINE_LINUX_DEFAULT="quiet amd_iommu=on iommu=pt"   # ours' in new
    old_lines, new_lines = GRUB.split("\n"), new.split("\n")
    assert len(old_lines) == len(new_lines)
    assert [i for i, (a, b) in enumerate(zip(old_lines, new_lines, strict=True)) if a != b] == [3]


@pytest.mark.parametrize("add", [["iommu=pt"], ["pci=disable_acs_redir=0000:00:01.1"], []])
def test_twice_changes_nothing_more(add: list[str]) -> None:
    once = cmdline.edit_grub(GRUB, add, ["amd_iommu"])
    assert cmdline.edit_grub(once, add, ["amd_iommu"]) == once
    line = cmdline.edit_systemd_boot(ZFS, add, ["quiet"])
    assert cmdline.edit_systemd_boot(line, add, ["quiet"]) == line


def test_what_is_there_already_leaves_the_file_byte_for_byte() -> None:
    assert cmdline.edit_grub(GRUB, ["quiet"]) == GRUB
    assert cmdline.edit_systemd_boot(ZFS, ["quiet"]) == ZFS
    assert cmdline.edit_systemd_boot(ZFS.strip(), []) == ZFS.strip()


def test_pci_flags_add_up_and_others_replace_their_namesake() -> None:
    assert cmdline.change(["pci=realloc", "iommu=off"], ["pci=noaer", "iommu=pt"], []) == [
        "pci=realloc",
        "iommu=pt",
        "pci=noaer",
    ]
    assert cmdline.change(["isolcpus=1", "quiet"], [], ["isolcpus"]) == ["quiet"]
    assert cmdline.change(["amd-pstate=passive"], ["amd_pstate=active"], []) == [
        "amd_pstate=active"
    ]


def test_systemd_boot_stays_one_line() -> None:
    new = cmdline.edit_systemd_boot(ZFS, ["iommu=pt"])
    assert new == "root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet iommu=pt\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quiet\n",
        "root=/dev/sda\nquiet\n",
        "# root=/dev/sda\n",
        'root=/dev/sda "quiet\n',
        "root=/dev/sda -- init\n",
    ],
)
def test_a_command_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        cmdline.edit_systemd_boot(text, ["iommu=pt"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        'GRUB_CMDLINE_LINUX_DEFAULT="quiet\n',
        "GRUB_CMDLINE_LINUX_DEFAULT=`id`\n",
        'GRUB_CMDLINE_LINUX_DEFAULT="a" "b"\n',
        'GRUB_CMDLINE_LINUX_DEFAULT="a"\nGRUB_CMDLINE_LINUX_DEFAULT="b"\n',
    ],
)
def test_a_grub_file_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        cmdline.edit_grub(text, ["iommu=pt"])


@pytest.mark.parametrize("flag", ["a b", 'x="y"', "$(id)", "a;b", "", "x=`y`", "a\nb", "--"])
def test_no_flag_carries_anything_else(flag: str) -> None:
    with pytest.raises(PlanError):
        cmdline.edit_systemd_boot(ZFS, [flag])


def test_grub_flags_come_from_both_variables_and_drop_ins() -> None:
    own = cmdline.grub_dropin(["iommu=pt"])
    assert cmdline.grub_flags(GRUB, [own]) == ["console=tty0", "quiet", "amd_iommu=off", "iommu=pt"]


def test_drift_ignores_what_the_loader_adds() -> None:
    running = cmdline.parse_flags("BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro quiet iommu=pt")
    assert cmdline.differences(["iommu=pt", "amd_pstate=active"], running) == (
        ["amd_pstate=active"],
        [],
    )


@given(st.text(max_size=200))
def test_no_text_makes_the_editors_crash(text: str) -> None:
    for edit in (cmdline.edit_grub, cmdline.edit_systemd_boot):
        try:
            new = edit(text, ["iommu=pt"])
        except PlanError:
            continue
        assert edit(new, ["iommu=pt"]) == new
        assert "iommu=pt" in new


def test_devn_replaces_rules_and_mounts_before_the_snapshots() -> None:
    nodes = proxmox.parse_lxc(LXC_STALE.split("\n")).nodes
    new = proxmox.edit_devn(LXC_STALE, nodes)
    live, _, snapshot = new.partition("[before-upgrade]")
    assert "lxc.cgroup2" not in live
    assert "lxc.mount.entry" not in live
    assert "dev0: /dev/nvidia0,mode=0666" in live
    assert "dev3: /dev/nvidia-caps/nvidia-cap1,mode=0666" in live
    assert "[before-upgrade]" + snapshot == LXC_STALE[LXC_STALE.index("[before-upgrade]") :]
    assert live.startswith("#GPU container\narch: amd64\ncores: 64\n")
    assert proxmox.edit_devn(new, nodes) == new


def test_devn_keeps_rules_that_are_not_about_gpus() -> None:
    text = LXC_DEVN + "lxc.cgroup2.devices.allow: c 10:200 rwm\nlxc.apparmor.profile: unconfined\n"
    new = proxmox.edit_devn(text, ["/dev/nvidia0", "/dev/nvidia-uvm-tools"])
    assert "c 10:200 rwm" in new
    assert "lxc.apparmor.profile: unconfined" in new
    assert "dev3: /dev/nvidia-uvm-tools,mode=0666" in new
    assert new.count("/dev/nvidia0,") == 1


@pytest.mark.parametrize("node", ["nvidia0", "/etc/passwd", "/dev/../etc/passwd", "/dev/a b"])
def test_devn_takes_device_nodes_alone(node: str) -> None:
    with pytest.raises(PlanError):
        proxmox.edit_devn(LXC_DEVN, [node])


def test_a_text_that_is_no_configuration_is_refused() -> None:
    with pytest.raises(PlanError):
        proxmox.edit_devn("", ["/dev/nvidia0"])


def test_drop_ins_hold_one_line_a_setting() -> None:
    once = dropins.sysctl("", [("vm.swappiness", "10"), ("kernel.numa_balancing", "0")])
    again = dropins.sysctl(once, [("vm.swappiness", "1")])
    assert again.count("vm.swappiness") == 1
    assert "vm.swappiness = 1\n" in again
    assert dropins.sysctl(again, [("vm.swappiness", "1")]) == again
    files = dropins.tmpfiles(
        "", [("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "performance")]
    )
    assert "w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance" in files
    module = dropins.modprobe("", [("nvidia_uvm", "uvm_disable_hmm=1")])
    assert "options nvidia_uvm uvm_disable_hmm=1\n" in module
    assert dropins.modprobe(module, [("nvidia_uvm", "uvm_disable_hmm=0")]).count("options") == 1


@pytest.mark.parametrize(
    ("planner", "setting"),
    [
        ("sysctl", ("vm.swappiness", "1\nkernel.x = 2")),
        ("sysctl", ("../etc", "1")),
        ("tmpfiles", ("/etc/passwd", "x")),
        ("tmpfiles", ("/sys/../etc/passwd", "x")),
        ("modprobe", ("nvidia", "x")),
        ("modprobe", ("a b", "x=1")),
    ],
)
def test_drop_ins_take_nothing_else(planner: str, setting: tuple[str, str]) -> None:
    with pytest.raises(PlanError):
        plan(planner, "", (setting,))


def test_units_escape_what_systemd_would_expand() -> None:
    text = dropins.unit("x", [("/usr/bin/env", "a b", "100%", "$HOME", 'say "x"')])
    assert 'ExecStart=/usr/bin/env "a b" 100%% $$HOME "say \\"x\\""' in text
    with pytest.raises(PlanError):
        dropins.unit("x", [("set pci", "-s")])
    with pytest.raises(PlanError):
        dropins.unit("x", [("/bin/true", "a\nExecStart=/bin/sh")])
    made = dropins.uvm_unit(proxmox=True)
    assert "Before=pve-guests.service" in made
    assert "ExecStart=/usr/bin/test -c /dev/nvidia-uvm" in made


def test_our_unit_gathers_commands_and_replaces_what_is_set_again() -> None:
    once = dropins.tune_unit("", ["setpci -s 06:00.0 CAP_EXP+8.w=5000:7000"])
    more = dropins.tune_unit(once, ["nvidia-smi -i 0 -pl 500"])
    again = dropins.tune_unit(more, ["setpci -s 06:00.0 CAP_EXP+8.w=2000:7000"])
    commands = [line for line in again.split("\n") if line.startswith("ExecStart=")]
    assert commands == [
        "ExecStart=nvidia-smi -i 0 -pl 500",
        "ExecStart=setpci -s 06:00.0 CAP_EXP+8.w=2000:7000",
    ]
    assert dropins.tune_unit(again, ["nvidia-smi -i 0 -pl 500"]) == again
    assert "-pl 500" not in dropins.tune_unit(again, ["nvidia-smi -i 0 -pl 600"])
    with pytest.raises(PlanError):
        dropins.tune_unit("[Unit]\nDescription=theirs\n", ["/bin/true"])


def test_udev_rules_hold_one_line_an_attribute() -> None:
    once = dropins.udev("", [("pci:0000:06:00.0", "power/control=on")])
    assert (
        'ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:06:00.0", ATTR{power/control}="on"' in once
    )
    assert dropins.udev(once, [("pci:0000:06:00.0", "power/control=on")]) == once
    for device, setting in (
        ("pci:a b", "x=1"),
        ('pci:0"', "x=1"),
        ("pci:0", 'x=1", RUN+="/bin/sh'),
    ):
        with pytest.raises(PlanError):
            dropins.udev("", [(device, setting)])


OLD_TEXTS = {
    "kernel_command_line": GRUB,
    "lxc_devn": LXC_STALE,
}


@pytest.mark.parametrize("rule", CASES)
def test_every_fix_can_be_planned(rule: str) -> None:
    for finding in evaluate(document(CASES[rule].bad)):
        if finding.rule != rule or finding.fix is None:
            continue
        fix = finding.fix
        assert fix.summary
        assert fix.undo
        assert fix.manual or fix.applicable, finding.check
        for step in (*fix.runtime, *fix.persistent):
            if isinstance(step, EditFile):
                old = OLD_TEXTS.get(step.planner, "")
                new = plan(step.planner, old, step.arguments, loader="grub")
                assert plan(step.planner, new, step.arguments, loader="grub") == new
