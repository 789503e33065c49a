"""The command line: help, version, routing, errors, completion."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from backends import paths
from tui.cli import main
from tui.cli.commands import COMMANDS
from tui.cli.completion import SCRIPTS, candidates

ROOT = Path(__file__).resolve().parents[2]
EVERY = [*COMMANDS]


def test_version_and_overview(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gpuroom {project['version']}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(command.name in out for command in COMMANDS)


@pytest.mark.parametrize("command", EVERY, ids=lambda c: c.name)
def test_every_command_explains_itself(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([getattr(command, "name"), "--help"])  # noqa: B009 - a NamedTuple
    assert ended.value.code == 0
    assert "usage: gpuroom" in capsys.readouterr().out


def test_config_init_check_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "init"]) == 0
    assert paths.config_file().read_text() == (ROOT / "config.toml").read_text()
    assert main(["config", "init"]) == 2, "a second init must not overwrite"
    assert main(["config", "check"]) == 0
    paths.config_file().write_text("[refresh]\nintervall_s = 1\n")
    capsys.readouterr()
    assert main(["config", "check"]) == 2
    shown = capsys.readouterr().err
    assert f"{paths.config_file()}:2" in shown
    assert "did you mean `interval_s`" in shown
    assert main(["config", "path"]) == 0
    assert str(paths.config_file()) in capsys.readouterr().out


def test_completion_knows_commands_options_and_hosts(own_home: Path) -> None:
    paths.config_file().parent.mkdir(parents=True, exist_ok=True)
    paths.config_file().write_text('[[hosts]]\nname = "gpu07"\n')
    first = candidates([])
    assert {"config", "gpu07", "local", "demo"} <= set(first)
    assert {"check", "init", "path"} <= set(candidates(["config"]))
    assert "--config" in candidates(["config", "check"])
    assert {"list", "compare", "--url"} <= set(candidates(["bench"]))
    assert "--gpus" in candidates(["bench", "show"])
    for command in COMMANDS:
        assert candidates(command.name.split())
    assert set(SCRIPTS) == {"bash", "zsh", "fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid_shell(shell: str, tmp_path: Path) -> None:
    import shutil

    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_scenario_that_is_none_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--scenario", "nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error() -> None:
    run = subprocess.run(
        f"{sys.executable} gpuroom.py completion words | head -1",
        shell=True, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")


def test_command_modules_offer_the_two_functions() -> None:
    for command in EVERY:
        module = importlib.import_module(command.module)
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        assert callable(module.run)
        assert command.help[0].islower()
        assert not command.help.endswith(".")
