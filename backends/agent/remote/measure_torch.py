"""Micro-measurements with torch: a program of its own, run with the python that has torch.

A bf16 matrix product of each GPU, and all-reduces over all of them through NCCL, one process a GPU.
Prints one JSON line a result, as `measure_cuda` does. It sets nothing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import socket
import statistics
import subprocess
import sys
from typing import Any, Callable, Dict, List

from . import measure_words

MATRIX = 8192
PRODUCTS = 40
SIZES = tuple(
    (kib << 10, "%dKiB" % kib if kib < 1024 else "%dMiB" % (kib >> 10))
    for kib in (8, 32, 128, 512, 2048, 8192, 32768, 131072)
)
LARGE_BYTES = 64 << 20
"""From here on the bandwidth counts, below the latency."""
WAIT_S = 120


def timed(torch: Any, device: int, work: Callable[[], None]) -> float:
    """Seconds of `work` on the GPU's own clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return max(1e-9, float(begin.elapsed_time(end)) / 1e3)


def address(torch: Any, device: int) -> str:
    """PCI address of a GPU as the kernel writes it."""
    seen = torch.cuda.get_device_properties(device)
    try:
        place = (seen.pci_domain_id, seen.pci_bus_id, seen.pci_device_id)
        return "%04x:%02x:%02x.0" % place
    except AttributeError:  # torch has these since 2.6; the driver always has
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuInit(0)
        text = ctypes.create_string_buffer(32)
        if cuda.cuDeviceGetPCIBusId(text, 32, device) != 0:
            return "index-%d" % device
        return text.value.decode().lower()


def matmul(torch: Any, device: int, gpu: str) -> None:
    """A bf16 matrix product."""
    torch.cuda.set_device(device)
    a = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16)
    b = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    work = measure_words.repeat(PRODUCTS, lambda: torch.matmul(a, b, out=c))
    amount = 2.0 * MATRIX**3 * PRODUCTS / 1e12
    work()
    runs = [amount / timed(torch, device, work) for _ in range(measure_words.RUNS)]
    measure_words.fact("matmul/%s/tflop_s" % gpu, statistics.median(runs))
    measure_words.fact("matmul/%s/spread_pct" % gpu, measure_words.spread(runs))


def allreduce(count: int, stub: str) -> int:
    """Over all GPUs, each in a process of its own; gives how many of these failed."""
    if count < 2:
        measure_words.out(said="one GPU alone: nothing to reduce over")
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = sys.modules[str(__package__)].TASK.encode("utf-8")
    children = []
    for rank in range(count):
        options = json.dumps({"rank": rank, "world": count, "port": port})
        child: Any = subprocess.Popen([sys.executable, "-c", stub, options], stdin=subprocess.PIPE)
        child.stdin.write(b"%d\n" % len(source) + source)
        child.stdin.flush()
        children.append(child)
    failed = 0
    for child in children:
        try:
            failed += child.wait(WAIT_S) != 0
        except subprocess.TimeoutExpired:
            failed += 1
            child.kill()
            child.wait()
    return failed


def rank_of(torch: Any, options: Dict[str, Any]) -> None:
    """One process of the all-reduce."""
    from datetime import timedelta

    distributed = importlib.import_module("torch.distributed")
    rank, world = int(options["rank"]), int(options["world"])
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl",
        init_method="tcp://127.0.0.1:%d" % options["port"],
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=WAIT_S // 2),
    )
    try:
        for size, label in SIZES:
            data = torch.zeros(size // 2, device=rank, dtype=torch.bfloat16)
            count = 20 if size >= LARGE_BYTES else 200
            work = measure_words.repeat(count, functools.partial(distributed.all_reduce, data))
            work()
            times = [timed(torch, rank, work) / count for _ in range(measure_words.RUNS)]
            if rank == 0:
                tell(label, size, world, times)
    finally:
        distributed.destroy_process_group()


def tell(label: str, size: int, world: int, times: List[float]) -> None:
    """Latency of a small message, bandwidth of a large one (as nccl-tests count it)."""
    middle = statistics.median(times)
    if size >= LARGE_BYTES:
        name, value = label + "_busbw_gb_s", size / middle / 1e9 * 2 * (world - 1) / world
    else:
        name, value = label + "_us", middle * 1e6
    measure_words.fact("allreduce/%s/value" % name, value)
    measure_words.fact("allreduce/%s/runs" % name, len(times))
    measure_words.fact("allreduce/%s/spread_pct" % name, measure_words.spread(times))
    measure_words.fact("allreduce/%s/gpus" % name, world)


def main(options: Dict[str, Any]) -> int:
    """Everything that was asked for."""
    measure_words.leave_with_stdin()
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        sys.stderr.write("torch sees no GPU\n")
        return 3
    if "rank" in options:
        rank_of(torch, options)
        return 0
    parts = list(options.get("parts") or ())
    count = torch.cuda.device_count()
    measure_words.out(said="torch %s, %d GPUs" % (torch.__version__, count))
    measure_words.fact("torch/version", str(torch.__version__))
    if "matmul" in parts:
        for device in range(count):
            gpu = address(torch, device)
            measure_words.fact("name/" + gpu, str(torch.cuda.get_device_name(device)))
            free, total = torch.cuda.mem_get_info(device)
            measure_words.fact("matmul/%s/busy" % gpu, total - free > total // 20)
            if free < 4 * MATRIX * MATRIX * 2:
                measure_words.out(said="GPU %d has no room for a matrix product" % device)
                continue
            matmul(torch, device, gpu)
            torch.cuda.empty_cache()
    if "allreduce" in parts:
        measure_words.out(said="all-reduce over %d GPUs" % count)
        failed = allreduce(count, str(options["stub"]))
        if failed:
            sys.stderr.write("%d of %d processes of the all-reduce failed\n" % (failed, count))
            return 4
    return 0
