"""What the benchmark commands print, as wide as there is room for."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import msgspec
import pytest

from backends.bench.results import ClientHealth, StepResult
from backends.storage.history import History
from tests.bench_data.runs import run
from tui.cli.bench_table import StepTable
from tui.cli.fit import table, width_of, wrapped

ROOT = Path(__file__).resolve().parents[2]


def a_step(**changes: object) -> StepResult:
    return msgspec.structs.replace(run(1).steps[0], **changes)


@pytest.mark.parametrize("width", [54, 60, 72, 80, 100, 120, 200])
def test_a_step_fits_and_output_stands_first(width: int) -> None:
    steps = StepTable(width)
    valid = ClientHealth(valid=False)
    shown = [*steps.header(), *steps.lines(a_step(label="128 streams, ramp 300 s", client=valid))]
    assert max(map(len, shown)) <= width
    assert shown[0].split()[:2] == ["load", "output"]
    assert "failed" in shown[0]
    assert "client-limited" in "".join(shown)
    if width >= 80:
        assert shown[0].split()[2] == "in+out"


def test_eighty_columns_hold_what_matters() -> None:
    head = StepTable(80).header()[0]
    for title in ("output", "in+out", "TTFT p50", "TPOT p50", "E2E p50", "failed"):
        assert title in head


def test_piped_every_column_is_there_and_remarks_stand_in_the_line() -> None:
    steps = StepTable()
    head = " ".join(steps.header()[0].split())
    assert head == ("load output in+out req/s TTFT p50 TTFT p99 TPOT p50 gap p99 E2E p50 ok failed")
    (line,) = steps.lines(a_step(client=ClientHealth(valid=False)))
    assert "client-limited" in line


def test_columns_are_left_out_in_order_and_the_rest_is_broken() -> None:
    header, rows = ("run", "plan", "tok/s", "remarks"), [("a" * 10, "b" * 10, "1", "one two")]
    assert "plan" in table(header, rows)
    narrow = table(header, rows, width=26, drop=(1, 2))
    assert narrow.splitlines()[0].split() == ["run", "tok/s", "remarks"]
    narrow = table(header, rows, width=19, drop=(1, 2))
    assert narrow.splitlines()[0].split() == ["run", "remarks"]
    assert max(map(len, narrow.splitlines())) <= 19


def test_lines_break_between_words() -> None:
    assert list(wrapped("  one two three", None)) == ["  one two three"]
    assert list(wrapped("  one two three", 10)) == ["  one two", "    three"]
    assert list(wrapped("", 10)) == [""]


def test_what_is_no_terminal_has_no_width() -> None:
    assert width_of(io.StringIO()) is None


def test_shown_in_a_terminal_nothing_is_wider_than_it(own_home: Path) -> None:
    with History.at_home() as history:
        history.save(run(1))
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    with subprocess.Popen(
        [sys.executable, "gpuroom.py", "bench", "show"], cwd=ROOT, stdout=secondary
    ) as process:
        os.close(secondary)
        while True:
            try:
                data = os.read(primary, 65536)
            except OSError:  # Linux says so that the other side is closed.
                break
            if not data:
                break
            shown += data
    os.close(primary)
    assert process.returncode == 0
    lines = shown.decode().splitlines()
    assert any(line.startswith("load") for line in lines)
    assert max(map(len, lines)) <= 80
