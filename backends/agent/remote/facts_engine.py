"""Facts of the processes that hold GPUs, of the model they serve, and of their interrupts.

Of an environment only the variables of `NAMED` are told, of a command line only the options that
are looked for: keys and tokens stand beside them. Nothing that could be large is read whole, and
`numa_maps`, which stops a process for as long as it takes, not at all.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import model_names, processes

NAMED = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NCCL_SOCKET_IFNAME",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IB_DISABLE", "GLOO_SOCKET_IFNAME",
    "OMP_NUM_THREADS", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Variables that rules ask for; the values of all others stay where they are."""
PLACES = ("HF_HUB_CACHE", "HF_HOME", "HOME")
"""Variables that say where models lie; read, not told."""
KEYS = ("VLLM_API_KEY", "SGLANG_API_KEY")
"""Whether one of them is set is told, never what it holds."""
PATH_OPTIONS = ("--model-path", "--model_path", "--model", "-m")
TP_OPTIONS = ("--tensor-parallel-size", "--tp-size", "--tp", "-tp")
DEFAULT_PORTS = (("sglang", 30000), ("vllm", 8000), ("llama-server", 8080))
LOAD_FLAGS = (
    ("--weight-loader-disable-mmap", "no-mmap"), ("--no-mmap", "no-mmap"),
    ("--load-format=runai_streamer", "stream"),
)  # fmt: skip
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
MAX_FILES = 4000
MAX_PIDS = 64
MAX_ANCESTORS = 6
MAX_IRQS = 512
IRQS_A_DEVICE = 32

Keep = Callable[[str, Any, Optional[str], str, bool], None]
"""Takes key, value, error, source, and whether it needs root."""


class Holder(NamedTuple):
    """A process on one GPU, as NVML lists it."""

    pid: int
    gpu_index: int
    used_mib: Optional[int]
    kind: str


def tell(holders: List[Holder], root: str, keep: Keep) -> None:
    """Facts of every process that holds a GPU, and of the first that serves a model.

    Args:
        holders: What NVML lists.
        root: The folder that stands for `/`, empty for `/` itself.
        keep: Takes each fact.
    """
    proc = root + "/proc"
    rows = []
    indices: Dict[int, List[int]] = {}
    for one in sorted(set(holders)):
        fields = processes.stat_fields(proc, one.pid)
        name = fields[0] if fields else "?"
        used = "" if one.used_mib is None else str(one.used_mib)
        rows.append("%d|%d|%s|%s|%s" % (one.gpu_index, one.pid, one.kind, name, used))
        indices.setdefault(one.pid, []).append(one.gpu_index)
    keep("gpu/processes", rows, None, "NVML", False)
    if not indices:
        keep("engine/none", True, None, "NVML", False)
        keep("model/none", True, None, "NVML", False)
        return
    used_gpus = sorted({index for found in indices.values() for index in found})
    keep("engine/gpu_indices", ",".join(map(str, used_gpus)), None, "NVML", False)
    served = False
    for pid in sorted(indices)[:MAX_PIDS]:
        keep("engine/%d/gpus" % pid, ",".join(map(str, sorted(set(indices[pid])))), None, "NVML",
             False)  # fmt: skip
        environment = _environment(proc, pid, keep)
        _open_files(proc, pid, keep)
        _mappings(proc, pid, keep)
        if not served:
            served = _server(proc, pid, environment, keep)


def _environment(proc: str, pid: int, keep: Keep) -> Dict[str, str]:
    path = "/proc/%d/environ" % pid
    try:
        with open("%s/%d/environ" % (proc, pid), "rb") as file:
            words = file.read(1 << 20).decode("utf-8", "replace").split("\0")
    except OSError as error:
        keep("engine/%d/environ" % pid, None, _name(error), path, True)
        return {}
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    for name in NAMED:
        if name in pairs:
            keep("engine/%d/env/%s" % (pid, name), pairs[name][:1000], None, path, True)
    found = {name: pairs[name] for name in PLACES if name in pairs}
    if any(name in pairs for name in KEYS):
        found["key"] = "set"
    return found


def _open_files(proc: str, pid: int, keep: Keep) -> None:
    path = "/proc/%d/fd" % pid
    try:
        count = len(os.listdir("%s/%d/fd" % (proc, pid)))
    except OSError as error:
        keep("engine/%d/open_files" % pid, None, _name(error), path, True)
    else:
        keep("engine/%d/open_files" % pid, count, None, path, True)


def _mappings(proc: str, pid: int, keep: Keep) -> None:
    """How many mappings, and the CUDA runtime among them."""
    path = "/proc/%d/maps" % pid
    count = 0
    runtime = None
    try:
        with open("%s/%d/maps" % (proc, pid), "rb") as file:
            for line in file:
                count += 1
                if runtime is None and b"libcudart" in line:
                    runtime = re.search(rb"libcudart(?:-[0-9a-f]+)?\.so\.(\d+(?:\.\d+)?)", line)
                if count >= 1 << 20:
                    break
    except OSError as error:
        keep("engine/%d/maps" % pid, None, _name(error), path, True)
        return
    keep("engine/%d/maps" % pid, count, None, path, True)
    if runtime:
        keep("engine/%d/cuda" % pid, runtime.group(1).decode(), None, path, True)


def _server(proc: str, pid: int, environment: Dict[str, str], keep: Keep) -> bool:
    """What the command line of the server says: of this process, or of one above it."""
    above = pid
    for _ in range(MAX_ANCESTORS):
        argv = processes.read_argv(proc, above)
        model = _model_argument(argv)
        if model:
            source = "/proc/%d/cmdline" % above
            _options(argv, environment, source, keep)
            _model(proc, pid, model, environment, keep)
            return True
        above = processes.parent_of(proc, above)
        if above <= 1:
            break
    return False


def _model_argument(argv: List[str]) -> Optional[str]:
    arguments = argv[model_names.first_argument(argv) :]
    for option in PATH_OPTIONS:
        value = model_names.option_value(arguments, option)
        if value:
            return value
    for position, word in enumerate(argv[:-1]):
        if word == "serve" and not argv[position + 1].startswith("-"):
            return argv[position + 1]
    return None


def _options(argv: List[str], environment: Dict[str, str], source: str, keep: Keep) -> None:
    port = model_names.option_value(argv, "--port")
    if port is None:
        words = " ".join(os.path.basename(word) for word in argv[:4])
        port = next((str(n) for name, n in DEFAULT_PORTS if name in words), None)
    if port is not None and port.isdigit():
        keep("engine/port", int(port), None, source, False)
    keyed = "key" in environment or any(word.split("=")[0] == "--api-key" for word in argv)
    keep("engine/auth", keyed, None, source, False)
    strategy = model_names.option_value(argv, "--safetensors-load-strategy")
    joined = " ".join(argv).replace("--load-format ", "--load-format=")
    flag = next((mode for words, mode in LOAD_FLAGS if words in joined), None)
    known = {"eager": "eager", "prefetch": "prefetch", "lazy": "mmap"}
    keep("engine/load_mode", known.get(strategy or "", flag or "default"), None, source, False)
    split = [v for v in (model_names.option_value(argv, name) for name in TP_OPTIONS) if v]
    if split and split[0].isdigit():
        keep("engine/tensor_parallel", int(split[0][:6]), None, source, False)
    nodes = model_names.option_value(argv, "--nnodes") or "1"
    if "ray" in argv:
        return  # the others are known to Ray alone
    address = model_names.option_value(argv, "--dist-init-addr") or "not named"
    keep("net/peers", [] if nodes == "1" else [address.rsplit(":", 1)[0]], None, source, False)


def _model(proc: str, pid: int, named: str, environment: Dict[str, str], keep: Keep) -> None:
    """Where the weights lie, on what, and how large they are."""
    base = "%s/%d/root" % (proc, pid)
    inside = _place(base, "%s/%d/cwd" % (proc, pid), named, environment)
    source = "/proc/%d/root%s" % (pid, inside or "")
    if inside is None:
        keep("model/path", None, "ENOENT", named[:200], True)
        return
    path = base + inside
    keep("model/path", inside, None, source, True)
    try:
        info = os.stat(path)
        space = os.statvfs(path)
    except OSError as error:
        keep("model/bytes", None, _name(error), source, True)
        return
    keep("model/bytes", _weight_bytes(path), None, source, True)
    keep("statvfs/model/free_bytes", space.f_bavail * space.f_frsize, None, source, True)
    if space.f_blocks:
        free = round(100.0 * space.f_bavail / space.f_blocks, 1)
        keep("statvfs/model/free_pct", free, None, source, True)
    if space.f_files:
        free = round(100.0 * space.f_favail / space.f_files, 1)
        keep("statvfs/model/free_inodes_pct", free, None, source, True)
    mount = _mount(proc, pid, inside)
    if mount:
        keep("model/fs_type", mount[0], None, "/proc/%d/mountinfo" % pid, True)
        keep("model/mount_options", mount[1], None, "/proc/%d/mountinfo" % pid, True)
    number = "%d:%d" % (os.major(info.st_dev), os.minor(info.st_dev))
    keep("model/bdi", number, None, source, True)
    disk = _disk(proc[: -len("/proc")], number)
    if disk:
        keep("model/block_device", disk, None, "/sys/dev/block/" + number, True)


def _place(base: str, cwd: str, named: str, environment: Dict[str, str]) -> Optional[str]:
    """The folder or file of a model as the process sees it: a path, or a name of the hub."""
    if named.startswith("/"):
        return named if os.path.exists(base + named) else None
    try:
        inside = os.path.join(os.readlink(cwd), named)
    except OSError:
        inside = ""
    if inside and os.path.exists(base + inside):
        return inside
    home = environment.get("HF_HOME") or environment.get("HOME", "/root") + "/.cache/huggingface"
    hub = environment.get("HF_HUB_CACHE") or home + "/hub"
    if re.match(r"^[\w.-]+/[\w.-]+$", named):
        snapshots = "%s/models--%s/snapshots" % (hub, named.replace("/", "--"))
        try:
            newest = max(os.scandir(base + snapshots), key=lambda entry: entry.stat().st_mtime).name
        except (OSError, ValueError):
            return None
        return "%s/%s" % (snapshots, newest)
    return None


def _weight_bytes(path: str) -> int:
    if os.path.isfile(path):
        return os.stat(path).st_size
    total = 0
    try:
        for seen, entry in enumerate(os.scandir(path)):
            if seen >= MAX_FILES:
                break
            if entry.name.endswith(WEIGHTS):
                total += entry.stat().st_size
    except OSError:
        pass
    return total


def _mount(proc: str, pid: int, inside: str) -> Optional[Tuple[str, str]]:
    """Type and options of the file system that a path of the process lies on."""
    best: Tuple[int, str, str] = (-1, "", "")
    try:
        with open("%s/%d/mountinfo" % (proc, pid), "rb") as file:
            text = file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return None
    for line in text.split("\n"):
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 6:
            continue
        point = fields[4].replace("\\040", " ")
        below = inside == point or inside.startswith(point.rstrip("/") + "/")
        if below and len(point) >= best[0]:
            best = (len(point), right.split()[0], fields[5])
    return (best[1], best[2]) if best[1] else None


def _disk(root: str, number: str) -> Optional[str]:
    """The whole disk below a block device's number, for its queue's settings."""
    try:
        path = os.path.realpath("%s/sys/dev/block/%s" % (root, number))
    except OSError:
        return None
    if not os.path.exists(path):
        return None
    if os.path.exists(path + "/partition"):
        path = os.path.dirname(path)
    return os.path.basename(path)


def interrupts(root: str, keep: Keep) -> None:
    """Where the interrupts of GPUs and network cards are served, and which CPUs are near."""
    base = root + "/sys/bus/pci/devices"
    told = 0
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return
    for bdf in names:
        if _text("%s/%s/class" % (base, bdf))[:4] not in ("0x02", "0x03"):
            continue
        near = _text("%s/%s/local_cpulist" % (base, bdf))
        try:
            numbers = sorted(os.listdir("%s/%s/msi_irqs" % (base, bdf)), key=len)
        except OSError:
            continue
        for number in numbers[:IRQS_A_DEVICE]:
            path = "/proc/irq/%s/effective_affinity_list" % number
            cpus = _text(root + path)
            if cpus and near and told < MAX_IRQS:
                told += 1
                keep("irq/%s/effective_affinity_list" % number, cpus, None, path, False)
                keep("irq/%s/local_cpus" % number, near, None, bdf, False)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")
