"""Guests and hypervisors: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import (
    ALLOW,
    BARE,
    DEVICES,
    DEVN,
    GA,
    GPU_PCI,
    LOG,
    LXC,
    LXC_BASE,
    MOUNTS,
    ONE_GPU,
    PA,
    PLAIN_LXC,
    QEMU,
    STALE,
    VM,
    A,
    Case,
    Missing,
)

CASES: Mapping[str, Case] = {
    # Virtualisation
    "virt.kind": Case(
        BARE, VM, {}, good_verdict="INFO", bad_verdict="INFO", none_verdict="UNKNOWN"
    ),
    "virt.lxc_majors": Case(
        {"pve/lxc/129": [*LXC_BASE, *ALLOW, *MOUNTS], "/proc/devices": DEVICES},
        {"pve/lxc/129": [*LXC_BASE, *STALE, *MOUNTS], "/proc/devices": DEVICES},
        PLAIN_LXC,
    ),
    "virt.lxc_devn": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": [*LXC_BASE, *ALLOW, *MOUNTS]},
        PLAIN_LXC,
        bad_verdict="WARN",
    ),
    "virt.dev_nodes": Case(
        {
            "node//dev/nvidiactl": "195:255 666 root root",
            "node//dev/nvidia-uvm": "509:0 666 root root",
            "/proc/devices": DEVICES,
        },
        {
            "node//dev/nvidiactl": "195:255 666 root root",
            "node//dev/nvidia-uvm": "504:0 666 root root",
            "/proc/devices": DEVICES,
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "virt.uvm_boot": Case(
        {"boot/uvm_before_guests": "nvidia-uvm.service"},
        {"node//dev/nvidia-uvm": Missing()},
        {"boot/uvm_before_guests": "no"},
        none_verdict="INFO",
    ),
    "virt.lxc_priv": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": ["unprivileged: 1", "hostname: docker-gpu", *DEVN]},
        VM,
    ),
    "virt.lxc_limits": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": [*LXC_BASE, "cpulimit: 2", *DEVN]},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "virt.module_order": Case(
        {**LXC, "packages/nvidia_dkms": "none"},
        {**LXC, "packages/nvidia_dkms": "nvidia-dkms-580"},
        BARE,
        bad_verdict="WARN",
    ),
    "virt.vm_machine": Case(
        {"pve/qemu/100": QEMU},
        {"pve/qemu/100": ["cpu: kvm64", *QEMU[:2], QEMU[3]]},
        {"pve/qemu/100": QEMU[:3]},
    ),
    "virt.vm_p2p": Case(
        {
            "pve/qemu/100": [
                *QEMU,
                "hostpci1: 0000:07:00.0,pcie=1",
                "args: -set device.hostpci0.x-nv-gpudirect-clique=0",
            ],
            "p2p/r/0/1": "OK",
            "p2p/r/1/0": "OK",
        },
        {"pve/qemu/100": ["cpu: host,hidden=1", *QEMU[3:], "hostpci1: 0000:07:00.0,pcie=1"]},
        ONE_GPU,
    ),
    "virt.vm_memory": Case(
        {"pve/qemu/100": QEMU},
        {"pve/qemu/100": [*QEMU[:4], "balloon: 2048"]},
        VM,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "virt.vm_binding": Case(
        {
            **GPU_PCI,
            "pve/qemu/100": QEMU,
            f"{PA}/driver": "vfio-pci",
            f"{PA}/iommu_group_devices": [A, "0000:06:00.1"],
        },
        {
            **GPU_PCI,
            "pve/qemu/100": QEMU,
            f"{PA}/driver": "vfio-pci",
            f"{PA}/iommu_group_devices": [A, "0000:00:1f.2"],
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "virt.vm_reset": Case(
        {
            "pve/qemu/100": QEMU,
            f"{GA}/name": "NVIDIA RTX PRO 6000 Blackwell",
            "/sys/module/vfio_pci/parameters/disable_idle_d3": "Y",
        },
        {LOG: ["[ 99.0] vfio-pci 0000:06:00.0: not ready 65535ms after FLR; giving up"]},
        {"pve/qemu/100": QEMU, f"{GA}/name": "NVIDIA H200"},
    ),
    "virt.container_toolkit": Case(
        {"cdi/driver_version": "580.95.05", "nvrm/version": "580.95.05"},
        {"cdi/driver_version": "575.57.08", "nvrm/version": "580.95.05"},
        {"docker/present": False},
    ),
    "virt.container_cgroup": Case(
        {"cgroup/devices_list": ["c 195:255 rw", "c 195:0 rw"]},
        {"cgroup/devices_list": ["c 195:* m"]},
        {},
        none_verdict="UNKNOWN",
    ),
}
