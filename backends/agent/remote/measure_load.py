"""What GPUs and their links say while they are at work: read beside a load that others make.

Each reading runs on a thread that can be left behind, since a hung driver hangs the call.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Tuple

from . import facts_gpu

EVERY_S = 0.2
SETTLE_S = 1.5
"""Links and clocks have risen by then."""
WANTED = (
    "link_gen", "link_gen_max", "link_width", "link_width_max", "pstate", "util_pct",
    "clock_sm_mhz", "clock_mem_mhz", "power_w", "power_enforced_w", "reasons", "temp_c",
    "mem_temp_c", "replays",
)  # fmt: skip
PCI = "/sys/bus/pci/devices"
CPUS = "/sys/devices/system/cpu"
RATES = {"current_link_speed": "speed_gts", "current_link_width": "width"}
BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

Say = Callable[[str, Any], None]


class Watch:
    """Reads GPUs and links until it is told to stop, and says what it saw.

    Attributes:
        risen: By how much each counter of the CPUs has risen, by `cpuN_KIND`.
    """

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._seen: Dict[Tuple[str, str], List[Any]] = {}
        self._threads: List[threading.Thread] = []
        self._began = 0.0
        self._counts = self._counters()
        self.risen: Dict[str, int] = {}

    def begin(self) -> None:
        """Start reading; the load is running by now."""
        self._began = time.monotonic()
        gpus = self._gpus()
        for handle, address in gpus:
            self._start(self._watch_gpu, handle, address)
        self._start(self._watch_links, [address for _, address in gpus] or self._cards())

    def end(self) -> float:
        """Stop reading; gives for how many seconds it was read after things had settled."""
        if self._stop.is_set():
            return 0.0
        self._stop.set()
        after = self._counters()
        self.risen = {name: after[name] - n for name, n in self._counts.items() if name in after}
        for thread in self._threads:
            thread.join(2.0)
        return max(0.0, time.monotonic() - self._began - SETTLE_S) if self._began else 0.0

    def tell(self, say: Say, seconds: float) -> None:
        """Say of each value what it was most of the time; of links how often they changed."""
        with self._lock:
            seen = {place: list(values) for place, values in self._seen.items()}
        for (address, name), values in sorted(seen.items()):
            key = "load/%s/%s" % (address, name)
            if name == "replays":
                say("load/%s/replays_delta" % address, values[-1] - values[0])
            elif name == "reasons":
                together = 0
                for value in values:
                    together |= value
                say(key, together)
            elif name in ("power_w", "clock_sm_mhz", "util_pct", "temp_c", "mem_temp_c"):
                say(key, sorted(values)[len(values) // 2])
            else:
                say(key, Counter(values).most_common(1)[0][0])
        for address in sorted({address for address, _ in seen}):
            rates = seen.get((address, "speed_gts")) or seen.get((address, "link_gen"))
            if rates:
                changes = sum(rates[n] != rates[n - 1] for n in range(1, len(rates)))
                say("load/%s/link_changes" % address, changes)
            say("load/%s/seconds" % address, round(seconds, 1))

    def _counters(self) -> Dict[str, int]:
        """How often each CPU was throttled by its temperature, since boot."""
        found = {}
        for cpu in _listed(self._root + CPUS):
            place = "%s%s/%s/thermal_throttle" % (self._root, CPUS, cpu)
            for kind in ("core", "package"):
                text = _text("%s/%s_throttle_count" % (place, kind)) if cpu[3:].isdigit() else ""
                if text.isdigit():
                    found["%s_%s" % (cpu, kind)] = int(text)
        return found

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep(self, address: str, name: str, value: Any) -> None:
        with self._lock:
            values = self._seen.setdefault((address, name), [])
            if len(values) < 10_000:
                values.append(value)

    def _gpus(self) -> List[Tuple[Any, str]]:
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(self._nvml.nvmlDeviceGetCount())
            ]
            return [(one, address_of(facts_gpu.CALLS["pci_bus_id"](self._nvml, one)))
                    for one in handles]  # fmt: skip
        except Exception:
            return []

    def _cards(self) -> List[str]:
        """Display controllers of NVIDIA, where NVML says nothing."""
        found = []
        for name in _listed(self._root + PCI):
            base = "%s%s/%s/" % (self._root, PCI, name)
            if _text(base + "vendor") == "0x10de" and _text(base + "class")[:4] == "0x03":
                found.append(name)
        return found

    def _watch_gpu(self, handle: Any, address: str) -> None:
        while not self._stop.wait(EVERY_S):
            settled = time.monotonic() - self._began >= SETTLE_S
            for name in WANTED:
                try:
                    value = facts_gpu.CALLS[name](self._nvml, handle)
                except Exception:
                    continue
                if value not in facts_gpu.UNKNOWN_VALUES and (settled or name == "replays"):
                    self._keep(address, name, value)

    def _watch_links(self, addresses: List[str]) -> None:
        places: Dict[str, str] = {}
        for address in addresses:
            places[address] = "%s%s/%s" % (self._root, PCI, address)
            # The bridges above it are the folders it lies in.
            for part in os.path.realpath(places[address]).split("/"):
                if BDF.fullmatch(part) and part not in places:
                    places[part] = "%s%s/%s" % (self._root, PCI, part)
        while not self._stop.wait(EVERY_S):
            if time.monotonic() - self._began < SETTLE_S:
                continue
            for address, place in places.items():
                for file, name in RATES.items():
                    match = re.match(r"\d+(?:\.\d+)?", _text("%s/%s" % (place, file)))
                    if match:
                        number = float(match.group())
                        self._keep(address, name, int(number) if name == "width" else number)


def address_of(text: str) -> str:
    """A PCI address as the kernel writes it: NVML's has eight digits of domain."""
    domain, _, rest = text.lower().partition(":")
    return "%04x:%s" % (int(domain, 16), rest)


def _listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(256).strip()
    except OSError:
        return ""
