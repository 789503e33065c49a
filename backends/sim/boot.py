"""What a boot of the demo host makes of the files on its disk, as the real programs would.

The kernel begins with its own values; then its command line counts, the files of sysctl.d, and
those of tmpfiles.d. What was only written into the running kernel is gone.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path
from typing import Final

from backends.sim import host_programs
from backends.sim.host_programs import KERNEL

DISK: Final = "/dev/mapper/pve-root"
REQUEST: Final = "/run/reboot"
"""A file that is there when somebody has told the host to boot again."""
SOCKET: Final = "/sys/devices/system/socket{}"
"""What all CPUs of a socket have in common: thousands of files would hold up the start."""
NODES: Final = 2
FRESH: Final = {
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/kernel/watchdog": "1",
    "/proc/sys/vm/max_map_count": "65530",
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/zone_reclaim_mode": "0",
    "/proc/sys/vm/overcommit_memory": "0",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/dirty_bytes": "0",
    "/proc/sys/vm/dirty_background_ratio": "10",
    "/proc/sys/vm/dirty_background_bytes": "0",
    "/proc/sys/vm/min_free_kbytes": "2097152",
    "/proc/sys/net/core/somaxconn": "4096",
    "/proc/sys/net/core/rmem_max": "212992",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}
"""What the kernel begins with."""
IGNORED: Final = "/proc/sys/vm/zone_reclaim_mode"
"""A setting that is taken and put back at once: a fix that does not hold."""
HELD: Final = "1\n"
"""What it is put back to."""
GRUB: Final = "/etc/default/grub"
_CHANGED: Final = (GRUB, "/etc/sysctl.d", "/etc/tmpfiles.d", "/etc/modprobe.d", "/etc/pve/lxc")


def begin(folder: Path) -> None:
    """Give the files below /proc and /sys what they hold after a boot.

    Args:
        folder: What stands for `/`, with what lies on its disk.
    """
    line = command_line(folder)
    values = FRESH | _frequency("amd_pstate=active" in line.split())
    values["/proc/cmdline"] = line
    values |= _sysctls(folder)
    for path, text in values.items():
        put(folder, path, text + "\n")
    for pattern, text in _tmpfiles(folder):
        for place in folder.glob(pattern.lstrip("/")):
            place.write_text(text + "\n")
    (folder / "run").mkdir(exist_ok=True)
    for path in (REQUEST, host_programs.LIMITS):
        (folder / path.lstrip("/")).unlink(missing_ok=True)
    # The last file of a boot: what is newer was changed since.
    put(folder, host_programs.LOG, host_programs.boot_log(line))


def command_line(folder: Path) -> str:
    """What its boot loader gives the kernel."""
    said = dict(
        line.split("=", 1) for line in _lines(folder / GRUB.lstrip("/")) if line.startswith("GRUB_")
    )
    given = " ".join(
        " ".join(shlex.split(said.get(name, "")))
        for name in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")
    )
    return " ".join(f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root={DISK} ro {given}".split())


def put_back(folder: Path) -> None:
    """What runs on this host undoes one setting, as tuning daemons do: it never holds."""
    with contextlib.suppress(OSError):
        if (folder / IGNORED.lstrip("/")).read_text() != HELD:
            put(folder, IGNORED, HELD)


def changed_for_s(folder: Path) -> float | None:
    """For how long nothing was changed any more; None where nothing was since the boot."""
    paths = [path for path in FRESH if path != IGNORED]
    paths += [f"{SOCKET.format(node)}/cpufreq/scaling_governor" for node in range(NODES)]
    times = [_changed_at(folder, path) for path in (*paths, *_CHANGED)]
    since = _changed_at(folder, host_programs.LOG)
    last = max(times)
    return max(0.0, time.time() - last) if last > since else None


def wants_reboot(folder: Path) -> bool:
    """Whether somebody has told it to boot again."""
    return _exists(folder, REQUEST)


def put(folder: Path, path: str, data: str | bytes) -> Path:
    """Write a file of the host below its folder."""
    place = folder / path.lstrip("/")
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True)
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


def _exists(folder: Path, path: str) -> bool:
    return (folder / path.lstrip("/")).exists()


def _changed_at(folder: Path, path: str) -> float:
    try:
        return (folder / path.lstrip("/")).stat().st_mtime
    except OSError:
        return 0.0


def _frequency(active: bool) -> dict[str, str]:
    """How CPUs are clocked: by `amd_pstate=active`, or as such a kernel does it by itself."""
    values: dict[str, str] = {}
    for node in range(NODES):
        base = f"{SOCKET.format(node)}/cpufreq"
        values[f"{base}/scaling_driver"] = "amd-pstate-epp" if active else "acpi-cpufreq"
        values[f"{base}/scaling_governor"] = "powersave" if active else "schedutil"
        if active:
            values[f"{base}/energy_performance_preference"] = "balance_performance"
            values[f"{base}/energy_performance_available_preferences"] = (
                "default performance balance_performance balance_power power"
            )
    return values


def _sysctls(folder: Path) -> dict[str, str]:
    """What sysctl.d sets, by path: files in the order of their names, the last one counts."""
    found: dict[str, str] = {}
    for file in sorted((folder / "etc/sysctl.d").glob("*.conf"), key=lambda file: file.name):
        for line in _lines(file):
            name, equals, value = line.partition("=")
            path = "/proc/sys/" + name.strip().lstrip("-").replace(".", "/")
            if equals and ".." not in path and (path in FRESH or _exists(folder, path)):
                found[path] = value.strip()
    return found


def _tmpfiles(folder: Path) -> list[tuple[str, str]]:
    """Patterns and values of lines that write into files."""
    found = []
    for file in sorted((folder / "etc/tmpfiles.d").glob("*.conf")):
        for line in _lines(file):
            words = line.split(None, 6)
            if len(words) == 7 and words[0].rstrip("!-+") == "w" and ".." not in words[1]:
                found.append((words[1], words[6].strip('"')))
    return found


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()[:1] not in ("", "#", ";")]
