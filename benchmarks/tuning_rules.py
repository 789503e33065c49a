"""Time of all tuning rules on one large host, and how the recordings are judged.

Usage: python benchmarks/tuning_rules.py [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from backends.tuning.engine import evaluate  # noqa: E402
from backends.tuning.facts import Fact, FactsDocument, decode, encode  # noqa: E402
from backends.tuning.normalise import normalise  # noqa: E402
from backends.tuning.rules import all_rules  # noqa: E402

CPU = "/sys/devices/system/cpu"
PCI = "/sys/bus/pci/devices"
CAPTURES = ROOT.parent / "shared" / "captures" / "hosts"


def large_host(cpus: int = 256, gpus: int = 8, idle_states: int = 3) -> FactsDocument:
    """Facts as they come from a two-socket host with 8 GPUs below four switches."""
    facts: dict[str, str | int | list[str]] = {
        "virt/kind": "none",
        f"{CPU}/online": f"0-{cpus - 1}",
        f"{CPU}/present": f"0-{cpus - 1}",
        "/sys/devices/system/node/online": "0-1",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt",
        "/proc/sys/kernel/osrelease": "6.14.11-4-pve",
        "/proc/sys/kernel/numa_balancing": "0",
        "/proc/devices": ["195 nvidia", "235 nvidia-caps", "509 nvidia-uvm"],
        "cpu/vendor": "AuthenticAMD",
        "cpu/family": 26,
        "nvml/count": gpus,
        "log/kernel": [f"[{n}.000000] pcieport 0000:00:01.1: BAR 14: assigned" for n in range(500)],
        "log/complete": 1,
    }
    for cpu in range(cpus):
        base = f"{CPU}/cpu{cpu}"
        facts[f"{base}/topology/physical_package_id"] = str(cpu * 2 // cpus)
        facts[f"{base}/cpufreq/scaling_driver"] = "amd-pstate-epp"
        facts[f"{base}/cpufreq/scaling_governor"] = "performance"
        facts[f"{base}/cpufreq/energy_performance_preference"] = "performance"
        facts[f"{base}/cpufreq/scaling_max_freq"] = "4121000"
        facts[f"{base}/cpufreq/cpuinfo_max_freq"] = "4121000"
        for state in range(idle_states):
            facts[f"{base}/cpuidle/state{state}/name"] = ("POLL", "C1", "C2")[state]
            facts[f"{base}/cpuidle/state{state}/latency"] = ("0", "1", "100")[state]
            facts[f"{base}/cpuidle/state{state}/disable"] = "0"
    for number in range(64):
        path = f"{PCI}/0000:{number:02x}:00.0"
        is_gpu = number >= 64 - gpus
        facts[f"{path}/class"] = "0x030200" if is_gpu else "0x060400"
        facts[f"{path}/vendor"] = "0x10de" if is_gpu else "0x1000"
        facts[f"{path}/config"] = config_space(is_gpu).hex()
        facts[f"{path}/power/control"] = "on"
        facts[f"{path}/aer_dev_fatal"] = "Undefined 0\nTOTAL_ERR_FATAL 0"
        facts[f"{path}/aer_dev_nonfatal"] = "Undefined 0\nTOTAL_ERR_NONFATAL 0"
        facts[f"{path}/aer_dev_correctable"] = "RxErr 0\nTOTAL_ERR_COR 0"
    for index in range(gpus):
        gpu = f"nvml/{index}"
        facts[f"{gpu}/pci_bus_id"] = f"00000000:{64 - gpus + index:02X}:00.0"
        facts[f"{gpu}/name"] = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
        for name, value in (
            ("persistence", 1),
            ("power_w", 90),
            ("power_limit_w", 600),
            ("power_default_w", 600),
            ("power_max_w", 600),
            ("temp_c", 40),
            ("temp_margin_c", 50),
            ("util_pct", 0),
            ("vram_mib", 97887),
            ("used_mib", 4),
            ("bar1_mib", 131072),
            ("clock_mem_mhz", 405),
            ("clock_mem_max_mhz", 12481),
            ("reasons", 1),
            ("link_gen", 5),
            ("link_gen_max", 5),
            ("link_width", 16),
            ("link_width_max", 16),
            ("replays", 0),
            ("ecc_current", 1),
            ("ecc_pending", 1),
            ("ecc_volatile_uncorrectable", 0),
            ("ecc_aggregate_uncorrectable", 0),
            ("mig_current", 0),
            ("mig_pending", 0),
            ("recovery_action", 0),
        ):
            facts[f"{gpu}/{name}"] = value
        facts[f"{gpu}/compute_mode"] = "Default"
        facts[f"{gpu}/pstate"] = "P8"
    return FactsDocument([Fact(key, value, key) for key, value in facts.items()])


def config_space(endpoint: bool) -> bytes:
    """A configuration space with PCI Express, AER and ACS capabilities."""
    data = bytearray(4096)
    data[0:4] = (0x10DE if endpoint else 0x1000).to_bytes(2, "little") + b"\xb5\x2b"
    data[6] = 0x10
    data[8:12] = bytes((0, 0, 2 if endpoint else 4, 3 if endpoint else 6))
    data[0x0E] = 0 if endpoint else 1
    data[0x34] = 0x60
    data[0x60:0x64] = bytes((0x10, 0, 0x02 if endpoint else 0x62, 0))
    data[0x64:0x68] = (1).to_bytes(4, "little")
    data[0x68:0x6A] = (0x2930 | 0x10).to_bytes(2, "little")
    data[0x6C:0x70] = (0x105).to_bytes(4, "little")
    data[0x72:0x74] = (0x105).to_bytes(2, "little")
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")
    data[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x156:0x158] = (0x11).to_bytes(2, "little")
    return bytes(data)


def milliseconds(function: object, argument: object, runs: int) -> tuple[float, float]:
    """Median and best of several runs, in CPU time: other work on the machine does not count."""
    assert callable(function)
    took = []
    for _ in range(runs):
        start = time.process_time()
        function(argument)
        took.append(1000 * (time.process_time() - start))
    return statistics.median(took), min(took)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    raw = large_host()
    named = normalise(raw)
    saved = encode(raw)
    findings = evaluate(raw)
    print(
        f"{len(raw.facts)} facts, {len(named.facts)} with derived ones, {len(all_rules())} rules, "
        f"{len(findings)} findings; saved {len(saved) / 1e6:.2f} MB"
    )
    for name, function, argument in (
        ("normalise", normalise, raw),
        ("all rules, facts derived before", evaluate, named),
        ("all rules from raw facts", evaluate, raw),
        ("decode a saved document", decode, saved),
    ):
        median, best = milliseconds(function, argument, runs)
        print(f"{name:<34}{median:8.2f} ms median {best:8.2f} ms best")
    return captures()


def captures() -> int:
    """The verdict of each recording beside what is expected of it."""
    if not (CAPTURES / "index.tsv").is_file():
        print("no recordings beside the checkout")
        return 0
    from tests.tuning.captures import expectations, judge

    right = total = 0
    for item in expectations(CAPTURES):
        verdict, evidence = judge(item.files).get(item.check, ("-", "no finding"))
        ok = verdict == item.verdict or (
            item.check == "parse.devices" and evidence.replace(", ", ",") == item.verdict
        )
        right += ok
        total += 1
        mark = "ok " if ok else "NOT"
        print(f"{mark} {item.id} {item.check:<28}{verdict:<13} {evidence[:90]}")
    print(f"{right} of {total} as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
