"""What people paste: prompts, leftover colours, parts of files, refusals, other makers' words."""

from __future__ import annotations

import pytest

from tests.tuning.test_readers import verdicts

LXC_WHOLE = """arch: amd64
cores: 8
features: nesting=1
hostname: gpu
memory: 16384
ostype: ubuntu
rootfs: local-lvm:vm-110-disk-0,size=64G
swap: 512
{rules}
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
"""
NODES = """root@ct129:~# ls -l /dev/nvidia*
crw-rw-rw- 1 nobody nogroup 195,   0 Mar  2 09:11 /dev/nvidia0
crw-rw-rw- 1 nobody nogroup 195, 255 Mar  2 09:11 /dev/nvidiactl
crw-rw-rw- 1 nobody nogroup {uvm},   0 Mar  2 09:11 /dev/nvidia-uvm
root@ct129:~# grep nvidia /proc/devices
195 nvidia
237 nvidia-caps
509 nvidia-uvm
"""
BLACKWELL = """GPU 00000000:01:00.0
    Product Name                          : NVIDIA RTX PRO 6000 Blackwell Workstation Edition
    GSP Firmware Version                  : N/A
"""
BAR_FAILED = (
    "[    1.2] pci 0000:41:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: failed to assign"
)
SXM = "GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-00000000000{n})"
FABRIC = """{gpus}
○ nvidia-fabricmanager.service - NVIDIA fabric manager service
     Active: inactive (dead)
{end}
"""

CASES = [
    # A prompt before the command, and /proc/devices without its heading.
    (NODES.format(uvm=504), {"virt.dev_nodes[nvidia-uvm]": "FAIL", "cuda.uvm_node": "FAIL"}),
    (NODES.format(uvm=509), {"virt.dev_nodes[nvidia-uvm]": "PASS"}),
    # Colours whose escape characters the clipboard ate.
    (
        "\t[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID[0m\n"
        "GPU0\t X \tSYS\t0-23\t0\t\tN/A\nGPU1\tSYS\t X \t24-47\t1\t\tN/A\n",
        {"gpu.topology": "INFO", "numa.gpu_affinity[1]": "PASS"},
    ),
    # The driver's own way to say it, over three lines and without an Xid.
    (
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n",
        {"gpu.xid": "FAIL"},
    ),
    ("[   12.3] NVRM: Xid (0000:03:00): 8, Channel 00000010", {"gpu.xid": "WARN"}),
    ("[   12.3] NVRM: Xid (PCI:0000:03:00): 158, GPU Fatal Timeout", {"gpu.xid": "FAIL"}),
    # BARs: a GPU's, a bridge's window, and one that a later round did place.
    (BAR_FAILED, {"kernel.pci_alloc": "FAIL", "pcie.bar1": "FAIL"}),
    (
        "[    0.8] pci 0000:02:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]",
        {"kernel.pci_alloc": "FAIL", "pcie.bar1": "FAIL"},
    ),
    (
        "[    0.8] pci 0000:00:1c.0: BAR 13: no space for [io  size 0x1000]",
        {"kernel.pci_alloc": "INFO"},
    ),
    (
        f"{BAR_FAILED}\n[    1.9] pci 0000:41:00.0: BAR 1 [mem 0x24000000000-0x25fffffffff 64bit "
        "pref]: assigned",
        {"kernel.pci_alloc": None, "pcie.bar1": None},
    ),
    (
        "[    9.8] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "               NVRM: BAR1 is 0M @ 0x0 (PCI:0000:41:00.0)\n",
        {"kernel.pci_alloc": "FAIL"},
    ),
    # Memory modules and the clock, from the log alone.
    ("[  912.1] EDAC MC3: 1 UE on mc#3csrow#0 (csrow:0 page:0x1)", {"mem.dimms": "FAIL"}),
    ("[  812.1] EDAC MC0: 1 CE on P1-DIMMA1 (channel:0 slot:0)", {"mem.dimms": "WARN"}),
    (
        "[  61.2] clocksource: timekeeping watchdog on CPU12: Marking clocksource 'tsc' as "
        "unstable because the skew is too large:",
        {"kernel.clocksource": "WARN"},
    ),
    # Refusals of nvidia-smi.
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
        {"gpu.count": "FAIL"},
    ),
    ("# nvidia-smi\nNo devices were found\n", {"gpu.count": "FAIL"}),
    (BLACKWELL, {"gpu.gsp": "FAIL"}),
    # Containers: what is left out has its default, a rule for all is one for all.
    (
        LXC_WHOLE.format(rules="lxc.cgroup2.devices.allow: a"),
        {"virt.lxc_majors": "WARN", "virt.lxc_priv": "WARN"},
    ),
    (
        LXC_WHOLE.format(rules="lxc.cgroup.devices.allow: c 195:* rwm"),
        {"virt.lxc_majors": "WARN"},
    ),
    (
        LXC_WHOLE.format(rules="lxc.cgroup2.devices.allow: c 508:* rwm\nunprivileged: 1"),
        {"virt.lxc_majors": "UNKNOWN", "virt.lxc_priv": "PASS"},
    ),
    # devN entries without the node that CUDA needs; a paste that ends early says nothing of it.
    (
        LXC_WHOLE.format(rules="unprivileged: 1").rpartition("lxc.mount")[0]
        + "dev0: /dev/nvidia0\ndev1: /dev/nvidiactl\n",
        {"virt.lxc_majors": "PASS", "virt.lxc_devn": "WARN"},
    ),
    (
        "arch: amd64\ncores: 8\nfeatures: nesting=1\ndev0: /dev/nvidia0\ndev1: /dev/nvidiactl\n",
        {"virt.lxc_devn": "UNKNOWN"},
    ),
    # A node whose modules are all missing is no node that could not be read.
    (
        "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 257632 MB\n"
        "node 0 free: 201001 MB\nnode 1 cpus: 2 3\nnode 1 size: 0 MB\nnode 1 free: 0 MB\n",
        {"numa.memory_balance": "WARN"},
    ),
    # A board of eight has NVSwitches; of two GPUs alone nobody knows, unless CUDA waits for them.
    (
        FABRIC.format(gpus="\n".join(SXM.format(n=n) for n in range(8)), end=""),
        {"gpu.fabric_manager": "FAIL"},
    ),
    (FABRIC.format(gpus=SXM.format(n=0), end=""), {"gpu.fabric_manager": "UNKNOWN"}),
    (
        FABRIC.format(gpus=SXM.format(n=0), end="Error 802: system not yet initialized"),
        {"gpu.fabric_manager": "FAIL", "cuda.init": "FAIL"},
    ),
    (
        f"{SXM.format(n=0)}\nNVML: Unable to retrieve NVLink information as all links are inActive",
        {"gpu.nvlink": "FAIL"},
    ),
    # The governor is judged by the driver of the CPU that was printed.
    (
        'analyzing CPU 13:\n  driver: intel_pstate\n  The governor "powersave" may decide which\n',
        {"cpu.governor": "INFO"},
    ),
    (
        " PKG|CORE| CPU| C0   | Cx   | Freq || POLL | C1   | C2\n"
        "   0|   0|   0|  1.20| 98.80|  2596||  0.00|  0.50| 98.30\n",
        {"cpu.cstates": "INCONCLUSIVE"},
    ),
    # Flags that do not say what is in force.
    (
        "BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda2 ro intel_iommu=on",
        {"kernel.iommu": "UNKNOWN"},
    ),
    (
        "initrd=\\EFI\\proxmox\\6.8\\initrd.img root=ZFS=rpool/ROOT boot=zfs isolcpus=2 iommu=pt",
        {"kernel.isolation": "INFO", "kernel.iommu": "PASS"},
    ),
    (
        "/sys/bus/pci/devices/0000:01:00.0/numa_node:-1\n/sys/devices/system/node/online:0-1\n",
        {"numa.gpu_affinity": "WARN"},
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_paste_is_judged_right(text: str, expected: dict[str, str | None]) -> None:
    found = verdicts(text)
    assert {check: found.get(check) for check in expected} == expected


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_line_ends_of_windows_and_real_colours_change_nothing(
    text: str, expected: dict[str, str | None]
) -> None:
    coloured = "".join(f"\x1b[01;32m{line}\x1b[0m\r\n" for line in text.split("\n"))
    assert verdicts(coloured) == verdicts(text)
