"""Small answers of shells and Docker, and what mails, pages and lists do to any of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.tuning import samples
from tests.tuning.test_readers import verdicts

INFO = """Server:
 Storage Driver: overlay2
 Cgroup Driver: {driver}
 Runtimes: io.containerd.runc.v2 {runtime}
 Architecture: x86_64
{cdi}"""
DAEMON = '{\n  "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},\n'
DMON = """# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  tviol  sbecc  dbecc
# Idx      W      C      C      %      %    MHz    MHz   bool   errs   errs
    0    310     60      -    100     55   9501   1410      0      -      -
    0    310     {hot}      -    100     55   9501   1410      {viol}      -      -
    1     20     35      -      0      0    405    210      0      0      {bad}
"""
IDLE = """CPUidle driver: acpi_idle
analyzing CPU 0:
Number of idle states: 3
POLL:
Latency: 0
C1:
Latency: 1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            INFO.format(driver="cgroupfs", runtime="nvidia runc", cdi=""),
            {"virt.container_toolkit": "PASS", "virt.container_cgroup": "PASS"},
        ),
        (
            INFO.format(driver="systemd", runtime="runc", cdi=""),
            {"virt.container_toolkit": "FAIL", "virt.container_cgroup": "UNKNOWN"},
        ),
        (
            INFO.format(driver="systemd", runtime="runc", cdi="  cdi: nvidia.com/gpu=all\n"),
            {"virt.container_toolkit": "PASS"},
        ),
        (
            DAEMON + '  "exec-opts": ["native.cgroupdriver=cgroupfs"]\n}\n',
            {"virt.container_toolkit": "PASS", "virt.container_cgroup": "PASS"},
        ),
        (
            '$ cat /etc/docker/daemon.json\n{\n  "ipv6": true\n}\n',
            {"virt.container_toolkit": "FAIL"},
        ),
        ('{\n  "ipv6": true\n}\n', {"virt.container_toolkit": None}),
        ('$ cat /etc/docker/daemon.json\n{\n  "ipv6": tr', {"virt.container_toolkit": None}),
        ("$ ulimit -l\n64\n$ ulimit -n\n1024\n", {"vm.memlock": "INFO", "vm.nofile": "INFO"}),
        (
            "  UNIT LOAD ACTIVE SUB DESCRIPTION\n● a.service loaded failed failed A\n",
            {"svc.failed_units": "INFO"},
        ),
        (
            "  UNIT LOAD ACTIVE SUB DESCRIPTION\n0 loaded units listed.\n",
            {"svc.failed_units": "PASS"},
        ),
        (
            "× nvidia-persistenced.service - NVIDIA\n"
            "     Loaded: loaded (/lib/systemd/system/n.service; enabled; preset: enabled)\n"
            "     Active: failed (Result: exit-code) since Thu\n",
            {"svc.persistenced": "WARN"},
        ),
        (
            DMON.format(hot=97, viol=1, bad=0),
            {"gpu.temperature[0]": "WARN", "gpu.throttle": "WARN"},
        ),
        (DMON.format(hot=60, viol=0, bad=2), {"gpu.throttle": None, "gpu.ecc_errors": "WARN"}),
        (
            "console=ttyS0,115200 root=/dev/nvme0n1p2 rw mitigations=off iommu=pt\n",
            {"kernel.iommu": "PASS", "kernel.mitigations": "WARN"},
        ),
        ("the volume root=/dev/sda1 is full=yes of files\n", {"kernel.mitigations": None}),
        ("$ cat /proc/sys/vm/swappiness\n$ nproc\n64\n", {"vm.swappiness": None}),
        (
            "$ cat /proc/sys/vm/swappiness /proc/sys/kernel/numa_balancing\n60\n1\n"
            "$ cat /sys/devices/system/node/online\n0-1\n",
            {"vm.swappiness": "INFO", "numa.balancing": "WARN"},
        ),
        (
            "$ cat /proc/meminfo /proc/sys/vm/swappiness\nMemTotal: 1 kB\n10\n",
            {"vm.swappiness": None},
        ),
        (
            "$ grep . /sys/bus/pci/devices/0000:01:00.0/{current,max}_link_width\n"
            "/sys/bus/pci/devices/0000:01:00.0/current_link_width:8\n"
            "/sys/bus/pci/devices/0000:01:00.0/max_link_width:16\n",
            {"pcie.link_width": "FAIL"},
        ),
        (
            "$ nvidia-smi --query-gpu=index,persistence_mode,pstate --format=csv,noheader\n"
            "0, Enabled, P0\n1, Disabled, P8\n",
            {"gpu.persistence[0]": "PASS", "gpu.persistence[1]": "WARN"},
        ),
        (
            "index, name, temperature.gpu\n0, NVIDIA A40, 40\n1, [GPU is lost], [GPU is lost]\n",
            {"gpu.count": "FAIL"},
        ),
        (
            "Memory Device\n\tSize: 64 GB\n\tSpeed: 5600 MT/s\n"
            "\tConfigured Memory Speed: 4400 MT/s\n\nMemory Device\n\tSize: No Module Installed\n",
            {"mem.dimms[slots]": "INFO", "mem.dimms[speed]": "INFO"},
        ),
        (
            "Model: \t\t NVIDIA L40S\nBus Location: \t 0000:01:00.0\n"
            "GPU 00000000:01:00.0\n    BAR1 Memory Usage\n        Total : 65536 MiB\n",
            {"pcie.bar1": "PASS"},
        ),
        (IDLE, {"cpu.cstates": "UNKNOWN"}),  # the third state was cut off
        (IDLE.replace("states: 3", "states: 2"), {"cpu.cstates": "PASS"}),
        ('openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = 3\n', {"cuda.uvm_node": "UNKNOWN"}),
        (
            "$ nvidia-smi topo -p2p w\n \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n"
            "$ cat other.txt\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
            {"gpu.p2p": "FAIL"},
        ),
    ],
)
def test_small_answers_are_judged(text: str, expected: dict[str, str | None]) -> None:
    found = verdicts(text)
    assert {check: found.get(check) for check in expected} == expected


WHOLE = [
    samples.SMI_TABLE,
    samples.SMI_Q_SICK,
    samples.LSPCI_TREE,
    samples.LSPCI_DENIED,
    samples.TOPO,
    samples.DMESG_SICK,
    samples.LXC_STALE,
    samples.PROC_DEVICES,
]


def answered(text: str) -> str:
    return "On Thursday B. wrote:\n" + textwrap.indent(text, "> > ", lambda _: True) + "\nWell?\n"


def in_a_list(text: str) -> str:
    return "1. This is what it says:\n\n" + textwrap.indent(text, "    ") + "\n2. And then?\n"


def fenced(text: str) -> str:
    return f"It prints\n\n```console\nroot@gpu01:~# run\n{text}root@gpu01:~#\n```\n"


def of_a_page(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("    ", "\u00a0" * 4)


def flush_left(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))


@pytest.mark.parametrize("made", [answered, in_a_list, fenced, of_a_page, flush_left])
@pytest.mark.parametrize("text", WHOLE, ids=range(len(WHOLE)))
def test_what_carried_a_paste_changes_nothing(text: str, made: Callable[[str], str]) -> None:
    wanted = verdicts(text)
    assert wanted
    assert verdicts(made(text)) == wanted
