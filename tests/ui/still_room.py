"""A room in which nothing changes, as a program of its own; `test_silence.py` counts its bytes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backends.clock import SYSTEM_CLOCK
from backends.config import HostConfig
from tests.ui.fakes import FakeHub, FakeMaker, FakeSession, gpu, snapshot
from tui.app import RoomApp
from tui.shell import Shell
from tui.themes import make_look


def main() -> int:
    """Run it until q."""
    cards = [gpu(index) for index in range(8)]
    first = snapshot("gpu01", cards, interval_s=60.0, sampled_s=time.monotonic())
    session = FakeSession(HostConfig(name="gpu01"), first)
    look = make_look("dark", ascii_set=False)
    app = RoomApp(Shell(look, [session.config], clock=SYSTEM_CLOCK), FakeMaker(FakeHub([session])))
    app.run(mouse=False)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main())
