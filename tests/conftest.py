"""Fixtures of every test: the developer's own files and settings stay out."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configuration, state and data of this test alone."""
    home = tmp_path_factory.mktemp("gpuroom-home")
    monkeypatch.setenv("GPUROOM_HOME", str(home))
    for name in ("NO_COLOR", "COLORTERM", "TEXTUAL", "TEXTUAL_THEME", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recordings beside the checkout; else the test is skipped."""
    if not SHARED.is_dir():
        pytest.skip(f"no recordings at {SHARED}")
    return SHARED
