"""The clock of the agent: what is read when, and what is said of it.

One thread walks through time and never calls the driver itself. Each GPU has a worker that reads
it; whoever has not answered by the deadline is left out of this sample, and is asked again only
when its call has come back.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from . import driver
from .gpu import Fault, Gpu, Sample
from .host import HostReader, read_once
from .outbox import Outbox
from .processes import ProcessTable
from .worker import Ticket, Worker

MIN_INTERVAL_S = 0.1
MAX_INTERVAL_S = 60.0
SLOW_EVERY = 5
SLOW_LEAST_S = 5.0
STUCK_INTERVALS = 2.0
STUCK_LEAST_S = 2.0
OPEN_WAIT_S = 0.3
OPEN_LIMIT_S = 10.0
"""How long opening the driver may take before it is called stuck."""
FIRST_REOPEN_S = 4.0
LAST_REOPEN_S = 30.0
"""Between two tries to get a lost GPU back by listing all of them anew."""
LANES = ("fast", "slow", "pcie")


class Sampler:
    """Reads the GPUs and the host, lane by lane, and says what changed."""

    def __init__(
        self,
        outbox: Outbox,
        keeper: driver.Keeper,
        host: HostReader,
        processes: ProcessTable,
        note: Callable[[str], None],
        interval_s: float,
        proc_root: str = "/proc",
        open_limit_s: float = OPEN_LIMIT_S,
    ) -> None:
        self._outbox = outbox
        self._keeper = keeper
        self._host = host
        self._processes = processes
        self._note = note
        self._interval_s = interval_s
        self._open_limit_s = open_limit_s
        self._pcie = False
        self._workers: Dict[str, Worker] = {}
        self._host_worker = Worker("host")
        self._process_worker = Worker("processes")
        self._process_ticket: Optional[Ticket] = None
        self._states: Dict[str, Any] = {}
        self._absent: Dict[str, List[Dict[str, str]]] = {}
        self._host_absent: Dict[str, Dict[str, str]] = {}
        self._sent_absent: Any = None
        self._sent_driver: Any = None
        self._host_once = read_once(proc_root)
        self._said_gpus = False
        self._slow_at = 0.0
        self._has_counters = False
        self._reopened_at = time.monotonic()
        self._all_bad = 0
        self._reopen_pause_s = FIRST_REOPEN_S
        self._wake = threading.Event()
        self._release_s = 0.0

    def start(self) -> None:
        """Begin sampling on a thread of its own."""
        threading.Thread(target=self._run, name="sampler", daemon=True).start()

    def set_interval(self, seconds: float) -> float:
        """Change the time between fast samples; gives what was granted."""
        self._interval_s = min(MAX_INTERVAL_S, max(MIN_INTERVAL_S, float(seconds)))
        self._wake.set()
        return self._interval_s

    def set_pcie(self, on: bool) -> bool:
        """Switch the PCIe lane on or off: it blocks each GPU for 42 ms a sample."""
        self._pcie = on
        return on

    def refresh(self) -> None:
        """Take a slow sample now."""
        self._slow_at = 0.0
        self._wake.set()

    def release(self, seconds: float) -> None:
        """Let go of the driver for that long, as soon as no call is outstanding."""
        self._release_s = seconds
        self._wake.set()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._tick(time.monotonic())
            except Exception as error:  # the sampler must outlive its own mistakes, but say them
                self._note("sampler: %s: %s" % (error.__class__.__name__, error))
            now = time.monotonic()
            due += self._interval_s
            if due <= now or due > now + self._interval_s:
                due = now + (self._interval_s if due > now else 0.0)
            if self._keeper.opening:
                # A list of GPUs is worth not waiting an interval for.
                self._keeper.wait(due)
                if self._keeper.poll(time.monotonic()):
                    self._listed()
                    due = time.monotonic()
                    continue
            if self._wake.wait(max(0.0, due - time.monotonic())):
                self._wake.clear()
                due = time.monotonic()

    def _tick(self, now: float) -> None:
        keeper = self._keeper
        if self._release_s and self._all_idle():
            keeper.release(self._release_s)
            self._release_s = 0.0
        listed = keeper.poll(now)
        if keeper.opening and keeper.worker.busy_s() < OPEN_WAIT_S:
            # Most often it takes a moment, and then no sample goes without its GPUs.
            keeper.wait(now + min(OPEN_WAIT_S, 0.3 * self._interval_s))
            listed = keeper.poll(time.monotonic())
        if listed:
            self._listed()
        slow = now >= self._slow_at
        if slow:
            # The second one comes soon: rates need two.
            pause_s = max(SLOW_EVERY * self._interval_s, SLOW_LEAST_S)
            self._slow_at = now + (pause_s if self._has_counters else self._interval_s) - 0.01
            self._has_counters = True
        lanes = [lane for lane in LANES if lane == "fast" or (lane == "slow" and slow)]
        if self._pcie:
            lanes.append("pcie")
        gpus = keeper.listed.gpus if keeper.listed is not None else []
        tickets = self._submit(gpus, lanes)
        host_tickets = self._submit_host(lanes)
        faults: Dict[str, Optional[Fault]] = {}
        soon = now + max(0.05, min(0.4 * self._interval_s, 0.25))
        late = now + max(0.05, min(0.8 * self._interval_s, 1.0))
        for lane in lanes:
            deadline = soon if lane == "fast" else late
            taken = time.monotonic_ns()
            rows = self._collect(gpus, lane, tickets, deadline, faults)
            host_row = self._collect_host(lane, host_tickets, deadline)
            params: Dict[str, Any] = {"t": taken, "g": rows}
            if lane != "pcie":
                params["h"] = host_row
            if lane == "slow":
                instances = self._mig_instances(gpus, tickets, deadline)
                if instances:
                    params["m"] = instances
            self._outbox.notify(lane, params, latest=lane)
        if slow:
            self._take_processes(gpus, tickets, late)
        self._say_absent(gpus)
        self._judge(gpus, faults)

    def _submit(self, gpus: List[Gpu], lanes: List[str]) -> Dict[str, Dict[str, Ticket]]:
        """Hand each idle worker its lanes; one that is still at the last ones gets nothing."""
        tickets: Dict[str, Dict[str, Ticket]] = {}
        for gpu in gpus:
            worker = gpu.worker
            if worker is None or not worker.idle:
                continue
            mine = {lane: worker.submit(partial(gpu.read, lane)) for lane in lanes}
            if "slow" in mine:
                mine["mig"] = worker.submit(gpu.mig_instances)
                mine["processes"] = worker.submit(gpu.processes)
            tickets[gpu.uuid] = mine
        return tickets

    def _submit_host(self, lanes: List[str]) -> Dict[str, Ticket]:
        if not self._host_worker.idle:
            return {}
        return {
            lane: self._host_worker.submit(partial(self._host.read, lane))
            for lane in lanes
            if lane != "pcie"
        }

    def _collect(
        self,
        gpus: List[Gpu],
        lane: str,
        tickets: Dict[str, Dict[str, Ticket]],
        deadline: float,
        faults: Dict[str, Optional[Fault]],
    ) -> List[Optional[List[Any]]]:
        rows: List[Optional[List[Any]]] = []
        absent = self._absent.setdefault(lane, [])
        if len(absent) != len(gpus):
            absent[:] = [{} for _ in gpus]
        for position, gpu in enumerate(gpus):
            ticket = tickets.get(gpu.uuid, {}).get(lane)
            if ticket is None or not ticket.wait(deadline):
                rows.append(None)
                continue
            if ticket.error is not None:
                sample = Sample(None, {}, Fault("error", str(ticket.error)[:200]))
            else:
                sample = ticket.result
            rows.append(sample.values)
            if sample.values is not None:
                absent[position] = sample.absent
            if lane == "fast":
                faults[gpu.uuid] = sample.fault
        return rows

    def _collect_host(
        self, lane: str, tickets: Dict[str, Ticket], deadline: float
    ) -> Optional[List[Any]]:
        ticket = tickets.get(lane)
        if ticket is None or not ticket.wait(deadline) or ticket.error is not None:
            return None
        row, absent = ticket.result
        self._host_absent[lane] = dict(absent)
        return list(row)

    def _mig_instances(
        self, gpus: List[Gpu], tickets: Dict[str, Dict[str, Ticket]], deadline: float
    ) -> Dict[str, List[str]]:
        found = {}
        for gpu in gpus:
            ticket = tickets.get(gpu.uuid, {}).get("mig")
            if ticket is not None and ticket.wait(deadline) and ticket.result:
                found[gpu.uuid] = ticket.result
        return found

    def _take_processes(
        self, gpus: List[Gpu], tickets: Dict[str, Dict[str, Ticket]], deadline: float
    ) -> None:
        """Hand what the driver listed to the thread that looks the processes up in /proc."""
        listing: Dict[str, Any] = {}
        for gpu in gpus:
            ticket = tickets.get(gpu.uuid, {}).get("processes")
            if ticket is not None and ticket.wait(deadline) and ticket.error is None:
                listing[gpu.uuid] = ticket.result
        uuids = [gpu.uuid for gpu in gpus]
        if uuids and self._process_worker.idle:
            self._process_worker.submit(lambda: self._say_processes(uuids, listing))

    def _say_processes(self, uuids: List[str], listing: Dict[str, Any]) -> None:
        found = self._processes.update(uuids, listing)
        if found is not None:
            params = {"t": time.monotonic_ns(), "p": found}
            self._outbox.notify("processes", params, latest="processes")
        for remark in self._processes.take_notes():
            self._note(remark)

    def _say_absent(self, gpus: List[Gpu]) -> None:
        merged: List[Dict[str, str]] = [{} for _ in gpus]
        for rows in self._absent.values():
            for position, reasons in enumerate(rows[: len(merged)]):
                merged[position].update(reasons)
        host: Dict[str, str] = {}
        for reasons in self._host_absent.values():
            host.update(reasons)
        if self._sent_absent is None:
            changed: List[Optional[Dict[str, str]]] = list(merged)
        else:
            changed = [
                None if new == old else new for new, old in zip(merged, self._sent_absent[0])
            ]
        if (merged, host) != self._sent_absent:
            self._sent_absent = (merged, host)
            self._outbox.notify("absent", {"g": changed, "h": host})

    def _listed(self) -> None:
        """The GPUs were listed anew: give each its worker, and tell."""
        listed = self._keeper.listed
        if listed is None:
            return
        workers = {}
        for gpu in listed.gpus:
            # A worker whose call hangs goes on hanging; the GPU stays with it, not with a second.
            worker = self._workers.pop(gpu.uuid, None) or Worker("gpu-%d" % gpu.index)
            workers[gpu.uuid] = worker
            gpu.doing = worker
            if gpu.handle is not None:
                gpu.worker = worker
        for worker in self._workers.values():
            worker.stop()
        self._workers = workers
        self._absent.clear()
        self._sent_absent = None
        self._states.clear()
        self._slow_at = 0.0
        self._has_counters = False
        self._all_bad = 0
        self._reopened_at = time.monotonic()
        self._outbox.drop((*LANES, "gpus"))
        self._say_driver(driver.OK, "", 0.0)
        self._say_gpus(listed.entries)
        for uuid, detail in listed.bad.items():
            self._say_state(uuid, "lost", detail)

    def _judge(self, gpus: List[Gpu], faults: Dict[str, Optional[Fault]]) -> None:
        """Say which GPU is how, and how the driver is; let go of a driver that is gone."""
        now = time.monotonic()
        limit = max(STUCK_INTERVALS * self._interval_s, STUCK_LEAST_S) - 0.05
        stuck: List[str] = []
        age = 0.0
        busy = self._keeper.worker.busy_s()
        opening = self._keeper.opening and busy >= limit
        call = self._keeper.worker.doing or "a call"
        if opening and busy >= self._open_limit_s:
            stuck.append("%s has not come back" % call)
            age = busy
        bad = 0
        for gpu in gpus:
            worker = gpu.worker
            busy = worker.busy_s() if worker is not None else 0.0
            fault = faults.get(gpu.uuid)
            if worker is not None and busy >= limit:
                detail = "%s has not come back" % (worker.doing or "a call")
                self._say_state(gpu.uuid, "stuck", detail)
                stuck.append("GPU %d: %s" % (gpu.index, detail))
                age = max(age, busy)
            elif fault is not None:
                bad += 1
                if fault.kind != "driver":
                    self._say_state(gpu.uuid, fault.kind, fault.detail)
            elif gpu.uuid in faults:
                self._say_state(gpu.uuid, "ok", "")
            elif worker is None:
                bad += 1
        keeper = self._keeper
        if stuck:
            self._say_driver(driver.STUCK, "; ".join(stuck[:4]), age)
            return
        if opening:
            # Without persistence mode, opening takes seconds for each GPU: not yet an alarm.
            detail = "opening the driver: %s takes its time (persistence mode off?)" % call
            self._say_driver(driver.RELOADING, detail, busy)
        elif keeper.state:
            self._say_driver(keeper.state, keeper.detail, now - keeper.since)
        self._reopen(gpus, faults, bad, now)

    def _reopen(
        self, gpus: List[Gpu], faults: Dict[str, Optional[Fault]], bad: int, now: float
    ) -> None:
        """Open the driver anew where it went away, or where a lost GPU may have come back."""
        if not gpus or not self._all_idle():
            return
        gone = [fault for fault in faults.values() if fault is not None and fault.kind == "driver"]
        self._all_bad = self._all_bad + 1 if bad == len(gpus) else 0
        if gone:
            mismatch = gone[0].code == gpus[0].nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            state = driver.MISMATCH if mismatch else driver.RELOADING
            self._keeper.lost(state, gone[0].detail)
            self._say_driver(state, gone[0].detail, 0.0)
            return
        if not bad:
            self._reopen_pause_s = FIRST_REOPEN_S
            return
        # All at once is the driver rather than the GPUs; one alone may have been reset.
        if now - self._reopened_at >= self._reopen_pause_s and self._all_bad != 1:
            self._reopen_pause_s = min(LAST_REOPEN_S, self._reopen_pause_s * 2)
            if bad == len(gpus):
                self._keeper.lost(driver.RELOADING, "no GPU answers")
                self._say_driver(driver.RELOADING, "no GPU answers", 0.0)
            else:
                self._keeper.lost(driver.OK, "")

    def _all_idle(self) -> bool:
        return all(worker.idle for worker in self._workers.values())

    def _say_gpus(self, entries: List[Dict[str, Any]]) -> None:
        params = {"gpus": entries, "h": self._host_once}
        self._outbox.notify("gpus", params, latest="gpus")
        self._said_gpus = True

    def _say_state(self, uuid: str, state: str, detail: str) -> None:
        if self._states.get(uuid, ("ok", "")) != (state, detail):
            self._states[uuid] = (state, detail)
            params = {"uuid": uuid, "state": state, "detail": detail}
            self._outbox.notify("gpu_state", params, latest="gpu_state " + uuid)

    def _say_driver(self, state: str, detail: str, age_s: float) -> None:
        if (state, detail) == self._sent_driver:
            return
        self._sent_driver = (state, detail)
        if not self._said_gpus and state != driver.OK:
            self._say_gpus([])  # there may never be any, but there is a host
        listed = self._keeper.listed
        self._outbox.notify(
            "driver",
            {
                "state": state,
                "version": listed.version if listed else driver.kernel_module_version(),
                "cuda_version": listed.cuda_version if listed else None,
                "nvml_version": listed.nvml_version if listed else None,
                "detail": detail,
                "age_s": round(age_s, 1),
            },
            latest="driver",
        )
