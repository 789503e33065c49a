"""Snapshots are pictures of one Python: others draw the same, but are not compared byte by byte."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

MADE_ON = (3, 11)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to make snapshots elsewhere."""
    if config.getoption("--snapshot-update", default=False) and sys.version_info[:2] != MADE_ON:
        raise pytest.UsageError("snapshots are made on Python %d.%d only" % MADE_ON)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the comparison elsewhere."""
    if sys.version_info[:2] != MADE_ON:
        reason = "snapshots were made on Python %d.%d" % MADE_ON
        for item in items:
            if "tests/snapshots/" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are local: hold the place still."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
