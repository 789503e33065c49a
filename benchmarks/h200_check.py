"""The agent on a real GPU host, against nvidia-smi at the same moment, and what it costs there.

    python benchmarks/h200_check.py            # about 50 s; writes h200_check.json to $OUT

Standard library, pynvml and nvidia-smi are enough; torch makes the load (bf16 matrix products),
without it only the idle half is done. Exit status 1 where a reading differs by more than its
tolerance.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pynvml

from backends.agent import loader
from backends.agent.remote import readings
from backends.agent.remote.gpu import Gpu
from backends.agent.smi_fields import Query, SmiRow, names_of_help, negotiate, parse_row

IDLE_S, LOAD_S, COMPARE_S = 8.0, 8.0, 3.0
COMPARE_INTERVAL_S = 0.2
LOAD_START_S = 30.0
CLOSE_S = 0.25
"""An agent's sample counts as taken at the same moment up to this far from nvidia-smi's."""

GEMM = """
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(50):
        c = a @ b
    torch.cuda.synchronize()
"""

# Reading -> (absolute, relative) tolerance: what may change between two reads a moment apart.
TOLERANCE: dict[str, tuple[float, float]] = {
    "power_w": (8.0, 0.12),
    "power_average_w": (8.0, 0.12),
    "utilization_gpu_pct": (10.0, 0.0),
    "utilization_memory_pct": (10.0, 0.0),
    "memory_used_bytes": (64 * 2**20, 0.0),
    "memory_total_bytes": (2**20, 0.0),
    "memory_reserved_bytes": (2**20, 0.0),
    "temperature_gpu_c": (2.0, 0.0),
    "temperature_memory_c": (2.0, 0.0),
    "temperature_margin_c": (2.0, 0.0),
    "sm_clock_mhz": (150.0, 0.1),
    "memory_clock_mhz": (5.0, 0.0),
    "time_power_cap_us": (1_500_000, 0.0),
    "time_thermal_us": (1_500_000, 0.0),
    "time_power_brake_us": (1_500_000, 0.0),
    "time_sync_boost_us": (1_500_000, 0.0),
}


class Agent:
    """The agent as a child, spoken to with nothing but the standard library."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            loader.agent_argv(sys.executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.messages: list[tuple[float, dict[str, Any], int]] = []
        self._number = 0
        begun = time.perf_counter()
        payload = loader.build_payload(settings={"interval_s": 1.0})
        self.build_ms = 1000 * (time.perf_counter() - begun)
        self.begun = time.perf_counter()
        self._write(payload)
        threading.Thread(target=self._read, daemon=True).start()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self.messages.append((time.perf_counter(), json.loads(line), len(line)))

    def ask(self, method: str, **params: Any) -> None:
        """Send a request; the answer is not waited for."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._write(json.dumps(message).encode() + b"\n")

    def of(self, method: str) -> list[dict[str, Any]]:
        """The params of every notification of that name so far."""
        return [m["params"] for _, m, _ in list(self.messages) if m.get("method") == method]

    def until(self, test: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something to become true."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if test():
                return True
            time.sleep(0.02)
        return False

    def cpu_s(self) -> float:
        """CPU seconds of its threads so far."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def close(self) -> int:
        """End of input, and how it left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(10)


def smi(*arguments: str) -> str:
    """What nvidia-smi prints."""
    return subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30, check=False
    ).stdout


def ask_smi(query: Query) -> tuple[int, list[SmiRow]]:
    """All rows now, and the monotonic moment (ns) they were read at, about."""
    before = time.monotonic_ns()
    text = smi(f"--query-gpu={','.join(query.names)}", "--format=csv,noheader,nounits")
    after = time.monotonic_ns()
    rows = [row for line in text.splitlines() if (row := parse_row(line, query)) is not None]
    return (before + after) // 2, rows


def compare(agent: Agent, query: Query, seconds: float) -> dict[str, dict[str, Any]]:
    """Key -> what the agent and nvidia-smi said of GPU 0 at the same moments."""
    agent.ask("set_interval", seconds=COMPARE_INTERVAL_S)
    asked: list[tuple[int, SmiRow]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        agent.ask("refresh")
        time.sleep(0.3)
        at, rows = ask_smi(query)
        asked += [(at, row) for row in rows if row.index == 0]
        time.sleep(0.2)
    agent.ask("set_interval", seconds=1.0)
    columns = agent.of("hello")[0]["columns"]
    found: dict[str, dict[str, Any]] = {}
    for lane in ("fast", "slow"):
        samples = [p for p in agent.of(lane) if p["g"] and p["g"][0] is not None]
        for at, row in asked:
            nearest = min(samples, key=lambda p: abs(p["t"] - at), default=None)
            limit_s = CLOSE_S if lane == "fast" else 1.0
            if nearest is None or abs(nearest["t"] - at) > limit_s * 1e9:
                continue
            for key, ours in zip(columns[lane]["g"], nearest["g"][0], strict=True):
                entry = found.setdefault(key, {"pairs": []})
                entry["pairs"].append([ours, row.values.get(key)])
                entry["smi_reason"] = row.absent.get(key)
    absent: dict[str, str] = {}
    for params in agent.of("absent"):
        if params["g"] and params["g"][0] is not None:
            absent = params["g"][0]
    for key, entry in found.items():
        entry["agent_reason"] = absent.get(key)
        entry["ok"] = all(agrees(key, ours, theirs) for ours, theirs in entry["pairs"])
    return found


def agrees(key: str, ours: Any, theirs: Any) -> bool:
    """Whether two values, or the lack of one, mean the same."""
    if theirs is None:
        return True  # nvidia-smi does not tell this one; it is printed all the same
    if ours is None:
        return False
    if isinstance(theirs, bool | str):
        return bool(ours == theirs)
    absolute, relative = TOLERANCE.get(key, (0.0, 0.0))
    return abs(float(ours) - float(theirs)) <= absolute + relative * abs(float(theirs)) + 0.06


def cpu_share(agent: Agent, seconds: float) -> dict[str, float]:
    """CPU of the agent at 1 Hz, and bytes a sample."""
    first = len(agent.messages)
    before, cpu = time.perf_counter(), agent.cpu_s()
    time.sleep(seconds)
    took = time.perf_counter() - before
    share = 100 * (agent.cpu_s() - cpu) / took
    steady = agent.messages[first:]
    fast = [size for _, m, size in steady if m.get("method") == "fast"]
    return {
        "cpu_pct": share,
        "samples": len(fast),
        "fast_bytes": statistics.mean(fast) if fast else 0.0,
        "all_bytes_a_sample": sum(size for _, _, size in steady) / max(1, len(fast)),
    }


def lane_costs(repeat: int = 20) -> dict[str, Any]:
    """What each probe costs, called as the agent calls it: wall and CPU, microseconds, median."""
    pynvml.nvmlInit()
    major = int(str(pynvml.nvmlSystemGetDriverVersion()).split(".")[0])
    gpu = Gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), 0, major)
    gpu.identify()
    lanes = {**readings.LANES, "once": readings.ONCE}
    costs: dict[str, Any] = {}
    for lane, probes in lanes.items():
        entries = {}
        for probe in probes:
            wall, cpu, error = [], [], ""
            for _ in range(3 if lane == "pcie" else repeat):
                w, c = time.perf_counter_ns(), time.thread_time_ns()
                try:
                    probe.read(gpu)
                except Exception as problem:
                    error = f"{type(problem).__name__}: {problem}"
                cpu.append((time.thread_time_ns() - c) / 1000)
                wall.append((time.perf_counter_ns() - w) / 1000)
            entries["+".join(probe.keys)] = {
                "wall_us": round(statistics.median(wall), 1),
                "cpu_us": round(statistics.median(cpu), 1),
                "error": error,
            }
        costs[lane] = {
            "wall_us": round(sum(entry["wall_us"] for entry in entries.values()), 1),
            "cpu_us": round(sum(entry["cpu_us"] for entry in entries.values()), 1),
            "probes": entries,
        }
    pynvml.nvmlShutdown()
    return costs


def raw_counters() -> dict[str, Any]:
    """The field values of held time under both numberings, and what nvidia-smi calls them."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    ids = [74, 75, 76, 251, 252, 253, 269, 270, 271, 185, 186, 82, 83]
    found: dict[str, Any] = {}
    for number, answer in zip(ids, pynvml.nvmlDeviceGetFieldValues(handle, ids), strict=True):
        value = answer.value.ullVal if answer.valueType in (3, 4) else answer.value.uiVal
        found[str(number)] = [answer.nvmlReturn, answer.valueType, value]
    try:
        found["violation_power_ns"] = pynvml.nvmlDeviceGetViolationStatus(handle, 0).violationTime
    except (pynvml.NVMLError, AttributeError) as error:
        found["violation_power_ns"] = str(error)
    pynvml.nvmlShutdown()
    return found


def show(title: str, found: dict[str, dict[str, Any]]) -> None:
    """One line a reading: agent, nvidia-smi, verdict."""
    print(f"\n{title}")
    for key, entry in found.items():
        ours, theirs = entry["pairs"][-1]
        if theirs is None:
            mark = "-"
            theirs = entry["smi_reason"] or "(not told)"
        else:
            mark = "ok" if entry["ok"] else "DIFFERS"
        if ours is None:
            ours = entry["agent_reason"] or "(no reason!)"
        print(f"  {key:26} {ours!s:>34} {theirs!s:>34}  {mark}")


def main() -> int:
    """Run it all."""
    query = negotiate(names_of_help(smi("--help-query-gpu")))
    result: dict[str, Any] = {"pynvml": getattr(pynvml, "__version__", "?")}
    result["raw_counters_before"] = raw_counters()
    agent = Agent()
    if not agent.until(lambda: bool(agent.of("hello")), 20):
        print("the agent said nothing", file=sys.stderr)
        return 1
    result["build_ms"] = agent.build_ms
    result["hello_ms"] = 1000 * (agent.messages[0][0] - agent.begun)
    if not agent.until(lambda: any(p["g"] for p in agent.of("fast")), 20):
        print("no sample of a GPU:", agent.of("driver"), file=sys.stderr)
        return 1
    first = next(
        at for at, m, _ in agent.messages if m.get("method") == "fast" and m["params"]["g"]
    )
    result["first_sample_ms"] = 1000 * (first - agent.begun)
    result["driver"], result["gpus"] = agent.of("driver")[-1], agent.of("gpus")[-1]
    time.sleep(2.0)
    result["idle_1hz"] = cpu_share(agent, IDLE_S)
    result["idle"] = compare(agent, query, COMPARE_S)
    load = subprocess.Popen(
        [sys.executable, "-c", GEMM, str(LOAD_S + COMPARE_S + 12)], stderr=subprocess.PIPE
    )
    column = agent.of("hello")[0]["columns"]["fast"]["g"].index("utilization_gpu_pct")
    if (
        agent.until(
            lambda: load.poll() is not None or agent.of("fast")[-1]["g"][0][column] > 90,
            LOAD_START_S,
        )
        and load.poll() is None
    ):
        time.sleep(2.0)
        result["load_1hz"] = cpu_share(agent, LOAD_S)
        result["load"] = compare(agent, query, COMPARE_S)
        agent.ask("set_pcie", on=True)
        agent.until(lambda: len(agent.of("pcie")) >= 2, 5)
        agent.ask("set_pcie", on=False)
        result["pcie"] = agent.of("pcie")[-1:]
    else:
        load.kill()
        _, words = load.communicate()
        result["load_note"] = words.decode("utf-8", "replace")[-300:] or "no load came up"
        print("no load:", result["load_note"])
    load.kill()
    load.wait()
    result["raw_counters_after"] = raw_counters()
    result["processes"] = agent.of("processes")[-1:]
    result["notes"] = [note["text"] for note in agent.of("note")]
    result["kernel"] = agent.of("kernel")[:2]
    result["exit_status"] = agent.close()
    result["lanes"] = lane_costs()
    report(result)
    folder = Path(os.environ.get("OUT", "."))
    (folder / "h200_check.json").write_text(json.dumps(result, indent=1))
    wrong = [
        f"{phase} {key}"
        for phase in ("idle", "load")
        for key, entry in result.get(phase, {}).items()
        if not entry["ok"]
    ]
    print("\nall readings agree" if not wrong else f"\nDIFFERENT: {', '.join(wrong)}")
    return 1 if wrong else 0


def report(result: dict[str, Any]) -> None:
    """Print what was found."""
    gpu = result["gpus"]["gpus"][0]
    print(f"{gpu['name']}, driver {result['driver']['version']}, pynvml {result['pynvml']}")
    print(
        f"hello after {result['hello_ms']:.0f} ms, first GPU sample after "
        f"{result['first_sample_ms']:.0f} ms, end of input: status {result['exit_status']}"
    )
    for phase in ("idle", "load"):
        if phase in result:
            show(f"{phase}: agent, nvidia-smi", result[phase])
    print()
    for phase in ("idle_1hz", "load_1hz"):
        if phase in result:
            figures = ", ".join(f"{key} {value:.2f}" for key, value in result[phase].items())
            print(f"{phase}: {figures}")
    for lane, cost in result["lanes"].items():
        print(f"lane {lane:5} wall {cost['wall_us']:10,.1f} us   cpu {cost['cpu_us']:10,.1f} us")
        for keys, entry in cost["probes"].items():
            words = f"  {entry['error']}" if entry["error"] else ""
            print(f"    {keys[:60]:60} {entry['wall_us']:10,.1f} {entry['cpu_us']:10,.1f}{words}")
    fast, slow = result["lanes"]["fast"]["cpu_us"], result["lanes"]["slow"]["cpu_us"]
    print(f"8 GPUs at 1 Hz, calls alone: {8 * (fast + slow / 5) / 1e4:.2f} % of a core")


if __name__ == "__main__":
    raise SystemExit(main())
