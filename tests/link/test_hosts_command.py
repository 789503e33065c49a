"""`gpuroom hosts` without a host says what to do, whether there is a configuration or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.cli import main


def test_no_host_is_no_dead_end(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hosts"]) == 0
    assert "`gpuroom config init` writes a sample" in capsys.readouterr().err
    assert main(["config", "init"]) == 0
    path = capsys.readouterr().out.split()[-1]
    assert main(["hosts"]) == 0
    said = capsys.readouterr().err
    assert f"add a [[hosts]] table to {path}" in said
    assert "config init" not in said
