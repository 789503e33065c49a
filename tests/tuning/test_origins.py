"""Every fact that a rule asks for is gathered from a host, or it is written down who gives it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from backends.tuning import normalise_host
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import Fact, FactsDocument, Value
from backends.tuning.normalise import normalise
from backends.tuning.origins import ELSEWHERE, elsewhere
from backends.tuning.probes import PROBES, ProbeKind
from backends.tuning.raw import Raw
from backends.tuning.view import FactTable
from tests.tuning.cases import CASES, document

PCI = "/sys/bus/pci/devices"
GPU, SWITCH = "0000:06:00.0", "0000:07:00.0"
SPACE = (
    bytes.fromhex(
        "de10b52b00001000000000030000000000000000000000000000000000000000"
        "00000000000000000000000000000000000000006000000000000000"
    ).ljust(0x60, b"\0")
    + bytes.fromhex("10000200")
    + bytes(0x3C)
)

XML = """<nvidia_smi_log><driver_version>580.95.05</driver_version><cuda_version>13.0</cuda_version>
<attached_gpus>1</attached_gpus><gpu id="00000000:06:00.0"><product_name>NVIDIA L40S</product_name>
<addressing_mode>None</addressing_mode><gsp_firmware_version>580.95.05</gsp_firmware_version>
<pci><pci_device_id>2BB510DE</pci_device_id><pci_gpu_link_info><pcie_gen><max_link_gen>4</max_link_gen><max_host_link_gen>4</max_host_link_gen>
</pcie_gen></pci_gpu_link_info></pci>
<gpu_power_readings><requested_power_limit>350.00 W</requested_power_limit>
<instant_power_draw>60.00 W</instant_power_draw></gpu_power_readings>
<ecc_errors><volatile><sram_correctable>0</sram_correctable>
<dram_correctable>0</dram_correctable></volatile>
<aggregate><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
<unrepairable_memory>No</unrepairable_memory></ecc_errors>
<retired_pages><multiple_single_bit_retirement><retired_count>0</retired_count>
</multiple_single_bit_retirement><double_bit_retirement><retired_count>0</retired_count>
</double_bit_retirement><pending_blacklist>No</pending_blacklist></retired_pages>
<remapped_rows><row_remapper_histogram><row_remapper_histogram_none>0 bank(s)
</row_remapper_histogram_none></row_remapper_histogram></remapped_rows></gpu></nvidia_smi_log>
"""
RAW: dict[str, Value] = {
    "cmd/nvidia-smi -q -x": XML,
    "cmd/nvidia-smi topo -m": "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tPIX\t0-7\t0\nGPU1\tPIX\t X \t0-7\t0\n",
    "cmd/nvidia-smi topo -p2p r": " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
    "cmd/nvidia-smi nvlink -s": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
    "\t Link 0: 25 GB/s\n",
    "cmd/lscpu": "Architecture: x86_64\nVendor ID: AuthenticAMD\nCPU(s): 8\n"
    "Model name: EPYC\nCPU family: 26\n"
    "Thread(s) per core: 2\nSocket(s): 1\n",
    "cmd/pveversion": "pve-manager/8.4.1/abc",
    "cmd/systemd-detect-virt": "none",
    "cmd/systemctl --failed --plain --no-legend": "",
    "cmd/timedatectl show -p NTPSynchronized": "NTPSynchronized=yes",
    "cmd/chronyc -n tracking": "System time     : 0.000012 seconds fast of NTP time",
    "cmd/dpkg --get-selections": "nvidia-dkms-580\tinstall\nnvidia-driver-580\thold\n",
    "cmd/ss -ltn": "State Recv-Q Send-Q Local Peer\nLISTEN 0 128 127.0.0.1:30000 0.0.0.0:*\n",
    "cmd/modinfo -F version nvidia": "580.95.05\n",
    "cmd/proxmox-boot-tool kernel list": "Manually selected kernels:\nNone.\n\n"
    "Automatically selected kernels:\n6.8.12-4-pve\n6.14.11-4-pve\n",
    "cmd/proxmox-boot-tool status": "AAAA is configured with: uefi (versions: 6.8.12-4-pve)",
    "cmd/nvidia-imex-ctl -q": "READY\n",
    "cmd/nv-fabricmanager --version": "Fabric Manager version is : 580.95.05\n",
    "cmd/powerprofilesctl get": "performance\n",
    "cmd/docker info --format {{.CgroupDriver}}": "systemd\n",
    "cmd/systemctl show *.service --property=Id,NRestarts": "Id=a.service\nNRestarts=0\n\n"
    "Id=sglang.service\nNRestarts=40\n",
    "cmd/dmidecode -t 17": "Memory Device\n\tSize: 64 GB\n\tSpeed: 6400 MT/s\n"
    "\tConfigured Memory Speed: 4800 MT/s\n\nMemory Device\n\tSize: No Module Installed\n",
    "cmd/journalctl -k -b -o short-monotonic --no-pager": "[ 0.000000] Linux version 6.14.11\n"
    "[ 0.1] mem auto-init: stack:all, heap alloc:on, heap free:off\n"
    "[ 0.2] iommu: Default domain type: Translated\n"
    "[ 0.3] acpi PNP0A08:00: _OSC: OS now controls [PME AER LTR]\n"
    "[ 0.4] mempolicy: Enabling automatic NUMA balancing.\n",
    **{
        f"cmd/systemctl is-active {unit}": "active"
        for unit in ("nvidia-persistenced", "nvidia-fabricmanager", "tuned", "irqbalance",
                     "power-profiles-daemon", "tlp", "auto-cpufreq", "thermald", "laptop-mode",
                     "cpupower")
    },
    "cmd/systemctl is-enabled nvidia-persistenced": "enabled",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
    "580.95.05  Release Build",
    "/proc/driver/nvidia/gpus": [GPU],
    "/proc/uptime": "7200.0 100.0",
    "/sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
    "/sys/fs/cgroup/devices/devices.list": "c 195:* rwm",
    "/etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="quiet"\n',
    "/etc/sysctl.d/90.conf": "vm.swappiness = 10\n",
    "/etc/tmpfiles.d": [],
    "/etc/modprobe.d": [],
    "/etc/cdi/nvidia.yaml": "hostPath: /usr/lib/libcuda.so.580.95.05",
    "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
    "/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";',
    "/etc/systemd/system": ["nvidia-uvm.service"],
    "/etc/systemd/system/nvidia-uvm.service": "Before=pve-guests.service\nnvidia-modprobe -c0 -u",
    "/dev/char": ["195:0"],
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.580.95.05",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "libnvidia-ml.so.580.95.05",
    "/etc/pve/lxc/129.conf": "arch: amd64\n",
    "/etc/pve/qemu-server/200.conf": "machine: q35\n",
    "/sys/class/net/eth0/operstate": "up",
    "/sys/class/nvme/nvme0/state": "live",
    f"{PCI}/{GPU}": "../../../devices/pci0000:00/0000:00:01.1/" + GPU,
    f"{PCI}/{GPU}/class": "0x030200",
    f"{PCI}/{GPU}/vendor": "0x10de",
    f"{PCI}/{GPU}/device": "0x2bb5",
    f"{PCI}/{GPU}/driver": "../../bus/pci/drivers/nvidia",
    f"{PCI}/{GPU}/iommu_group": "../../../kernel/iommu_groups/12",
    f"{PCI}/{GPU}/local_cpulist": "0-7",
    f"{PCI}/{SWITCH}/class": "0x068000",
    f"{PCI}/{SWITCH}/vendor": "0x10de",
    "nvml/count": 1,
    "nvml/0/pci_bus_id": "00000000:06:00.0",
    "engine/41/gpus": "0",
    "engine/41/cuda": "13",
    "engine/41/env/CUDA_VISIBLE_DEVICES": "0",
    "engine/41/env/NCCL_SOCKET_IFNAME": "eth0",
    "proc/41/limits": "Max open files  1024  4096  files\nMax locked memory  64  64  bytes\n",
    "proc/41/status": "VmSwap:\t0 kB\nCpus_allowed_list:\t0-7\n",
    **{f"nvml/0/{p.target}": 1 for p in PROBES if p.kind is ProbeKind.NVML
       and p.target != "pci_bus_id"},
}  # fmt: skip
BY_THE_AGENT = (
    "gpu/processes", "engine/none", "engine/gpu_indices", "engine/*/gpus", "engine/*/maps",
    "engine/*/open_files", "engine/*/env/*", "engine/*/cuda", "engine/port", "engine/auth",
    "engine/load_mode", "engine/tensor_parallel", "net/peers", "model/path", "model/bytes",
    "model/fs_type",
    "model/mount_options", "model/bdi", "model/block_device", "model/none", "statvfs/model/*",
    "irq/*/effective_affinity_list", "irq/*/local_cpus", "nvml/error", "nvml/count",
    "cuda/init", "cuda/count", "cuda/libraries", "cuda/driver_version",
)  # fmt: skip
"""Keys of the kinds `engine`, `irq`, `nvml` and `cuda`, which have names of their own; the tests
of the agent show that they come."""
BY_CONFIGURATION_SPACE = re.compile(
    r"pci/.*/(?:acs_control|aspm|(?:max_)?speed_gts|(?:max_)?width|mps_(?:max_)?bytes|mrrs_bytes|"
    r"port_type|relaxed_ordering|secondary_bus|tag10_(?:enabled|requester)|truncated|all_ones|"
    r"rebar_max_bytes)"
)
"""`tests/tuning/test_pci.py` shows that the decoder gives these."""


def _shape(key: str) -> str:
    """The key with addresses, indices and pids made one."""
    key = re.sub(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|index-\d+", GPU, key)
    key = re.sub(r"^(pve/\w+)/\w+", r"\1/*", key)
    key = re.sub(r"^(unit)/[\w@.-]+/(restarts_per_h)", r"\1/*/\2", key)
    return re.sub(r"(?<=/)\d+(?=/|$)", "*", key)


def _fits(key: str, pattern: str) -> bool:
    return fnmatchcase(key, pattern) or fnmatchcase(pattern, key)


@pytest.fixture(scope="module")
def asked() -> set[str]:
    """Every key and pattern that any rule asks for, on all the fact sets of the tests."""
    seen: set[str] = set()

    class Listening(FactTable):
        def get(self, key: str) -> Fact | None:
            seen.add(key)
            return super().get(key)

        def match(self, pattern: str) -> list[tuple[tuple[str, ...], Fact]]:
            seen.add(pattern)
            return super().match(pattern)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backends.tuning.engine.FactTable", Listening)
        evaluate(document({}))
        for rule, case in CASES.items():
            for facts in (case.good, case.bad, case.none):
                evaluate(document(facts), Options(only=frozenset({rule}), expected=case.expected))
    assert len(seen) > 300
    return {_shape(key) for key in seen}


@pytest.fixture(scope="module")
def gathered() -> set[str]:
    """Every key that comes of one gathering."""
    whole = normalise(FactsDocument([Fact(key, value, key) for key, value in RAW.items()]))
    keys = {_shape(fact.key) for fact in whole.facts if fact.value is not None}
    for probe in PROBES:
        if probe.kind in (ProbeKind.STAT, ProbeKind.OPEN):
            keys.add(f"{'node' if probe.kind is ProbeKind.STAT else 'open'}/{probe.target}")
        elif probe.kind is ProbeKind.STATVFS:
            keys |= {f"statvfs/{probe.target}/{name}" for name in ("size", "free_pct")}
        elif probe.target.startswith("/"):
            keys.add(probe.target)
    return keys | set(BY_THE_AGENT)


def test_every_fact_has_an_origin(asked: set[str], gathered: set[str]) -> None:
    plain = {key for key in gathered if "*" not in key and "?" not in key and "[" not in key}
    patterns = gathered - plain
    without = [
        key
        for key in sorted(asked)
        if key not in plain
        and not any(_fits(key, pattern) for pattern in patterns)
        and not ("*" in key and any(fnmatchcase(one, key) for one in plain))
        and not BY_CONFIGURATION_SPACE.fullmatch(key)
        and not elsewhere(key)
        and not key.startswith(("sysctl/configured/", "sysctl/source/", "parse/", "user/"))
    ]
    assert without == []


def test_nothing_is_said_to_come_from_elsewhere_that_is_gathered(gathered: set[str]) -> None:
    plain = {key for key in gathered if "*" not in key}
    doubled = [
        f"{pattern}: {key}"
        for pattern in ELSEWHERE
        for key in plain
        if fnmatchcase(key, pattern) and "ecc_" not in key
    ]
    assert doubled == []


def test_every_origin_elsewhere_is_asked_for(asked: set[str]) -> None:
    unused = [pattern for pattern in ELSEWHERE if not any(_fits(key, pattern) for key in asked)]
    assert unused == []


@pytest.mark.parametrize("step", normalise_host.STEPS)
def test_every_step_gives_nothing_where_nothing_was_read(step: normalise_host.Step) -> None:
    assert list(step(Raw({}))) == []
    failed = Raw({key: Fact(key, None, key, "EACCES") for key in RAW})
    assert [fact for fact in step(failed) if fact.value not in (True, None)] == []
