"""Telemetry: what is read all the time, and the requests that steer it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Dict

from . import driver, host, readings
from .kernel_log import KernelLog
from .processes import ProcessTable
from .sampler import OPEN_LIMIT_S, Sampler

COLUMNS: Dict[str, Dict[str, Any]] = {
    lane: {"g": columns, "h": host.COLUMNS.get(lane, [])}
    for lane, columns in readings.COLUMNS.items()
}


def has_psutil() -> bool:
    """Whether this python could import psutil."""
    try:
        return importlib.util.find_spec("psutil") is not None
    except Exception:
        return False


def register(agent: Any) -> None:
    """Add the requests of telemetry, and begin once the agent has said hello."""
    proc_root = str(agent.settings.get("proc_root", "/proc"))
    sampler = Sampler(
        outbox=agent.outbox,
        keeper=driver.Keeper(lambda: importlib.import_module("pynvml")),
        host=host.HostReader(host.open_source(has_psutil(), proc_root)),
        processes=ProcessTable(proc_root),
        note=agent.note,
        interval_s=float(agent.settings.get("interval_s", 1.0)),
        proc_root=proc_root,
        open_limit_s=float(agent.settings.get("open_limit_s", OPEN_LIMIT_S)),
    )

    def set_interval(params: Dict[str, Any]) -> Dict[str, Any]:
        return {"seconds": sampler.set_interval(float(params["seconds"]))}

    def set_pcie(params: Dict[str, Any]) -> Dict[str, Any]:
        return {"on": sampler.set_pcie(bool(params["on"]))}

    def refresh(params: Dict[str, Any]) -> Dict[str, Any]:
        sampler.refresh()
        return {}

    def release(params: Dict[str, Any]) -> Dict[str, Any]:
        seconds = min(600.0, max(1.0, float(params["seconds"])))
        sampler.release(seconds)
        return {"seconds": seconds}

    agent.methods.add("set_interval", set_interval)
    agent.methods.add("set_pcie", set_pcie)
    agent.methods.add("refresh", refresh)
    agent.methods.add("release_driver", release)
    agent.on_start(sampler.start)
    kernel_log = KernelLog(agent.outbox, agent.note, agent.settings.get("kernel_log"))
    agent.on_start(kernel_log.start)
