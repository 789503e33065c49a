"""Imports run one way, and start-up loads only what the command needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def modules_after(code: str) -> set[str]:
    """The modules that a fresh Python has loaded after `code`."""
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules))"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(run.stdout.split())


def backends_modules() -> list[str]:
    """Every module below backends that may be imported by anyone."""
    return [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in sorted((ROOT / "backends").rglob("*.py"))
        if "remote" not in path.parts
    ]


def test_the_backends_load_no_screen() -> None:
    loaded = modules_after("\n".join(f"import {name}" for name in backends_modules()))
    assert not {
        name for name in loaded if name.split(".")[0] in {"textual", "rich", "screens", "tui"}
    }


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["config", "path"]])
def test_a_small_command_loads_little(argv: list[str]) -> None:
    code = f"import os; sys.stdout = open(os.devnull, 'w'); import gpuroom; sys.argv[1:] = {argv}\n"
    loaded = modules_after(code + "gpuroom.main(); sys.stdout = sys.__stdout__")
    heavy = {
        "textual",
        "rich",
        "asyncssh",
        "cryptography",
        "sqlite3",
        "pynvml",
        "psutil",
        "asyncio",
    }
    assert not loaded & heavy


def test_the_layers_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
