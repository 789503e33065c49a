"""What tests of many comparisons share."""

from __future__ import annotations

import pytest

from backends.bench import inference


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words do not depend on the bootstrap, only intervals do: leave it out where many are made."""
    monkeypatch.setattr(inference, "RESAMPLES", 2)
