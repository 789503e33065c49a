"""On a real terminal, a room in which nothing changes sends nothing; a key sends its few cells."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.room_paint import Terminal

pytestmark = pytest.mark.real


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    program = Terminal([sys.executable, str(Path(__file__).with_name("still_room.py"))], 100, 30)
    program.wait_for(b"560/600W", timeout_s=60)
    yield program
    program.close()


def quiet(terminal: Terminal) -> None:
    """Wait until the first frames are through."""
    until_s = time.monotonic() + 30
    while terminal.drain(1.0):
        assert time.monotonic() < until_s, "it never becomes quiet"


def test_nothing_is_sent_when_nothing_changes(terminal: Terminal) -> None:
    quiet(terminal)
    assert terminal.drain(3.0) == 0


def test_a_key_sends_the_rows_it_changes(terminal: Terminal) -> None:
    quiet(terminal)
    os.write(terminal.fd, b"j")
    sent = terminal.drain(1.0)
    # Two rows of a hundred cells with their colours; the whole screen would be thirty.
    assert 0 < sent < 4096
