"""Facts for one value of a threshold, on the threshold's own scale."""

from __future__ import annotations

from backends.tuning.interconnect import LANE_GB_S
from tests.tuning import cases
from tests.tuning.cases import (
    GA,
    GB,
    GEN5,
    LINK16,
    LOG,
    NODE,
    ONLINE,
    TWO_NODES,
    Facts,
    every_cpu,
    idle,
    meminfo,
)

GIB = 1 << 30


def two_nodes_with(cpus: float) -> Facts:
    return {
        f"{NODE}/online": "0-1",
        "cpu/sockets": 1,
        f"{NODE}/node0/cpulist": f"0-{int(cpus) - 1}",
        f"{NODE}/node1/cpulist": "64-127",
    }


def sizes(differ_pct: float) -> Facts:
    return nodes(1000_000, 500_000, int(1000_000 * (1 - differ_pct / 100)), 400_000)


def nodes(first: int, first_free: int, second: int, second_free: int) -> Facts:
    rows = enumerate(((first, first_free), (second, second_free)))
    return {
        **TWO_NODES,
        **{
            f"{NODE}/node{n}/meminfo": f"Node {n} MemTotal: {t} kB\nNode {n} MemFree: {f} kB"
            for n, (t, f) in rows
        },
    }


def maps_in_use(share: float, most: int = 1_000_000) -> Facts:
    return {"/proc/sys/vm/max_map_count": str(most), "engine/41/maps": int(share * most / 100)}


def hugepages(unused_pct: float) -> Facts:
    base = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
    return {
        f"{base}/nr_hugepages": "200",
        f"{base}/free_hugepages": str(int(unused_pct * 10)),
        "/proc/meminfo": meminfo(MemTotal=1000),
    }


def shm(size: float, gpus: int = 8) -> Facts:
    return {"statvfs//dev/shm/size": str(int(size)), "gpu/attached": gpus}


def limits(hard: float, used: float = 0) -> Facts:
    return {
        "limits/41/nofile_soft": "1000",
        "limits/41/nofile_hard": str(int(hard)),
        "engine/41/open_files": int(used),
    }


def throttle(share: float) -> Facts:
    return {f"{GA}/reasons": 4, f"{GA}/power_w": share * 6.0, f"{GA}/power_limit_w": 600.0}


def busy(util: float = 100, share: float = 20, tokens: float | None = None) -> Facts:
    facts: dict[str, object] = {
        f"{GA}/util_pct": util,
        f"{GA}/power_w": share * 6.0,
        f"{GA}/power_limit_w": 600.0,
    }
    if tokens is not None:
        facts["engine/tokens_per_s"] = tokens
    return facts  # type: ignore[return-value]


def xids(programs: float) -> Facts:
    return {
        LOG: [
            f"[ {100 * n}.0] NVRM: Xid (PCI:0000:06:00): 13, pid={n + 1}, name=a{n}, Graphics"
            for n in range(int(programs))
        ]
    }


def flaps(per_s: float) -> Facts:
    return {
        f"pcie_flaps/{cases.A}/changes": int(per_s * 60),
        f"pcie_flaps/{cases.A}/seconds": 60,
    }


def stat(free: float, inodes: float = 90.0) -> Facts:
    return {"statvfs/model/free_pct": free, "statvfs/model/free_inodes_pct": inodes}


def h2d(share: float) -> Facts:
    rate = 16 * LANE_GB_S[5] * share / 100
    return {f"bench/h2d/{cases.A}/gb_s": rate, f"bench/d2h/{cases.A}/gb_s": 60, **LINK16, **GEN5}


def h2d_spread(pct: float) -> Facts:
    two = {
        f"{g}/{k}": v
        for g in (GA, GB)
        for k, v in {
            "link_width": 16,
            "link_width_max": 16,
            "link_gen": 5,
            "link_gen_max": 5,
        }.items()
    }
    both = {
        f"bench/{way}/{bdf}/gb_s": rate
        for way in ("h2d", "d2h")
        for bdf, rate in ((cases.A, 62.0), (cases.B, 62.0 * (1 - pct / 100)))
    }
    return {**two, **both}


def p2p(rate: float = 60.0, latency: float = 0.4) -> Facts:
    return {
        "bench/p2p/0/1/gb_s": rate,
        "bench/p2p/0/1/latency_us": latency,
        "bench/p2p/0/1/link_gb_s": 63.0,
        "bench/p2p/0/1/cross_node": False,
    }


def p2p_odd(below_pct: float) -> Facts:
    facts: dict[str, object] = {}
    for a, b in ((0, 1), (0, 2), (1, 2), (0, 3)):
        rate = 60.0 - 0.6 * below_pct if (a, b) == (0, 3) else 60.0
        facts |= {
            f"bench/p2p/{a}/{b}/gb_s": rate,
            f"bench/p2p/{a}/{b}/latency_us": 0.4,
            f"bench/p2p/{a}/{b}/link_gb_s": 63.0,
            f"bench/p2p/{a}/{b}/cross_node": False,
        }
    return facts  # type: ignore[return-value]


def membw(share: float) -> Facts:
    base = f"bench/membw/{cases.A}"
    return {f"{GA}/index": 0, f"{base}/gb_s": 10.0 * share, f"{base}/theory_gb_s": 1000.0}


def membw_odd(below_pct: float) -> Facts:
    facts: dict[str, object] = {}
    for n, rate in enumerate((1000.0, 1000.0, 1000.0 - 10 * below_pct)):
        bdf = f"0000:0{n + 1}:00.0"
        facts |= {
            f"gpu/{bdf}/index": n,
            f"bench/membw/{bdf}/gb_s": rate,
            f"bench/membw/{bdf}/theory_gb_s": 1000.0,
        }
    return facts  # type: ignore[return-value]


def reduce(worse_pct: float) -> Facts:
    base = "bench/allreduce/8k_us"
    return {f"{base}/value": 10.0 * (1 + worse_pct / 100), f"{base}/baseline": 10.0}


def roofline(share: float) -> Facts:
    return {"engine/tokens_per_s_batch1": share, "roofline/tokens_per_s": 100.0}


def uplink(ratio: float) -> Facts:
    """GPUs below one switch: so many times the uplink's bandwidth."""
    switch = cases.SWITCH
    facts: dict[str, object] = {
        f"pci/{switch}/class": "PCI bridge",
        f"pci/{switch}/port_type": "upstream port",
        f"pci/{switch}/width": 16,
        f"pci/{switch}/max_width": 16,
        f"pci/{switch}/speed_gts": 8.0,
        f"pci/{switch}/max_speed_gts": 8.0,
    }
    lanes = round(ratio * 16)
    for n in range(-(-lanes // 16)):
        bdf = f"0000:{n + 2:02x}:00.0"
        facts |= {
            f"pci/{bdf}/class": "3D controller",
            f"pci/{bdf}/name": "NVIDIA Corporation Device 2bb5",
            f"pci/{bdf}/parent": switch,
            f"pci/{bdf}/max_width": min(16, lanes - 16 * n),
            f"pci/{bdf}/max_speed_gts": 8.0,
        }
    return facts  # type: ignore[return-value]


def pair_copy(share: float) -> Facts:
    base = "bench/p2p_copy/0/1"
    return {f"{base}/equal": True, f"{base}/gb_s": share, f"{base}/link_gb_s": 100.0}


def quota(cores_per_gpu: float) -> Facts:
    return {
        "/sys/fs/cgroup/cpu.max": f"{int(cores_per_gpu * 4 * 100_000)} 100000",
        "cgroup/cpu/nr_throttled": 0,
        "gpu/attached": 4,
    }


def ceiling(lower_pct: float) -> Facts:
    return {
        **ONLINE,
        **every_cpu("cpufreq/cpuinfo_max_freq", 1_000_000),
        **every_cpu("cpufreq/scaling_max_freq", int(1_000_000 * (1 - lower_pct / 100))),
    }


def intel_idle(latency: float) -> Facts:
    return {**ONLINE, "cpu/vendor": "GenuineIntel", **idle(int(latency))}


def rank(remote_pct: float) -> Facts:
    return {
        **TWO_NODES,
        "engine/41/cpus_allowed": "0-7",
        "engine/41/gpu_cpus": "0-63",
        "engine/41/remote_pages_pct": remote_pct,
    }
