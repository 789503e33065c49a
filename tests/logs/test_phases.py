"""The phases of a log: what is found without parsing each line is what parsing each would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.servers.engines import ENGINES, Engine, EngineId, Phase
from backends.servers.logphases import PhaseFinder, PhaseReader
from backends.servers.logtext import each_line, parse_line

NOISE = b"INFO 01-05 10:00:00 Decode batch, #running-req: 1, token usage: 0.01\n"


def slowly(engine: Engine, data: bytes) -> list[tuple[int, Phase]]:
    """Every line parsed."""
    reader, found = PhaseReader(engine), []
    for place, raw in each_line(data, 0):
        before = reader.phase
        phase = reader.take(parse_line(raw, place))
        if phase is not None and phase is not before:
            found.append((place, phase))
    return found


def quickly(engine: Engine, data: bytes, most: int) -> list[tuple[int, Phase]]:
    """In chunks of whole lines."""
    finder, found, at = PhaseFinder(engine), [], 0
    while at < len(data):
        end = data.find(b"\n", min(at + most, len(data) - 1)) + 1 or len(data)
        found += finder.take(at, data[at:end])
        at = end
    return found


@pytest.mark.shared
def test_recorded_logs_have_the_same_phases_either_way(shared: Path) -> None:
    changes = 0
    for path in sorted((shared / "logs").rglob("*.log"))[::3]:
        data = path.read_bytes()[:60_000]
        data = data[: data.rfind(b"\n") + 1] + NOISE * 50 + data[: data.rfind(b"\n") + 1]
        for engine_id in (EngineId.SGLANG, EngineId.VLLM, EngineId.LLAMACPP):
            engine = ENGINES[engine_id]
            found = quickly(engine, data, 4096)
            assert found == slowly(engine, data), (path.name, engine_id)
            changes += len(found)
    assert changes > 20


def test_colours_bars_and_wrappings_hide_no_phase() -> None:
    lines = [
        b"[2026-01-05 10:00:07 TP0] Load \x1b[1mweight\x1b[0m begin. avail mem=90.0 GB\n",
        NOISE * 200,
        b'{"log":"[2026-01-05 10:00:20 TP0] Capture cuda graph begin. avail mem=9 GB\\n",'
        b'"stream":"stderr","time":"2026-01-05T10:00:20Z"}\n',
        b"Loading safetensors checkpoint shards:  37% Completed | 60/163 [00:18<00:33, 3.11it/s]\r"
        b"Loading safetensors checkpoint shards: 100% Completed | 163/163 [00:40<00:00, 3.9it/s]\n",
        b"[2026-01-05 10:00:50] The server is fired up and ready to roll!\n",
        NOISE * 200,
        b"[2026-01-05 11:00:07 TP0] Load weight begin. avail mem=90.0 GB\n",
        b"[2026-01-05 12:00:00] server_args=ServerArgs(model_path='/m', port=30000)\n",
        b"[2026-01-05 12:00:07 TP0] Load weight begin. avail mem=90.0 GB\n",
    ]
    engine = ENGINES[EngineId.SGLANG]
    found = quickly(engine, b"".join(lines), 1000)
    assert found == slowly(engine, b"".join(lines))
    assert [phase for _, phase in found][:4] == [
        Phase.LOADING, Phase.CAPTURING, Phase.LOADING, Phase.READY,
    ]  # fmt: skip
    assert found[-1][1] is Phase.LOADING
