"""Micro-measurements of a host, on request: programs of ours and the host's own tools.

What needs a GPU is done through libcuda, torch (the python that has it is not always the agent's),
nvbandwidth and nccl-tests, whichever are there. Nothing is done beside processes that hold GPUs,
unless that was confirmed.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import (
    facts_gpu,
    measure_child,
    measure_cpu,
    measure_cuda,
    measure_driver,
    measure_load,
    measure_torch,
    measure_words,
)

CHECK = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
LIMIT_S = 300.0
BUSY = 16
"""Status where GPUs are held: EBUSY."""
MAX_OUTPUT = 256 * 1024
"""Characters of what a tool printed."""
HELD_PCT = 5
"""Of a GPU's memory, from which on somebody is there whose process is not visible."""
REDUCE_RUNS = 3
PLACES = ("/opt/venv/bin/python", "/opt/conda/bin/python", "/usr/local/bin/python3")
TOOL_PLACES = (
    "/usr/local/bin", "/usr/bin", "/usr/local/cuda/bin", "/opt/nccl-tests/build",
    "/usr/local/nccl-tests/build", "/opt/nvbandwidth", "/usr/local/cuda/extras/demo_suite",
)  # fmt: skip
CUDA_PARTS = ("copies", "memory", "launch", "pairs")
CPU_MODULES = (measure_words, measure_cpu)
CUDA_MODULES = (measure_words, measure_driver, measure_cuda)
TORCH_PARTS = ("matmul", "allreduce")
CPU_PARTS = ("wakeup", "read")
LOAD_PARTS = ("link", "busy")
LOADS_S = {"load_s": 12.0, "busy_s": 60.0}
BANDWIDTH_TESTS = {
    "copies": ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce"],
    "pairs": ["device_to_device_memcpy_write_ce"],
}
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA counts GPUs as NVML does then."""


def register(agent: Any) -> None:
    """Add the methods of this area."""
    # A simulated host lies in a folder: what could be measured is the machine that plays it.
    played = "root" in agent.settings
    agent.methods.add_stream("measure.run", _refuse if played else run)
    agent.on_end(measure_child.end_all)


def run(params: Dict[str, Any], stream: Any) -> None:
    """Stream what is measured, as objects.

    Args:
        params: `parts` (names), `python` (the one that has torch; looked for where it is missing),
            `path` (of a model, to be read), `load_s` (of the part `link`), `busy_s` (of `busy`),
            `limit_s`, `beside` (also where processes hold GPUs), `root` (a folder in the place of
            `/`, for trials).
        stream: Gets `{"key", "value"}`, `{"said"}`, `{"tool", "output"}` with what a tool of the
            host printed, `{"part", "status", "words"}` for each part that failed or could not be
            done, and at the end `{"status", "words"}`: 0, or 16 where GPUs are held.
    """
    parts = [str(name) for name in params.get("parts") or ()]
    holding = held() if set(parts) - set(CPU_PARTS) else []
    if holding and not params.get("beside"):
        stream.send({"status": BUSY, "words": "; ".join(holding)[:300]})
        return
    _Measurement(params, stream, parts).everything()
    stream.send({"status": 0, "words": ""})


def _refuse(params: Dict[str, Any], stream: Any) -> None:
    for part in params.get("parts") or ():
        words = "a simulated host has nothing to measure"
        stream.send({"part": str(part), "status": 1, "words": words})
    stream.send({"status": 0, "words": ""})


class _Measurement:
    """One request."""

    def __init__(self, params: Dict[str, Any], stream: Any, parts: List[str]) -> None:
        self._params = params
        self._stream = stream
        self._parts = parts
        self._until = time.monotonic() + float(params.get("limit_s") or LIMIT_S)

    def everything(self) -> None:
        """Part after part; one that fails stops no other."""
        own = sys.executable or "python3"
        self._program(CPU_PARTS, own, CPU_MODULES, path=self._params.get("path") or "")
        self._load(own)
        self._program(CUDA_PARTS, self._params.get("python") or own, CUDA_MODULES)
        wanted = [test for part in self._parts for test in BANDWIDTH_TESTS.get(part, ())]
        if wanted:
            self._tool("nvbandwidth", ["-t", *wanted])
        gpus = len(handles())
        reduced = "allreduce" in self._parts and (
            gpus == 1 or self._tool("all_reduce_perf", _reduce(gpus), REDUCE_RUNS)
        )
        torch_parts = [
            part
            for part in TORCH_PARTS
            if part in self._parts and not (part == "allreduce" and reduced)
        ]
        if not torch_parts:
            return
        python = self._params.get("python") or find_python()
        self._fact("tool/torch", python, "no python with torch was found")
        if python is None:
            words = "no python with torch was found; name it with --python"
            for part in torch_parts:
                self._failed(part, 127, words)
            return
        self._program(tuple(torch_parts), python, (measure_words, measure_torch))

    def _program(self, names: Any, python: str, modules: Any, **options: Any) -> None:
        """A program of ours, for those of these parts that were asked for."""
        parts = [name for name in names if name in self._parts]
        if not parts:
            return
        options = dict(options, parts=parts, stub=measure_child.STUB)
        status, words = self._child(str(python), options, modules, self._line)
        if status != 0:
            for part in parts:
                self._failed(part, status, words)

    def _load(self, own: str) -> None:
        """Read GPUs, links and counters beside a load: of the GPUs, of the CPUs too if `busy`."""
        parts = [part for part in LOAD_PARTS if part in self._parts]
        if not parts:
            return
        watch = measure_load.Watch(str(self._params.get("root") or ""))
        busy = "busy" in parts
        name = "busy_s" if busy else "load_s"
        seconds = float(self._params.get(name) or LOADS_S[name]) + measure_load.SETTLE_S
        watched = [0.0]

        def line(data: bytes) -> None:
            if b'"load": "began"' in data:
                watch.begin()
            elif b'"load": "ends"' in data:
                watched[0] = watch.end()
            else:
                self._line(data)

        words = "GPUs and CPUs" if busy else "GPUs"
        self._stream.send({"said": "load on all %s for %.0f s" % (words, seconds)})
        python = str(self._params.get("python") or own)
        gpus = (python, {"load_s": seconds}, CUDA_MODULES)
        if not busy:
            status, said = self._child(*gpus, on_line=line)
        else:
            beside: List[Any] = []
            thread = threading.Thread(
                target=lambda: beside.append(self._child(*gpus, on_line=lambda data: None))
            )
            thread.start()
            status, said = self._child(own, {"burn_s": seconds}, CPU_MODULES, on_line=line)
            thread.join()
            if beside and beside[0][0] != 0:
                self._failed("busy", *beside[0])
        watch.end()
        if status != 0:
            self._failed(parts[0], status, said)
        elif watched[0] < 1.0:
            self._failed(parts[0], 1, "the load was too short to read beside it")
        else:
            watch.tell(lambda key, value: self._fact(key, value), watched[0])
            for counter, rise in sorted(watch.risen.items() if busy else ()):
                self._fact("busy/throttle/" + counter, rise)

    def _child(self, python: str, options: Dict[str, Any], modules: Any, on_line: Any) -> Any:
        """A program of ours to its end; its status and words."""
        argv = [python, "-c", measure_child.STUB, json.dumps(options)]
        task = measure_child.task_of(*modules)
        return measure_child.run(argv, self._stream, self._until, on_line, task, ORDER)

    def _tool(self, name: str, arguments: List[str], runs: int = 1) -> bool:
        """Run a tool of the host, and hand over what it printed; gives whether it did its work."""
        path = find_tool(name)
        self._fact("tool/" + name, path, "not found on this host")
        if path is None:
            return False
        for _ in range(runs):
            self._stream.send({"said": "%s %s" % (path, " ".join(arguments))})
            lines: List[bytes] = []
            status, words = measure_child.run(
                [path, *arguments], self._stream, self._until, lines.append, None, ORDER
            )
            text = b"".join(lines).decode("utf-8", "replace")[:MAX_OUTPUT]
            if text:
                self._stream.send({"tool": name, "output": text})
            if status != 0:
                self._failed(name, status, words or text.strip().split("\n")[-1][:300])
                return False
        return True

    def _line(self, data: bytes) -> None:
        try:
            message = json.loads(data.decode("utf-8", "replace"))
        except ValueError:
            return
        if isinstance(message, dict):
            self._stream.send(message)

    def _fact(self, key: str, value: Any, error: Optional[str] = None) -> None:
        message = {"key": "bench/" + key, "value": value}
        if value is None:
            message["error"] = error or "not known"
        self._stream.send(message)

    def _failed(self, part: str, status: int, words: str) -> None:
        self._stream.send({"part": part, "status": status, "words": words})


def _reduce(gpus: int) -> List[str]:
    """8 KiB to 128 MiB over all GPUs."""
    return ["-b", "8K", "-e", "128M", "-f", "4", "-g", str(max(1, gpus)), "-n", "20", "-w", "5"]


def handles() -> List[Any]:
    """The handles of all GPUs; empty where NVML does not say."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except Exception:
        return []


def held() -> List[str]:
    """Who holds GPUs, in words; memory that is taken counts where its process is not visible."""
    said = []
    for index, handle in enumerate(handles()):
        nvml: Any = importlib.import_module("pynvml")
        try:
            pids = [int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        except Exception:
            pids = []
        if pids:
            said.append("GPU %d is held by pid %s" % (index, ", ".join(map(str, pids[:8]))))
            continue
        try:
            used = facts_gpu.CALLS["used_mib"](nvml, handle)
            total = facts_gpu.CALLS["vram_mib"](nvml, handle)
        except Exception:
            continue
        if total and 100.0 * used / total > HELD_PCT:
            said.append("%d MiB of GPU %d are taken" % (used, index))
    return said


def find_tool(name: str) -> Optional[str]:
    """A tool on the PATH, or where it is usually built."""
    for folder in os.environ.get("PATH", "").split(":") + list(TOOL_PLACES):
        path = os.path.join(folder, name)
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def find_python() -> Optional[str]:
    """A python here that has torch."""
    names = [sys.executable, *PLACES]
    for folder in os.environ.get("PATH", "").split(":"):
        names += [folder + "/python3", folder + "/python"]
    for name in dict.fromkeys(name for name in names if name):
        if not os.access(name, os.X_OK):
            continue
        try:
            if subprocess.call([name, "-c", CHECK], timeout=10, stderr=subprocess.DEVNULL) == 0:
                return name
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None
