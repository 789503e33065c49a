"""The wheel holds what it should, installs clean, and no stray package wins over it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree without isolation (hatchling is a test dependency)."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, with this Python's own dependencies behind it."""
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "gpuroom.py", "tui", "backends", "screens",
    }  # fmt: skip
    assert "tui/config.default.toml" in names
    for folder in ("tui", "backends", "screens"):
        assert f"{folder}/py.typed" in names
    for path in ROOT.glob("screens/*.tcss"):
        assert f"screens/{path.name}" in names


def test_a_stray_package_of_the_same_name_does_not_win(installed: Path, tmp_path: Path) -> None:
    decoy = tmp_path / "tui"
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise SystemExit('the decoy won')")
    code = "import sys, gpuroom; sys.argv = ['gpuroom', 'config', 'init']; sys.exit(gpuroom.main())"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": f"{tmp_path}:{installed}", "GPUROOM_HOME": str(tmp_path / "home"),
             "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "home/config/config.toml").read_text() == (ROOT / "config.toml").read_text()
