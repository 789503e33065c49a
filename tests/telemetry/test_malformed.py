"""Ten thousand messages that are almost right: no crash, no false number, and it goes on."""

from __future__ import annotations

import json
import random
from typing import Any

from backends.model import GpuState
from tests.telemetry.test_decode import assert_honest
from tests.telemetry.wire import Host, gpu_entry, hello, row

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**64 - 1,
    2**200,
    1e308,
    float("nan"),
    "",
    "\x1b[2J\u202e",
    "9" * 5000,
    [],
    {},
    [[[]]],
    {"g": {"g": None}},
)


def messages() -> list[tuple[str, Any]]:
    fast = row("fast", power_w=300.0, utilization_gpu_pct=99, memory_used_bytes=2**30)
    return [
        ("hello", hello()),
        ("driver", {"state": "ok", "version": "1", "detail": "", "age_s": 1.0}),
        ("gpus", {"gpus": [gpu_entry(i) for i in range(4)], "h": {"cpu_count": 8}}),
        ("fast", {"t": 10**12, "g": [fast, None, fast, fast], "h": [5.0, 2**34]}),
        ("slow", {"t": 10**12, "g": [row("slow", energy_j=5.0)] * 4, "m": {"GPU-1": ["1g.24gb"]}}),
        ("absent", {"g": [{"fan_pct": "Not Supported"}] * 4, "h": {"load_1m": "why"}}),
        ("gpu_state", {"uuid": "GPU-2", "state": "lost", "detail": "gone"}),
        ("processes", {"t": 1, "p": [{"pid": 5, "memory_bytes": {"GPU-1": 7}, "command": "x"}]}),
        ("kernel", {"events": [{"at": 1.7e9, "kind": "xid", "text": "x", "xid": 79}]}),
        ("note", {"text": "no psutil"}),
    ]


def damaged(value: Any, rng: random.Random) -> Any:
    """The same with one thing in it wrong."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return rng.choice(JUNK)
    if isinstance(value, dict):
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: damaged(value[key], rng)}
    position = rng.randrange(len(value))
    if rng.random() < 0.1:
        return value[:position]
    return [*value[:position], damaged(value[position], rng), *value[position + 1 :]]


def test_ten_thousand_damaged_messages_then_all_is_well_again() -> None:
    rng = random.Random(20_26)
    host = Host(gpus=4)
    good = messages()
    for number in range(10_000):
        method, params = rng.choice(good)
        host.say(method, damaged(params, rng))
        host.clock.advance(0.01)
        if number % 500 == 0:
            snapshot = host.snapshot()
            assert_honest(snapshot)
            text = json.dumps([gpu.name + gpu.state_detail for gpu in snapshot.gpus])
            assert "\\u001b" not in text
            assert "\\u202e" not in text
    assert host.telemetry.malformed_count > 2000

    for method, params in good:
        if method not in ("gpu_state", "fast"):
            assert host.say(method, params), method
    host.boot_s = host.clock.monotonic_s() - 2000
    host.fast(*[{"power_w": 123.0}] * 4)
    gpus = {gpu.uuid: gpu for gpu in host.snapshot().gpus}
    for index in range(4):
        gpu = gpus[f"GPU-{index}"]
        assert (gpu.state, gpu.readings.power_w) == (GpuState.OK, 123.0)
    assert len(gpus) <= 256
