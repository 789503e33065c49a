"""A crash leaves a file and two lines, and no secret in either."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui import crash


def fail(secret: str) -> None:
    raise ValueError("the screen fell over")


def report_of_a_failure() -> tuple[ValueError, Path | None]:
    try:
        fail("hunter2" * 2)
    except ValueError as error:
        return error, crash.write_report(error)
    raise AssertionError


def test_the_report_has_the_traceback_and_no_values(own_home: Path) -> None:
    _, report = report_of_a_failure()
    assert report is not None
    assert own_home in report.parents
    text = report.read_text()
    assert "the screen fell over" in text
    assert "in fail" in text
    assert "textual 8" in text
    assert "hunter2hunter2" not in text


def test_two_lines_say_what_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    error, report = report_of_a_failure()
    crash.say(error, report)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gpuroom crashed: ValueError: the screen fell over"
    assert str(report) in lines[1]
    assert len(lines) == 2


def test_a_place_that_cannot_be_written_is_no_second_crash(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_home / "log").write_text("a file where the folder should be")
    error, report = report_of_a_failure()
    assert report is None
    crash.say(error, report)
    assert "could not be written" in capsys.readouterr().err
