#!/usr/bin/env python3
"""An nvidia-smi for tests: streams CSV as a control file says. Run by the tests alone."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

CONTROL = Path(os.environ["FAKE_SMI"])
KNOWN = {
    "timestamp": "2026/12/02 09:00:00.000",
    "driver_version": "580.65.06",
    "name": "NVIDIA Fake 6000",
    "power.draw": "87.12",
    "power.draw.instant": "88.25",
    "power.draw.average": "87.01",
    "enforced.power.limit": "600.00",
    "power.default_limit": "600.00",
    "power.max_limit": "600.00",
    "utilization.gpu": "97",
    "utilization.memory": "41",
    "memory.used": "1024",
    "memory.total": "97887",
    "memory.reserved": "636",
    "temperature.gpu": "55",
    "temperature.memory": "[N/A]",
    "clocks.current.sm": "2430",
    "clocks.current.memory": "13365",
    "clocks.max.sm": "2430",
    "clocks_event_reasons.active": "0x0000000000000004",
    "clocks_event_reasons_counters.sw_power_cap": "5000000",
    "clocks_event_reasons_counters.sw_thermal_slowdown": "1",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "2",
    "pcie.link.gen.current": "5",
    "pcie.link.width.current": "16",
    "pstate": "P1",
    "fan.speed": "[Not Supported]",
    "ecc.mode.current": "Enabled",
    "mig.mode.current": "Disabled",
    "persistence_mode": "Enabled",
    "compute_mode": "Exclusive_Process",
    "compute_cap": "12.0",
}


def world() -> dict:
    return json.loads(CONTROL.read_text())


def main() -> int:
    arguments = sys.argv[1:]
    with Path(f"{CONTROL}.log").open("a") as file:
        file.write(" ".join(arguments) + "\n")
    names = {**KNOWN, "index": "", "uuid": "", "pci.bus_id": ""}
    for name in world().get("unknown", []):
        names.pop(name, None)
    if "--help-query-gpu" in arguments:
        print("List of valid properties to query for the switch:\n")
        for name in names:
            if name == "clocks_event_reasons.active":
                print('"clocks_event_reasons.active" or "clocks_throttle_reasons.active"')
            else:
                print(f'"{name}"')
            print("Some words about it.\n")
        return 0
    asked = next(a for a in arguments if a.startswith("--query-gpu=")).partition("=")[2].split(",")
    wanted = next((a for a in arguments if a.startswith("--id=")), "").partition("=")[2]
    only = wanted.split(",") if wanted else None
    pause_s = int(arguments[arguments.index("-lms") + 1]) / 1000
    now = world()
    bad = [n for n in asked if n not in names or n in now.get("rejected", [])]
    if bad:
        print(f'Field "{bad[0]}" is not a valid field to query.\n')
        return 2
    while True:
        now = world()
        if now.get("say"):
            print(now["say"], flush=True)
            return now.get("status", 9)
        while now.get("hang"):
            time.sleep(0.02)
            now = world()
        for index in range(now.get("gpus", 4)):
            uuid = f"GPU-{index:08d}"
            if only is not None and uuid not in only:
                continue
            bus_id = f"00000000:{index + 1:02X}:00.0"
            if index in now.get("ends_for", []):
                print(
                    f"Unable to determine the device handle for GPU{index}: {bus_id}: GPU is lost."
                    "  Reboot the system to recover this GPU",
                    flush=True,
                )
                return 15
            if index in now.get("gone", []):
                continue
            lost = index in now.get("lost", [])
            cells = {**KNOWN, "index": str(index), "uuid": uuid, "pci.bus_id": bus_id}
            keep = ("index", "timestamp")
            if lost:
                cells = {k: v if k in keep else "[GPU is lost]" for k, v in cells.items()}
                cells["uuid"] = uuid
            print(", ".join(cells[name] for name in asked), flush=True)
            time.sleep(now.get("row_s", 0))
        time.sleep(pause_s)


if __name__ == "__main__":
    sys.exit(main())
