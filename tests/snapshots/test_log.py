"""The log screen: followed, filtered, searched, folded, wrapped; always with its pins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from backends.servers.logfeed import LogData
from backends.servers.logstore import LogStore
from screens.log import LogScreen
from tests.snapshots.test_screens import Compare
from tests.ui.fakes import drawn, make_app, make_hub, ready
from tui.app import RoomApp

SIZES = [(80, 24), (200, 60)]

START = """\
[2026-03-14 09:00:01] server_args=ServerArgs(model_path='/models/m-70b', tp_size=4, port=30000)
[2026-03-14 09:00:09 TP0] Init torch distributed begin.
[2026-03-14 09:00:12 TP1] Init torch distributed ends. mem usage=1.21 GB
[2026-03-14 09:00:13 TP0] Load weight begin. avail mem=138.50 GB
"""
MIDDLE = """\
[2026-03-14 09:01:41 TP0] Load weight end. type=LlamaForCausalLM, avail mem=104.10 GB
[2026-03-14 09:01:42 TP2] WARNING: Performance might be sub-optimal: no tuned MoE kernel config found
[2026-03-14 09:01:43 TP0] Capture cuda graph begin. This can take up to several minutes.
"""
TRACE = """\
[2026-03-14 09:02:11 TP3] ERROR: Request r-17 failed
Traceback (most recent call last):
  File "/srv/engine/scheduler.py", line 812, in run_batch
    logits = self.worker.forward(batch)
  File "/srv/engine/worker.py", line 97, in forward
    return self.model(batch.input_ids)
ValueError: sequence of 40,213 tokens is longer than the context of 32,768
"""


def a_log() -> bytes:
    bar = "\r".join(
        f"Loading safetensors checkpoint shards: {n * 10:3d}% Completed | {n}/10 [00:{n:02d}<00:08]"
        for n in range(11)
    )
    serving = "".join(
        f"[2026-03-14 09:02:{n:02d} TP{n % 4}] Decode batch, running: {n}, gen throughput: {800 + n}\n"
        for n in range(40)
    )
    return (
        START + bar + "\n" + MIDDLE + serving + TRACE + serving.replace("09:02", "09:03")
    ).encode()


class WrittenLog(LogStore):
    """A log that is there as soon as it is followed."""

    async def run(self) -> None:
        self._take(LogData(0, a_log(), 1))
        await asyncio.Event().wait()


VIEWS: dict[str, tuple[str, ...]] = {
    "follow": (),
    "filtered": ("L", "L"),
    "search": ("slash", *"run_batch", "enter"),
    "folded": ("z", "e"),
    "wrapped": ("w", "e"),
}


def looking(*keys: str) -> Callable[..., object]:
    """Open the log, press keys, wait until nothing moves any more."""

    async def before(pilot: Pilot[int]) -> None:
        app = pilot.app
        assert isinstance(app, RoomApp)
        await ready(pilot)
        session = app.shell.session("gpu01")
        screen = LogScreen(app.shell, WrittenLog(session, "/var/log/m-70b.log"), "m-70b")  # type: ignore[arg-type]
        await app.push_screen(screen)
        await quiet(pilot, screen)
        for key in keys:
            await pilot.press(key)
            await quiet(pilot, screen)
        app.pump.draw(force=True)
        await pilot.pause()

    return before


async def quiet(pilot: Pilot[int], screen: LogScreen) -> None:
    calm = 0
    for _ in range(100):
        await drawn(pilot)
        rests = screen.pins.version and not screen.jobs.running and screen.view.needs() == (0, 0)
        calm = calm + 1 if rests else 0
        if calm == 3:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the log never came to rest")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", VIEWS)
def test_log(snap_compare: Compare, view: str, size: tuple[int, int]) -> None:
    """What one sees of a log."""
    app = make_app(make_hub())
    assert snap_compare(app, terminal_size=size, run_before=looking(*VIEWS[view]))
