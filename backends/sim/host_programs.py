"""Programs of the demo host: `sh` scripts in its /usr/bin; each knows its folder by its own path.

They print what such programs print on such a machine, and change nothing but its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

KERNEL: Final = "6.8.12-9-pve"
DRIVER: Final = "595.58.03"
LOG: Final = "/var/log/boot"
"""What the kernel said while the host came up; what came since stands in the simulated /proc."""
SMI: Final = "/usr/share/demo"
"""Where the output of the simulated `nvidia-smi` lies."""
LIMITS: Final = f"{SMI}/limits"
"""Power limits that it has set since the boot; the simulated driver follows."""
_SYSTEMCTL: Final = """\
case "$1 $2 $3" in
"is-active nvidia-persistenced "|"is-active irqbalance ") echo active;;
"is-active "*) echo inactive; exit 3;;
"is-enabled nvidia-persistenced ") echo enabled;;
"enable --now chrony")
  read -r up _ < "$ROOT/proc/uptime"
  echo "[ $up] audit: type=1400 apparmor=\\"DENIED\\" operation=\\"open\\"" \\
    "profile=\\"/usr/sbin/chronyd\\" name=\\"/etc/chrony/chrony.keys\\"" >> "$ROOT/proc/kernel.log"
  echo "Job for chrony.service failed because the control process exited with error code."
  exit 1;;
"reboot  ") : > "$ROOT/run/reboot";;
"show *.service"*) printf 'Id=chrony.service\\nNRestarts=0\\n';;
esac"""
_SYSCTL: Final = """\
for word; do case "$word" in *=*)
  name=${word%%=*} value=${word#*=}
  file="$ROOT/proc/sys/$(echo "$name" | tr . /)"
  [ -e "$file" ] || { echo "sysctl: cannot stat /proc/sys/$name: No such file"; exit 1; }
  echo "$value" > "$file"
  case "$name" in
  vm.dirty_bytes) echo 0 > "$ROOT/proc/sys/vm/dirty_ratio";;
  vm.dirty_ratio) echo 0 > "$ROOT/proc/sys/vm/dirty_bytes";;
  esac
  echo "$name = $value";;
esac; done"""
_SETPCI: Final = """\
file="$ROOT/sys/bus/pci/devices/$2/config"
case "$3" in
ECAP_ACS+6.w=*) at=262;;
CAP_EXP+8.w=*) at=104;;
*) echo "setpci: not simulated: $3" >&2; exit 1;;
esac
new=${3#*=}; mask=${new#*:}; new=${new%:*}
set -- $(od -An -tu1 -j$at -N2 "$file")
word=$(((($1 + 256 * $2) & ~0x$mask & 0xffff) | (0x$new & 0x$mask)))
printf "$(printf '\\%03o\\%03o' $((word & 255)) $((word >> 8)))" |
  dd of="$file" bs=1 seek=$at conv=notrunc status=none"""
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
    "docker": "echo cgroupfs",
    "dpkg": "printf 'nvidia-dkms-595-open install\\nnvidia-driver-595-open hold\\n'",
    "dmidecode": (
        "for n in 1 2 3 4; do printf 'Memory Device\\n\\tSize: 64 GB\\n\\tSpeed: 6400 MT/s\\n"
        "\\tConfigured Memory Speed: 4800 MT/s\\n\\n'; done"
    ),
    "pveversion": f"echo 'pve-manager/8.4.1/2a5fa54a8503f96d (running kernel: {KERNEL})'",
    "reboot": ': > "$ROOT/run/reboot"',
    "setpci": _SETPCI,
    "modinfo": 'cat "$ROOT/sys/module/nvidia/version"',
    "nvidia-smi": f"""\
case "$*" in
"-q -x") cat "$ROOT{SMI}/q";;
"-i "*" -pl "*)
  [ "$4" -ge 300 ] && [ "$4" -le 600 ] || {{
    echo "Provided power limit $4.00 W is not a valid power limit which should be between" \
      "300.00 W and 600.00 W for GPU 0000$2"; exit 255; }}
  echo "$2 $4" >> "$ROOT{LIMITS}"
  echo "Power limit for GPU 0000$2 was set to $4.00 W.";;
"topo -m") cat "$ROOT{SMI}/topo";;
"topo -p2p r"|"topo -p2p w") cat "$ROOT{SMI}/p2p";;
*) echo "not simulated: nvidia-smi $*" >&2; exit 2;;
esac""",
    "python3": 'cat "$ROOT/usr/share/demo/cuda"',
    "update-initramfs": f"echo 'update-initramfs: Generating /boot/initrd.img-{KERNEL}'",
    "update-grub": "echo 'Generating grub configuration file ...'",
    "sysctl": _SYSCTL,
    "mkdir": 'shift $(($# - 1)); exec /bin/mkdir -p "$ROOT$1"',
    "nvidia-modprobe": "exit 0",
    "systemd-tmpfiles": 'exec /bin/mkdir -p "$ROOT/var/log/journal/5a1e00000000"',
    "udevadm": "exit 0",
}


def scripts() -> dict[str, str]:
    """Text of each program by name."""
    head = '#!/bin/sh\nROOT="${0%/usr/bin/*}"\n'
    return {name: f"{head}{text}\n" for name, text in _PROGRAMS.items()}


def boot_log(cmdline: str) -> str:
    """What its kernel said while it came up."""
    lines = (
        f"Linux version {KERNEL} (build@proxmox) #1 SMP PREEMPT_DYNAMIC PMX",
        f"Command line: {cmdline}",
        "mem auto-init: stack:all(zero), heap alloc:off, heap free:off",
        "iommu: Default domain type: Passthrough (set via kernel command line)",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability LTR DPC]",
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build",
    )  # fmt: skip
    return "".join(f"[{n:5d}.{n * 137911 % 1000000:06d}] {line}\n" for n, line in enumerate(lines))


def details(bus_ids: Sequence[str]) -> str:
    """What `nvidia-smi -q -x` prints of what NVML has no call for."""
    cards = "".join(
        f'\t<gpu id="0000{bus_id.upper()}">\n\t\t<addressing_mode>HMM</addressing_mode>\n'
        f"\t\t<gsp_firmware_version>{DRIVER}</gsp_firmware_version>\n\t</gpu>\n"
        for bus_id in bus_ids
    )
    return (
        f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n\t<driver_version>{DRIVER}</driver_version>\n'
        f"\t<attached_gpus>{len(bus_ids)}</attached_gpus>\n{cards}</nvidia_smi_log>"
    )


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
