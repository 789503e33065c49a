"""Looks at a host's GPU driver from outside it. Runs there: standard library, Python 3.8.

It is sent as an argument (`python3 -c`), asks no library of the driver, and prints one line of JSON
after a marker line. A device file is opened and closed again, since that alone shows what the
device rules of a container allow.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import pwd
import sys

MARKER = "@@gpuroom-doctor-1@@"

LIBRARIES = (
    "/usr/lib/*-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
)


def read(path: str) -> str | None:
    """A small file's text, or None."""
    try:
        with open(path) as file:
            return file.read(4096).strip()
    except (OSError, ValueError):
        return None


def device(path: str) -> dict[str, object]:
    """A device file, and the error that opening it gave."""
    found: dict[str, object] = {"path": path, "error": None}
    try:
        status = os.stat(path)
        found.update(mode=oct(status.st_mode & 0o777), uid=status.st_uid, gid=status.st_gid)
        found["major"] = os.major(status.st_rdev)
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        found["error"] = errno.errorcode.get(error.errno or 0, str(error.errno))
    return found


def majors() -> dict[str, int]:
    """Today's major numbers of the driver's devices."""
    found = {}
    for line in (read("/proc/devices") or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].startswith("nvidia") and words[0].isdigit():
            found[words[1]] = int(words[0])
    return found


def pci_gpus() -> int:
    """NVIDIA display controllers on the bus."""
    found = 0
    for folder in glob.glob("/sys/bus/pci/devices/*"):
        is_display = (read(folder + "/class") or "").startswith("0x03")
        found += is_display and read(folder + "/vendor") == "0x10de"
    return found


def library() -> str | None:
    """Where the NVML library is, if it is in a usual place."""
    for pattern in LIBRARIES:
        for path in glob.glob(pattern):
            return os.path.realpath(path)
    return None


def user() -> str:
    """Who this runs as."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def main() -> None:
    """Look, and print what was seen."""
    module = read("/sys/module/nvidia/version")
    nodes = sorted(glob.glob("/dev/nvidia[0-9]*"))
    if nodes or module:
        nodes.append("/dev/nvidiactl")
    seen = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "user": user(),
        "container": read("/run/systemd/container"),
        "module": module,
        "nouveau": os.path.isdir("/sys/module/nouveau"),
        "library": library(),
        "pci_gpus": pci_gpus(),
        "majors": majors(),
        "devices": [device(path) for path in nodes],
    }
    print("\n" + MARKER)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
