"""Kernel command lines of every boot loader, on a real sshd: once, twice, refused, taken back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from backends.config import HostConfig
from backends.tuning import prepare
from backends.tuning.fixes import kernel_flags
from backends.tuning.machines import Machines
from backends.tuning.snapshot import BACKUPS, Outcome
from tests.tuning_live.conftest import Bench, Open
from tests.tuning_live.tree import Tree

pytestmark = pytest.mark.real
GPU01 = HostConfig(name="gpu01")
LINE = "root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet\n"
ENTRY = """\
title   Ubuntu
version {version}
linux   /ubuntu/{version}/linux
initrd  /ubuntu/{version}/initrd.img
options root=UUID=1234 ro quiet splash
"""
OPTIONS = "options root=UUID=1234 ro quiet splash iommu=pt"
STATUS = (
    "echo 'Re-executing in new mount namespace'\n"
    "echo 'System currently booted with uefi'\n"
    "echo '1234-ABCD is configured with: {how} (versions: 6.14.11-4-pve)'"
)


@dataclass(frozen=True)
class Loader:
    """How a host boots: its files, the program that makes them count, and what must come out."""

    files: dict[str, str]
    program: str
    status: str
    edited: dict[str, str]


LOADERS = {
    "grub": Loader(
        {"/etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"  # ours\n'},
        "update-grub",
        "",
        {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"  # ours'},
    ),
    "systemd-boot": Loader(
        {"/etc/kernel/cmdline": LINE},
        "kernel-install",
        "",
        {"/etc/kernel/cmdline": "root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet iommu=pt"},
    ),
    "entries": Loader(
        {
            f"/boot/efi/loader/entries/ubuntu-{v}.conf": ENTRY.format(version=v)
            for v in ("6.8.0-60", "6.8.0-71")
        }
        | {"/boot/efi/loader/entries/windows.conf": "title Windows\nefi /EFI/ms/bootmgfw.efi\n"},
        "",
        "",
        {
            f"/boot/efi/loader/entries/ubuntu-{v}.conf": OPTIONS
            for v in ("6.8.0-60", "6.8.0-71")
        },
    ),
    "proxmox-boot-tool": Loader(
        {"/etc/kernel/cmdline": LINE, "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'},
        "proxmox-boot-tool",
        STATUS.format(how="uefi"),
        {"/etc/kernel/cmdline": "root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet iommu=pt"},
    ),
    "proxmox-boot-tool with grub": Loader(
        {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', "/etc/kernel/cmdline": LINE},
        "proxmox-boot-tool",
        STATUS.format(how="grub"),
        {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"'},
    ),
}  # fmt: skip


def lay(tree: Tree, loader: Loader) -> None:
    """Make the host boot that way; its program notes each run."""
    tree.at("/etc/default/grub").unlink()
    for path, text in loader.files.items():
        tree.put(path, text)
    if loader.program:
        note = f'[ "$1" = status ] || echo "$0 $*" >> "$GPUROOM_ROOT/refreshed"\n{loader.status}'
        tree.program(loader.program, note if loader.status else note.partition("\n")[0])


def runs(tree: Tree) -> int:
    """How often the loader was told."""
    place = tree.at("/refreshed")
    return len(place.read_text().splitlines()) if place.exists() else 0


@pytest.mark.parametrize("name", LOADERS)
async def test_edited_twice_without_harm_and_taken_back(
    open_hosts: Open, tree: Tree, name: str
) -> None:
    loader = LOADERS[name]
    lay(tree, loader)
    before = {path: tree.read(path) for path in loader.files}
    once = 1 if loader.program else 0
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        wanted = [replace(findings["cpu.scaling_driver"], fix=kernel_flags("iommu=pt"))]

        async def plan() -> prepare.Plan:
            return await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)

        first = await plan()
        for text in loader.edited.values():
            assert f"  +{text}" in first.lines(), "shown as a difference"
        results = await bench.carry_out(first)
        assert {r.outcome for r in results.values()} == {Outcome.NEEDS_REBOOT}, results
        for path in loader.files:
            lines = tree.read(path).decode().splitlines()
            if path in loader.edited:
                assert loader.edited[path] in lines
                copy = f"{BACKUPS}/{first.snapshot.snapshot_id}{path}"
                assert tree.read(copy) == before[path]
            else:
                assert tree.read(path) == before[path], "the other loader's file stays"
        edited = {path: tree.read(path) for path in loader.files}
        assert runs(tree) == once
        second = await plan()
        assert not second.changes
        await bench.carry_out(second)
        assert {path: tree.read(path) for path in loader.files} == edited
        assert runs(tree) == once, "nothing to tell the loader the second time"
        back = await bench.back(first, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.APPLIED}, back
        assert {path: tree.read(path) for path in loader.files} == before
        assert runs(tree) == 2 * once, "and the loader is told"


BROKEN = {
    "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet $(rm -rf /)"\n',
    "/etc/kernel/cmdline": "root=/dev/sda1 quiet\nsecond=line\n",
    "/efi/loader/entries/a.conf": "title a\noptions quiet\noptions root=/dev/sda1\n",
}


@pytest.mark.parametrize("path", BROKEN)
async def test_what_does_not_parse_is_refused_and_not_written(
    open_hosts: Open, tree: Tree, path: str
) -> None:
    tree.at("/etc/default/grub").unlink()
    tree.put(path, BROKEN[path])
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        wanted = [
            replace(findings["cpu.scaling_driver"], fix=kernel_flags("iommu=pt")),
            findings["numa.balancing"],
        ]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        assert any("cannot be done" in line for line in plan.lines())
        results = await bench.carry_out(plan)
        assert results["cpu.scaling_driver"].outcome is Outcome.REFUSED
        assert results["numa.balancing"].outcome is Outcome.APPLIED
        assert tree.read(path).decode() == BROKEN[path]


async def test_two_loaders_files_and_nobody_says_which(open_hosts: Open, tree: Tree) -> None:
    tree.put("/etc/kernel/cmdline", LINE)
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        wanted = [replace(findings["cpu.scaling_driver"], fix=kernel_flags("iommu=pt"))]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        assert "boot loader is not known" in plan.tasks[0].problem
        tree.put(
            "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",
            b"\x06\0\0\0" + "systemd-boot 255.4\0".encode("utf-16-le"),
        )
        found, _ = await bench.judge()
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        assert plan.tasks[0].steps[-2].path == "/etc/kernel/cmdline"
