"""Micro-measurements with torch: a program of its own, run with the python that has torch.

Prints one JSON line a result, `{"key": ..., "value": ...}`, with the keys of `bench/...` facts, and
`{"said": ...}` for what it is at. Each figure is the median of three runs. It sets nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional

RUNS = 3
COPY_BYTES = 256 << 20
COPIES = 10
MATRIX = 8192
LANE_GB_S = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}
READ_BYTES = 4 << 30
READ_S = 4.0


def out(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def fact(key: str, value: Any) -> None:
    """One result."""
    out(key="bench/" + key, value=round(value, 3) if isinstance(value, float) else value)


def spread(runs: List[float]) -> float:
    """How far the runs lie apart, in percent of the largest."""
    return 100.0 * (max(runs) - min(runs)) / max(runs) if max(runs) else 0.0


def timed(torch: Any, device: int, work: Callable[[], None]) -> float:
    """Seconds of `work` on the GPU's own clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3


def three(torch: Any, device: int, amount: float, work: Callable[[], None]) -> List[float]:
    """`amount` a second, three times, after one for warmth."""
    work()
    return [amount / timed(torch, device, work) for _ in range(RUNS)]


class Cuda:
    """A few questions for libcuda that torch has no words for."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._lib.cuInit(0)

    def attribute(self, device: int, number: int) -> int:
        """CuDeviceGetAttribute."""
        value = ctypes.c_int(0)
        if self._lib.cuDeviceGetAttribute(ctypes.byref(value), number, device) != 0:
            return 0
        return value.value

    def address(self, device: int) -> str:
        """PCI address as the kernel writes it."""
        text = ctypes.create_string_buffer(32)
        if self._lib.cuDeviceGetPCIBusId(text, 32, device) != 0:
            return "index-%d" % device
        return text.value.decode().lower()


def one_gpu(torch: Any, cuda: Cuda, device: int) -> None:
    """Copies, memory, matrix product and launches of one GPU."""
    gpu = cuda.address(device)
    torch.cuda.set_device(device)
    fact("name/" + gpu, torch.cuda.get_device_name(device))
    free, total = torch.cuda.mem_get_info(device)
    busy = total - free > total // 20
    for name in ("h2d", "membw"):
        fact("%s/%s/busy" % (name, gpu), busy)
    if free < 4 * COPY_BYTES:
        out(said="GPU %d has no room to be measured" % device)
        return
    host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    amount = COPY_BYTES * COPIES / 1e9

    def down() -> None:
        for _ in range(COPIES):
            there.copy_(host, non_blocking=True)

    def up() -> None:
        for _ in range(COPIES):
            host.copy_(there, non_blocking=True)

    for name, work in (("h2d", down), ("d2h", up)):
        runs = three(torch, device, amount, work)
        fact("%s/%s/gb_s" % (name, gpu), statistics.median(runs))
        fact("%s/%s/spread_pct" % (name, gpu), spread(runs))
    memory(torch, cuda, device, gpu, min(4 << 30, free // 4))
    torch.cuda.empty_cache()
    matmul(torch, device, gpu)
    launches(torch, device, gpu)


def repeat(count: int, work: Callable[[], Any]) -> Callable[[], None]:
    """`work` so many times."""

    def all_of_it() -> None:
        for _ in range(count):
            work()

    return all_of_it


def memory(torch: Any, cuda: Cuda, device: int, gpu: str, size: int) -> None:
    """A copy within the GPU's memory: each byte is read and written."""
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = repeat(4, lambda: target.copy_(source))
    runs = three(torch, device, 2 * size * 4 / 1e9, copy)
    fact("membw/%s/gb_s" % gpu, statistics.median(runs))
    fact("membw/%s/spread_pct" % gpu, spread(runs))
    # Attributes 36 and 37: memory clock in kHz, width of the memory bus in bits.
    clock_khz, width_bits = cuda.attribute(device, 36), cuda.attribute(device, 37)
    if clock_khz and width_bits:
        fact("membw/%s/theory_gb_s" % gpu, 2.0 * clock_khz * 1e3 * width_bits / 8 / 1e9)


def matmul(torch: Any, device: int, gpu: str) -> None:
    """A bf16 matrix product."""
    a = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16)
    b = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    count = 40
    work = 2.0 * MATRIX**3 * count / 1e12
    runs = three(torch, device, work, repeat(count, lambda: torch.matmul(a, b, out=c)))
    fact("matmul/%s/tflop_s" % gpu, statistics.median(runs))
    fact("matmul/%s/spread_pct" % gpu, spread(runs))


def launches(torch: Any, device: int, gpu: str) -> None:
    """What a launch costs the host, and what a launch and its end cost together."""
    small = torch.zeros(1, device=device)
    submit, there_and_back = [], []
    for _ in range(RUNS + 1):
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(2000):
            small.add_(1.0)
        submit.append((time.perf_counter() - began) / 2000 * 1e6)
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(500):
            small.add_(1.0)
            torch.cuda.synchronize(device)
        there_and_back.append((time.perf_counter() - began) / 500 * 1e6)
    fact("launch/%s/submit_us" % gpu, statistics.median(submit[1:]))
    fact("launch/%s/round_trip_us" % gpu, statistics.median(there_and_back[1:]))


def pair(torch: Any, cuda: Cuda, a: int, b: int) -> None:
    """A copy from one GPU to another, and what a few bytes take."""
    name = "p2p/%s/%s" % (cuda.address(a), cuda.address(b))
    fact(name + "/peer", bool(torch.cuda.can_device_access_peer(a, b)))
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=a)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=b)
    torch.cuda.set_device(a)

    def copies() -> None:
        for _ in range(COPIES):
            target.copy_(source, non_blocking=True)

    runs = three(torch, a, COPY_BYTES * COPIES / 1e9, copies)
    fact(name + "/gb_s", statistics.median(runs))
    few, many = source[:4], target[:4]
    times = []
    for _ in range(200):
        torch.cuda.synchronize(a)
        began = time.perf_counter()
        many.copy_(few)
        torch.cuda.synchronize(a)
        torch.cuda.synchronize(b)
        times.append((time.perf_counter() - began) * 1e6)
    fact(name + "/latency_us", statistics.median(times[20:]))
    links = [pci_link(cuda.address(device)) for device in (a, b)]
    if None not in links:
        fact(name + "/link_gb_s", min(link for link in links if link is not None))
    nodes = [pci_text(cuda.address(device), "numa_node") for device in (a, b)]
    if all(nodes):
        fact(name + "/cross_node", nodes[0] != nodes[1])


def pci_text(gpu: str, name: str) -> str:
    """An attribute of a PCI device; empty where there is none."""
    try:
        with open("/sys/bus/pci/devices/%s/%s" % (gpu, name)) as file:
            return file.read(256).strip()
    except OSError:
        return ""


def pci_link(gpu: str) -> Optional[float]:
    """What a GPU's PCIe link carries at most, GB/s in one direction."""
    try:
        speed = float(pci_text(gpu, "max_link_speed").split()[0])
        return LANE_GB_S[speed] * int(pci_text(gpu, "max_link_width"))
    except (ValueError, IndexError, KeyError):
        return None


def storage(path: str) -> None:
    """Sequential read of the largest file at a path, past the page cache as far as it goes."""
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(place, name) for place, _, names in os.walk(path) for name in names]
    files = [name for name in files if os.path.isfile(name)]
    if not files:
        out(said="there is no file at " + path)
        return
    name = max(files, key=os.path.getsize)
    fd = os.open(name, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        began, done = time.perf_counter(), 0
        while done < READ_BYTES and time.perf_counter() - began < READ_S:
            data = os.read(fd, 8 << 20)
            if not data:
                break
            done += len(data)
        took = time.perf_counter() - began
    finally:
        os.close(fd)
    fact("read/gb_s", done / took / 1e9)
    fact("read/bytes", done)
    fact("read/file", name)


def main(options: Dict[str, Any]) -> None:
    """Everything that was asked for."""
    if options.get("path"):
        storage(options["path"])
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        out(said="torch sees no GPU")
        return
    cuda = Cuda()
    count = torch.cuda.device_count()
    out(said="torch %s, %d GPUs" % (torch.__version__, count))
    fact("torch/version", str(torch.__version__))
    for device in range(count):
        out(said="GPU %d" % device)
        one_gpu(torch, cuda, device)
    for a in range(count):
        for b in range(count):
            if a != b:
                pair(torch, cuda, a, b)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
