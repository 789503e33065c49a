"""Micro-measurements with libcuda alone: a program of its own, for any host with a driver.

Copies between host and GPU (from the GPU's own NUMA node, and from another), between GPUs with and
without peer access, within a GPU's memory, and kernel launches; or a load, beside which somebody
else reads. Prints one JSON line a result, `{"key": ..., "value": ...}`, and `{"said": ...}` for
what it is at. Each figure is the median of three runs. It sets nothing.
"""

from __future__ import annotations

import ctypes
import functools
import os
import statistics
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import measure_driver, measure_words

COPY_BYTES = 256 << 20
COPIES = 10
PAIR_COPIES = 4
SMALL_COPIES = 500
LAUNCHES = 2000
ROUND_TRIPS = 500
CHECKED_BYTES = 1 << 20
LAST_S = 0.3
"""Before its end a load says so, that nobody reads when it is over."""
LANE_GB_S = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}
# Of the driver's API: clock of the memory in kHz, width of its bus in bits.
MEMORY_CLOCK, BUS_WIDTH = 36, 37
PTX = """
.version %s
.target %s
.address_size 64
.visible .entry nothing() { ret; }
"""
TARGETS = (("6.0", "sm_50"), ("7.0", "sm_75"), ("7.8", "sm_90"))
"""A driver translates the oldest that it still knows for whatever GPU there is."""


def pci_text(address: str, name: str) -> str:
    """An attribute of a PCI device; empty where there is none."""
    return measure_words.text_of("/sys/bus/pci/devices/%s/%s" % (address, name))


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
        for part in measure_words.text_of("%s/%s/cpulist" % (base, name)).split(","):
            first, _, last = part.partition("-")
            if first.isdigit():
                cpus.update(range(int(first), int(last or first) + 1))
        if cpus & may:
            found[int(name[4:])] = cpus & may
    return found


def near_and_far(address: str) -> Tuple[Optional[Set[int]], Optional[Set[int]]]:
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


def copies(gpu: measure_driver.Gpu) -> None:
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


def copies_from_here(gpu: measure_driver.Gpu, there: Any, word: str) -> None:
    """With pinned memory of the node that this thread runs on."""
    host = gpu.pinned(COPY_BYTES)
    amount = COPY_BYTES * COPIES / 1e9
    try:
        for name, work in (
            ("h2d", lambda: gpu.down(there, host, COPY_BYTES)),
            ("d2h", lambda: gpu.up(host, there, COPY_BYTES)),
        ):
            runs = gpu.rates(amount, measure_words.repeat(COPIES, work))
            if word:
                place = "%s/%s/%sgb_s" % (name, gpu.address, word)
                measure_words.fact(place, statistics.median(runs))
            else:
                measure_words.rates("%s/%s" % (name, gpu.address), runs)
    finally:
        gpu.unpin(host)


def memory(cuda: measure_driver.Cuda, gpu: measure_driver.Gpu, size: int) -> None:
    """A copy within the GPU's memory: each byte is read and written."""
    source, target = gpu.memory(size), gpu.memory(size)
    work = measure_words.repeat(4, lambda: gpu.within(target, source, size))
    runs = gpu.rates(2 * size * 4 / 1e9, work)
    gpu.free(source, target)
    measure_words.rates("membw/" + gpu.address, runs)
    clock_khz = cuda.attribute(gpu.device, MEMORY_CLOCK)
    width_bits = cuda.attribute(gpu.device, BUS_WIDTH)
    if clock_khz and width_bits:
        theory = 2.0 * clock_khz * 1e3 * width_bits / 8 / 1e9
        measure_words.fact("membw/%s/theory_gb_s" % gpu.address, theory)


def launches(cuda: measure_driver.Cuda, gpu: measure_driver.Gpu) -> None:
    """What a launch costs the host, and what a launch and its end cost together."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for target in TARGETS:
        try:
            text = ctypes.c_char_p((PTX % target).encode())
            cuda.call("cuModuleLoadData", ctypes.byref(module), text)
            break
        except measure_driver.CudaError:
            if target == TARGETS[-1]:
                raise
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"nothing"))

    def launch() -> None:
        cuda.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, gpu.stream, None, None)

    submit, there_and_back = [], []
    for _ in range(measure_words.RUNS + 1):
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
    measure_words.fact("launch/%s/submit_us" % gpu.address, statistics.median(submit[1:]))
    measure_words.fact(
        "launch/%s/round_trip_us" % gpu.address, statistics.median(there_and_back[1:])
    )


def pair(cuda: measure_driver.Cuda, a: measure_driver.Gpu, b: measure_driver.Gpu) -> None:
    """Copies from one GPU to another without and with peer access, and what a few bytes take."""
    name = "p2p/%s/%s" % (a.address, b.address)
    can = cuda.reaches(a.device, b.device)
    measure_words.fact(name + "/peer", can)
    b.use()
    target = b.memory(COPY_BYTES)
    a.use()
    source = a.memory(COPY_BYTES)

    def both(prefix: str) -> None:
        work = measure_words.repeat(PAIR_COPIES, lambda: a.across(target, b, source, COPY_BYTES))
        runs = a.rates(COPY_BYTES * PAIR_COPIES / 1e9, work)
        if prefix:
            measure_words.fact("%s/%sgb_s" % (name, prefix), statistics.median(runs))
        else:
            measure_words.rates(name, runs)
        small = measure_words.repeat(SMALL_COPIES, lambda: a.across(target, b, source, 4))
        times = [1e6 / rate for rate in a.rates(SMALL_COPIES, small)]
        measure_words.fact("%s/%slatency_us" % (name, prefix), statistics.median(times))

    try:
        both("plain_" if can else "")
        equal = None
        if can:
            a.peer(b, on=True)
            try:
                both("")
                equal = arrives(a, b, source, target)
            finally:
                a.peer(b, on=False)
    finally:
        a.use()
        a.free(source)
        b.use()
        b.free(target)
    if equal is not None:
        measure_words.fact("p2p_copy/%s/%s/equal" % (a.address, b.address), equal)
    links = [link for link in (pci_link(a.address), pci_link(b.address)) if link is not None]
    if len(links) == 2:
        measure_words.fact(name + "/link_gb_s", min(links))
    nodes = [pci_text(gpu.address, "numa_node") for gpu in (a, b)]
    if all(nodes):
        measure_words.fact(name + "/cross_node", nodes[0] != nodes[1])


def arrives(a: measure_driver.Gpu, b: measure_driver.Gpu, source: Any, target: Any) -> bool:
    """Whether what is copied to another GPU is what comes out there."""
    sent = ctypes.create_string_buffer(os.urandom(CHECKED_BYTES), CHECKED_BYTES)
    got = ctypes.create_string_buffer(CHECKED_BYTES)
    a.use()
    a.down(source, sent, CHECKED_BYTES)
    a.across(target, b, source, CHECKED_BYTES)
    a.wait()
    b.use()
    b.up(got, target, CHECKED_BYTES)
    b.wait()
    a.use()
    return sent.raw == got.raw


def one_gpu(cuda: measure_driver.Cuda, gpu: measure_driver.Gpu, parts: List[str]) -> None:
    """What was asked for of one GPU."""
    gpu.use()
    measure_words.fact("name/" + gpu.address, cuda.text("cuDeviceGetName", gpu.device))
    free, total = gpu.room()
    for name in ("h2d", "membw"):
        measure_words.fact("%s/%s/busy" % (name, gpu.address), total - free > total // 20)
    if free < 4 * COPY_BYTES:
        measure_words.out(said="GPU %d has no room to be measured" % gpu.device)
        return
    size = min(4 << 30, free // 4)
    for part, work in (
        ("copies", lambda: copies(gpu)),
        ("memory", lambda: memory(cuda, gpu, size)),
        ("launch", lambda: launches(cuda, gpu)),
    ):
        if part in parts:
            tried(part, "GPU %d" % gpu.device, work)


def tried(part: str, where: str, work: Callable[[], None]) -> None:
    """Do one thing; where the driver refuses, that part has failed there and the rest goes on."""
    try:
        work()
    except measure_driver.CudaError as error:
        measure_words.out(part=part, status=1, words="%s: %s" % (where, error))


def load(cuda: measure_driver.Cuda, count: int, seconds: float) -> None:
    """Copies both ways and kernels on every GPU, for so long."""
    until = time.monotonic() + seconds
    ready = threading.Barrier(count + 1)
    failed: List[str] = []

    def one(device: int) -> None:
        try:
            gpu = measure_driver.Gpu(cuda, device)
            size = COPY_BYTES // 4
            hosts = [gpu.pinned(size), gpu.pinned(size)]
            inside = [gpu.memory(size), gpu.memory(size), gpu.memory(size)]
            streams = [gpu.new_stream() for _ in range(3)]
        except measure_driver.CudaError as error:
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
        except measure_driver.CudaError as error:
            failed.append("GPU %d: %s" % (device, error))

    threads = [threading.Thread(target=one, args=(device,)) for device in range(count)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    until = max(until, time.monotonic() + seconds)
    measure_words.out(load="began")
    time.sleep(max(0.0, until - time.monotonic() - LAST_S))
    measure_words.out(load="ends")
    for thread in threads:
        thread.join()
    for words in failed:
        measure_words.out(said=words)
    if len(failed) >= count:
        sys.exit(4)


def main(options: Dict[str, Any]) -> int:
    """Everything that was asked for."""
    measure_words.leave_with_stdin()
    parts = list(options.get("parts") or ())
    try:
        cuda = measure_driver.Cuda()
        count = cuda.count()
    except (OSError, measure_driver.CudaError) as error:
        sys.stderr.write("no CUDA: %s\n" % error)
        return 3
    if not count:
        sys.stderr.write("CUDA sees no GPU\n")
        return 3
    if options.get("load_s"):
        load(cuda, count, float(options["load_s"]))
        return 0
    try:
        gpus = [measure_driver.Gpu(cuda, device) for device in range(count)]
    except measure_driver.CudaError as error:
        sys.stderr.write("%s\n" % error)
        return 4
    for gpu in gpus:
        names = ", ".join(part for part in parts if part != "pairs")
        measure_words.out(said="GPU %d: %s" % (gpu.device, names))
        one_gpu(cuda, gpu, parts)
    for a in gpus:
        for b in gpus:
            if a is not b and "pairs" in parts:
                where = "GPU %d to GPU %d" % (a.device, b.device)
                measure_words.out(said=where)
                tried("pairs", where, functools.partial(pair, cuda, a, b))
    return 0
