"""Programs of the demo host: `sh` scripts in its /usr/bin; each knows its folder by its own path.

They print what such programs print on such a machine, and change nothing but its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

LOG: Final = "/var/log/boot"
"""What the kernel said while the host came up; what came since stands in the simulated /proc."""
SMI: Final = "/usr/share/demo"
"""Where the output of the simulated `nvidia-smi` lies."""
_SYSTEMCTL: Final = """\
case "$1 $2 $3" in
"is-active nvidia-persistenced "|"is-active irqbalance "|"is-active thermald ") echo active;;
"is-active "*) echo inactive; exit 3;;
"is-enabled nvidia-persistenced ") echo enabled;;
"enable --now chrony")
  read -r up _ < "$ROOT/proc/uptime"
  echo "[ $up] audit: type=1400 apparmor=\\"DENIED\\" operation=\\"open\\"" \\
    "profile=\\"/usr/sbin/chronyd\\" name=\\"/etc/chrony/chrony.keys\\"" >> "$ROOT/proc/kernel.log"
  echo "Job for chrony.service failed because the control process exited with error code."
  exit 1;;
"show *.service"*) printf 'Id=chrony.service\\nNRestarts=0\\n';;
esac"""
_KERNEL: Final = f"""\
cat "$ROOT{LOG}"
sed 's/^\\([^[]\\)/[ 0.000000] \\1/' "$ROOT/proc/kernel.log" """
_PROGRAMS: Final[Mapping[str, str]] = {
    "systemd-detect-virt": "echo none",
    "lscpu": (
        "echo 'Vendor ID: AuthenticAMD'; echo 'CPU family: 26'; echo 'Model: 2'\n"
        "echo 'Thread(s) per core: 1'; echo 'Socket(s): 2'"
    ),
    "systemctl": _SYSTEMCTL,
    "timedatectl": "echo NTPSynchronized=no",
    "dmesg": _KERNEL,
    "journalctl": _KERNEL,
    "ss": (
        "echo 'State Recv-Q Send-Q Local Address:Port Peer Address:Port'\n"
        "echo 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:*'; echo 'LISTEN 0 2048 0.0.0.0:30000 0.0.0.0:*'"
    ),
    "dpkg": "printf 'nvidia-dkms-595-open install\\nnvidia-driver-595-open hold\\n'",
    "dmidecode": (
        "for n in 1 2 3 4; do printf 'Memory Device\\n\\tSize: 64 GB\\n\\tSpeed: 6400 MT/s\\n"
        "\\tConfigured Memory Speed: 6400 MT/s\\n\\n'; done"
    ),
    "modinfo": 'cat "$ROOT/sys/module/nvidia/version"',
    "nvidia-smi": f"""\
case "$*" in
"topo -m") cat "$ROOT{SMI}/topo";;
"topo -p2p r"|"topo -p2p w") cat "$ROOT{SMI}/p2p";;
*) echo "not simulated: nvidia-smi $*" >&2; exit 2;;
esac""",
    "python3": 'cat "$ROOT/usr/share/demo/cuda"',
    "update-grub": "echo 'Generating grub configuration file ...'",
    "sysctl": "exit 0",
    "mkdir": 'shift $(($# - 1)); exec /bin/mkdir -p "$ROOT$1"',
    "systemd-tmpfiles": "exit 0",
}


def scripts(others: Mapping[str, str]) -> dict[str, str]:
    """Text of each program by name.

    Args:
        others: Scripts of a host of its own kind, in the place of the usual ones.
    """
    head = '#!/bin/sh\nROOT="${0%/usr/bin/*}"\n'
    return {name: f"{head}{text}\n" for name, text in {**_PROGRAMS, **others}.items()}


def boot_log(kernel: str, driver: str, cmdline: str) -> str:
    """What its kernel said while it came up."""
    lines = (
        f"Linux version {kernel} (buildd@lcy02) #63-Ubuntu SMP",
        f"Command line: {cmdline}",
        "mem auto-init: stack:all(zero), heap alloc:off, heap free:off",
        "iommu: Default domain type: Passthrough (set via kernel command line)",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability LTR DPC]",
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build",
    )  # fmt: skip
    return "".join(f"[{n:5d}.{n * 137911 % 1000000:06d}] {line}\n" for n, line in enumerate(lines))


def topology(nodes: Sequence[int], cpus: Sequence[str]) -> str:
    """What `nvidia-smi topo -m` prints.

    Args:
        nodes: NUMA node of each card.
        cpus: CPUs of each node.
    """
    head = ["", *(f"GPU{card}" for card in range(len(nodes)))]
    rows = ["\t".join([*head, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for card, node in enumerate(nodes):
        cells = [
            " X " if other == card else "NODE" if at == node else "SYS"
            for other, at in enumerate(nodes)
        ]
        rows.append("\t".join([f"GPU{card}", *cells, cpus[node], str(node), "N/A"]))
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n"


def peers(cards: int) -> str:
    """What `nvidia-smi topo -p2p r` prints where every pair may."""
    rows = [" \t" + "\t".join(f"GPU{card}" for card in range(cards))]
    for card in range(cards):
        cells = ["X" if other == card else "OK" for other in range(cards)]
        rows.append("\t".join([f" GPU{card}", *cells]))
    return "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
