"""The JSON of a snapshot: every key, null with its reason, nothing that JSON lacks."""

from __future__ import annotations

import json
from typing import Any

from backends.model import GPU_READINGS, HOST_READINGS, HostSnapshot
from backends.telemetry.readings_json import snapshot_json
from tests.telemetry.wire import Host


def full_host() -> HostSnapshot:
    host = Host(gpus=2)
    fast = {
        "power_w": 449.0,
        "power_limit_enforced_w": 450.0,
        "utilization_gpu_pct": 100,
        "event_reasons": 0x4 | 0x40,
    }
    for _ in range(3):
        host.fast(fast, None)
    host.say(
        "processes",
        {"t": 1, "p": [{"pid": 7, "command": "serve", "memory_bytes": {"GPU-0": 2**36}}]},
    )
    host.say("kernel", {"events": [{"at": 1.7e9, "kind": "xid", "text": "Xid", "xid": 79}]})
    host.say("note", {"text": "no psutil"})
    return host.snapshot()


def rendered(snapshot: HostSnapshot) -> Any:
    return json.loads(json.dumps(snapshot_json(snapshot, 1003.0), allow_nan=False))


def test_every_reading_has_its_key_and_every_null_its_reason() -> None:
    document = rendered(full_host())
    for specs, items in (
        (GPU_READINGS, document["gpus"]),
        (HOST_READINGS, [document["readings"]]),
    ):
        for item in items:
            for spec in specs:
                assert (item[spec.key] is None) == (spec.key in item["absent"]), spec.key
    for item in document["gpus"]:
        unknown = {key: item[key] is None for key in ("event_reason_names", "energy_average_w")} | {
            "held_pct": None in item["held_pct"].values()
        }
        for key, is_null in unknown.items():
            assert is_null == bool(item["absent"].get(key)), key
    assert document["gpus"][0]["power_w"] == 449.0
    assert document["gpus"][1]["power_w"] is None


def test_times_ages_and_names() -> None:
    document = rendered(full_host())
    assert document["time"] == "2026-01-02T03:04:07.000Z"
    assert document["age_s"] == 1.0
    gpu = document["gpus"][0]
    assert gpu["event_reason_names"] == ["sw_power_cap", "hw_thermal"]
    assert document["gpus"][1]["event_reason_names"] is None
    assert gpu["held_pct"] == {
        "power_cap": 100.0,
        "thermal": 100.0,
        "power_brake": 0.0,
        "sync_boost": 0.0,
    }
    assert document["gpus"][1]["held_pct"]["power_cap"] is None
    assert gpu["age_s"]["fast"] == 1.0
    assert gpu["processes"] == [{"pid": 7, "memory_bytes": 2**36}]
    assert "HOT" in {verdict["word"] for verdict in gpu["verdicts"]}
    assert document["notes"] == ["no psutil"]


def test_a_host_of_which_nothing_is_known_yet() -> None:
    host = Host(gpus=0)
    host.telemetry = type(host.telemetry)("gpu01", host.clock)
    document = rendered(host.snapshot())
    assert (document["time"], document["age_s"], document["driver"]) == (None, None, None)
    assert document["gpus"] == []
    assert set(document["readings"]["absent"]) == {spec.key for spec in HOST_READINGS}
