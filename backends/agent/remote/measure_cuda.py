"""Micro-measurements with libcuda alone: a program of its own, for any host with a driver.

Copies between host and GPU (from the GPU's own NUMA node, and from another), between GPUs with and
without peer access, within a GPU's memory, and kernel launches; or a load, beside which somebody
else reads. Prints one JSON line a result, `{"key": ..., "value": ...}`, and `{"said": ...}` for
what it is at. Each figure is the median of three runs. It sets nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set

RUNS = 3
COPY_BYTES = 256 << 20
COPIES = 10
PAIR_COPIES = 4
SMALL_COPIES = 500
LAUNCHES = 2000
ROUND_TRIPS = 500
LANE_GB_S = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}
# Of the driver's API: clock of the memory in kHz, width of its bus in bits.
MEMORY_CLOCK, BUS_WIDTH = 36, 37
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
\0"""


def out(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def fact(key: str, value: Any) -> None:
    """One result."""
    out(key="bench/" + key, value=round(value, 3) if isinstance(value, float) else value)


def leave_with_stdin() -> None:
    """End when whoever started us has gone."""

    def wait() -> None:
        while sys.stdin.buffer.read(1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def spread(runs: List[float]) -> float:
    """How far the runs lie apart, in percent of the largest."""
    return 100.0 * (max(runs) - min(runs)) / max(runs) if max(runs) else 0.0


class CudaError(Exception):
    """A call of the driver failed."""


class Cuda:
    """The driver's API, as far as it is needed."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            CudaError: It gave a code other than 0.
        """
        code = getattr(self._lib, name)(*arguments)
        if code != 0:
            raise CudaError("%s gave %d" % (name, code))

    def count(self) -> int:
        """How many GPUs."""
        number = ctypes.c_int(0)
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def attribute(self, device: int, number: int) -> int:
        """An attribute; 0 where it is not known."""
        value = ctypes.c_int(0)
        try:
            self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        except CudaError:
            return 0
        return value.value

    def text(self, name: str, device: int) -> str:
        """Name or address of a GPU."""
        buffer = ctypes.create_string_buffer(256)
        self.call(name, buffer, 256, device)
        return buffer.value.decode("utf-8", "replace")

    def reaches(self, a: int, b: int) -> bool:
        """Whether peer access from a to b can be had."""
        value = ctypes.c_int(0)
        self.call("cuDeviceCanAccessPeer", ctypes.byref(value), a, b)
        return bool(value.value)


class Gpu:
    """One GPU with its primary context and a stream; current on the thread that made it."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self.device = device
        self.address = cuda.text("cuDeviceGetPCIBusId", device).lower()
        self.context = ctypes.c_void_p()
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.use()
        self.stream = self.new_stream()
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            cuda.call("cuEventCreate", ctypes.byref(event), 0)

    def use(self) -> None:
        """Make it current on this thread."""
        self._cuda.call("cuCtxSetCurrent", self.context)

    def new_stream(self) -> Any:
        """A stream that waits for no other."""
        stream = ctypes.c_void_p()
        self._cuda.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def room(self) -> "tuple[int, int]":
        """Free and total bytes of its memory."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self._cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def memory(self, size: int) -> Any:
        """Memory of the GPU, to be freed with `free`."""
        pointer = ctypes.c_uint64(0)
        self._cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, *pointers: Any) -> None:
        """Give memory back."""
        for pointer in pointers:
            self._cuda.call("cuMemFree_v2", pointer)

    def pinned(self, size: int) -> Any:
        """Pinned memory of the host, on the NUMA node of the CPU that asks."""
        pointer = ctypes.c_void_p()
        self._cuda.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        return pointer

    def unpin(self, pointer: Any) -> None:
        """Give pinned memory back."""
        self._cuda.call("cuMemFreeHost", pointer)

    def wait(self, stream: Any = None) -> None:
        """Wait until a stream has done its work."""
        self._cuda.call("cuStreamSynchronize", stream or self.stream)

    def timed(self, work: Callable[[], None]) -> float:
        """Seconds of `work` on the stream, by the GPU's own clock."""
        begin, end = self._events
        self.wait()
        self._cuda.call("cuEventRecord", begin, self.stream)
        work()
        self._cuda.call("cuEventRecord", end, self.stream)
        self._cuda.call("cuEventSynchronize", end)
        took = ctypes.c_float(0)
        self._cuda.call("cuEventElapsedTime", ctypes.byref(took), begin, end)
        return max(1e-9, took.value / 1e3)

    def rates(self, amount: float, work: Callable[[], None]) -> List[float]:
        """`amount` a second, three times, after one for warmth."""
        work()
        return [amount / self.timed(work) for _ in range(RUNS)]

    def down(self, to: Any, source: Any, size: int, stream: Any = None) -> None:
        """Copy from host to GPU."""
        amount = ctypes.c_size_t(size)
        self._cuda.call("cuMemcpyHtoDAsync_v2", to, source, amount, stream or self.stream)

    def up(self, to: Any, source: Any, size: int, stream: Any = None) -> None:
        """Copy from GPU to host."""
        amount = ctypes.c_size_t(size)
        self._cuda.call("cuMemcpyDtoHAsync_v2", to, source, amount, stream or self.stream)

    def within(self, to: Any, source: Any, size: int) -> None:
        """Copy within its memory."""
        self._cuda.call("cuMemcpyDtoDAsync_v2", to, source, ctypes.c_size_t(size), self.stream)

    def fill(self, to: Any, size: int, stream: Any) -> None:
        """Fill memory: a kernel, where copies leave the processors idle."""
        self._cuda.call("cuMemsetD32Async", to, 0, ctypes.c_size_t(size // 4), stream)

    def across(self, to: Any, there: "Gpu", source: Any, size: int) -> None:
        """Copy to another GPU: straight where peer access is on, else through the host."""
        self._cuda.call(
            "cuMemcpyPeerAsync", to, there.context, source, self.context,
            ctypes.c_size_t(size), self.stream,
        )  # fmt: skip

    def peer(self, there: "Gpu", *, on: bool) -> None:
        """Switch this process's peer access to another GPU."""
        self.use()
        if on:
            self._cuda.call("cuCtxEnablePeerAccess", there.context, 0)
        else:
            self._cuda.call("cuCtxDisablePeerAccess", there.context)


def pci_text(address: str, name: str) -> str:
    """An attribute of a PCI device; empty where there is none."""
    return text_of("/sys/bus/pci/devices/%s/%s" % (address, name))


def text_of(path: str) -> str:
    """What a small file says; empty where it can't be read."""
    try:
        with open(path) as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def pci_link(address: str) -> Optional[float]:
    """What a GPU's PCIe link carries at most, GB/s in one direction."""
    try:
        speed = float(pci_text(address, "max_link_speed").split()[0])
        return LANE_GB_S[speed] * int(pci_text(address, "max_link_width"))
    except (ValueError, IndexError, KeyError):
        return None


def nodes_with_cpus() -> Dict[int, Set[int]]:
    """The CPUs that we may use, by NUMA node."""
    may = os.sched_getaffinity(0)
    found: Dict[int, Set[int]] = {}
    base = "/sys/devices/system/node"
    try:
        names = [n for n in os.listdir(base) if n.startswith("node") and n[4:].isdigit()]
    except OSError:
        names = []
    for name in names:
        cpus: Set[int] = set()
        for part in text_of("%s/%s/cpulist" % (base, name)).split(","):
            first, _, last = part.partition("-")
            if first.isdigit():
                cpus.update(range(int(first), int(last or first) + 1))
        if cpus & may:
            found[int(name[4:])] = cpus & may
    return found


def near_and_far(address: str) -> "tuple[Optional[Set[int]], Optional[Set[int]]]":
    """CPUs of a GPU's own NUMA node, and of another; None where that makes no sense."""
    nodes = nodes_with_cpus()
    try:
        own = int(pci_text(address, "numa_node"))
    except ValueError:
        return None, None
    if own not in nodes or len(nodes) < 2:
        return None, None
    other = max(nodes, key=lambda node: abs(node - own))
    return nodes[own], nodes[other]


def copies(gpu: Gpu) -> None:
    """Between host and GPU, from the GPU's own node; from another one besides."""
    near, far = near_and_far(gpu.address)
    whole = os.sched_getaffinity(0)
    there = gpu.memory(COPY_BYTES)
    try:
        os.sched_setaffinity(0, near or whole)
        copies_from_here(gpu, there, "")
        if far:
            os.sched_setaffinity(0, far)
            copies_from_here(gpu, there, "far_")
    finally:
        os.sched_setaffinity(0, whole)
        gpu.free(there)


def copies_from_here(gpu: Gpu, there: Any, word: str) -> None:
    """With pinned memory of the node that this thread runs on."""
    host = gpu.pinned(COPY_BYTES)
    amount = COPY_BYTES * COPIES / 1e9
    try:
        for name, work in (
            ("h2d", lambda: gpu.down(there, host, COPY_BYTES)),
            ("d2h", lambda: gpu.up(host, there, COPY_BYTES)),
        ):
            runs = gpu.rates(amount, repeat(COPIES, work))
            fact("%s/%s/%sgb_s" % (name, gpu.address, word), statistics.median(runs))
            if not word:
                fact("%s/%s/spread_pct" % (name, gpu.address), spread(runs))
    finally:
        gpu.unpin(host)


def repeat(count: int, work: Callable[[], Any]) -> Callable[[], None]:
    """`work` so many times."""

    def all_of_it() -> None:
        for _ in range(count):
            work()

    return all_of_it


def memory(cuda: Cuda, gpu: Gpu, size: int) -> None:
    """A copy within the GPU's memory: each byte is read and written."""
    source, target = gpu.memory(size), gpu.memory(size)
    work = repeat(4, lambda: gpu.within(target, source, size))
    runs = gpu.rates(2 * size * 4 / 1e9, work)
    gpu.free(source, target)
    fact("membw/%s/gb_s" % gpu.address, statistics.median(runs))
    fact("membw/%s/spread_pct" % gpu.address, spread(runs))
    clock_khz = cuda.attribute(gpu.device, MEMORY_CLOCK)
    width_bits = cuda.attribute(gpu.device, BUS_WIDTH)
    if clock_khz and width_bits:
        theory = 2.0 * clock_khz * 1e3 * width_bits / 8 / 1e9
        fact("membw/%s/theory_gb_s" % gpu.address, theory)


def launches(cuda: Cuda, gpu: Gpu) -> None:
    """What a launch costs the host, and what a launch and its end cost together."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"nothing"))

    def launch() -> None:
        cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, gpu.stream, None, None)

    submit, there_and_back = [], []
    for _ in range(RUNS + 1):
        gpu.wait()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        submit.append((time.perf_counter() - began) / LAUNCHES * 1e6)
        gpu.wait()
        began = time.perf_counter()
        for _ in range(ROUND_TRIPS):
            launch()
            gpu.wait()
        there_and_back.append((time.perf_counter() - began) / ROUND_TRIPS * 1e6)
    fact("launch/%s/submit_us" % gpu.address, statistics.median(submit[1:]))
    fact("launch/%s/round_trip_us" % gpu.address, statistics.median(there_and_back[1:]))


def pair(cuda: Cuda, a: Gpu, b: Gpu) -> None:
    """Copies from one GPU to another without and with peer access, and what a few bytes take."""
    name = "p2p/%s/%s" % (a.address, b.address)
    can = cuda.reaches(a.device, b.device)
    fact(name + "/peer", can)
    b.use()
    target = b.memory(COPY_BYTES)
    a.use()
    source = a.memory(COPY_BYTES)

    def both(prefix: str) -> None:
        work = repeat(PAIR_COPIES, lambda: a.across(target, b, source, COPY_BYTES))
        runs = a.rates(COPY_BYTES * PAIR_COPIES / 1e9, work)
        fact("%s/%sgb_s" % (name, prefix), statistics.median(runs))
        if not prefix:
            fact(name + "/spread_pct", spread(runs))
        small = repeat(SMALL_COPIES, lambda: a.across(target, b, source, 4))
        times = [1e6 / rate for rate in a.rates(SMALL_COPIES, small)]
        fact("%s/%slatency_us" % (name, prefix), statistics.median(times))

    try:
        both("plain_" if can else "")
        if can:
            a.peer(b, on=True)
            try:
                both("")
            finally:
                a.peer(b, on=False)
    finally:
        a.use()
        a.free(source)
        b.use()
        b.free(target)
    links = [pci_link(gpu.address) for gpu in (a, b)]
    if None not in links:
        fact(name + "/link_gb_s", min(link for link in links if link is not None))
    nodes = [pci_text(gpu.address, "numa_node") for gpu in (a, b)]
    if all(nodes):
        fact(name + "/cross_node", nodes[0] != nodes[1])


def one_gpu(cuda: Cuda, gpu: Gpu, parts: List[str]) -> None:
    """What was asked for of one GPU."""
    gpu.use()
    fact("name/" + gpu.address, cuda.text("cuDeviceGetName", gpu.device))
    free, total = gpu.room()
    for name in ("h2d", "membw"):
        fact("%s/%s/busy" % (name, gpu.address), total - free > total // 20)
    if free < 4 * COPY_BYTES:
        out(said="GPU %d has no room to be measured" % gpu.device)
        return
    if "copies" in parts:
        copies(gpu)
    if "memory" in parts:
        memory(cuda, gpu, min(4 << 30, free // 4))
    if "launch" in parts:
        launches(cuda, gpu)


def load(cuda: Cuda, count: int, seconds: float) -> None:
    """Copies both ways and kernels on every GPU, for so long."""
    until = time.monotonic() + seconds
    ready = threading.Barrier(count + 1)
    failed: List[str] = []

    def one(device: int) -> None:
        try:
            gpu = Gpu(cuda, device)
            size = COPY_BYTES // 4
            hosts = [gpu.pinned(size), gpu.pinned(size)]
            inside = [gpu.memory(size), gpu.memory(size), gpu.memory(size)]
            streams = [gpu.new_stream() for _ in range(3)]
        except CudaError as error:
            failed.append("GPU %d: %s" % (device, error))
            ready.wait(60)
            return
        ready.wait(60)
        try:
            while time.monotonic() < until:
                for _ in range(4):
                    gpu.down(inside[0], hosts[0], size, streams[0])
                    gpu.up(hosts[1], inside[1], size, streams[1])
                    for _ in range(8):
                        gpu.fill(inside[2], size, streams[2])
                for stream in streams:
                    gpu.wait(stream)
        except CudaError as error:
            failed.append("GPU %d: %s" % (device, error))

    threads = [threading.Thread(target=one, args=(device,)) for device in range(count)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    until = max(until, time.monotonic() + seconds)
    out(load="began")
    for thread in threads:
        thread.join()
    for words in failed:
        out(said=words)
    if len(failed) >= count:
        sys.exit(4)


def main(options: Dict[str, Any]) -> int:
    """Everything that was asked for."""
    parts = list(options.get("parts") or ())
    try:
        cuda = Cuda()
        count = cuda.count()
    except (OSError, CudaError) as error:
        sys.stderr.write("no CUDA: %s\n" % error)
        return 3
    if not count:
        sys.stderr.write("CUDA sees no GPU\n")
        return 3
    if options.get("load_s"):
        load(cuda, count, float(options["load_s"]))
        return 0
    gpus = [Gpu(cuda, device) for device in range(count)]
    failures = 0
    for gpu in gpus:
        out(said="GPU %d: %s" % (gpu.device, ", ".join(p for p in parts if p != "pairs")))
        try:
            one_gpu(cuda, gpu, parts)
        except CudaError as error:
            failures += 1
            out(said="GPU %d: %s" % (gpu.device, error))
    for a in gpus:
        for b in gpus:
            if a is not b and "pairs" in parts:
                out(said="GPU %d to GPU %d" % (a.device, b.device))
                try:
                    pair(cuda, a, b)
                except CudaError as error:
                    failures += 1
                    out(said="GPU %d to GPU %d: %s" % (a.device, b.device, error))
    return 4 if failures and failures >= len(gpus) else 0


if __name__ == "__main__":
    leave_with_stdin()
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
