"""Where gpuroom keeps what is the user's: configuration, state, data, logs.

`GPUROOM_HOME`, when set, holds all four; tests use it to stay out of the developer's own files.
"""

from __future__ import annotations

import os
from pathlib import Path

APP = "gpuroom"


def _place(kind: str) -> Path:
    home = os.environ.get("GPUROOM_HOME")
    if home:
        return Path(home) / kind
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP, appauthor=False)
    return Path(
        {
            "config": dirs.user_config_dir,
            "state": dirs.user_state_dir,
            "data": dirs.user_data_dir,
            "log": dirs.user_log_dir,
        }[kind]
    )


def config_file() -> Path:
    """The user's configuration, read only."""
    return _place("config") / "config.toml"


def state_file() -> Path:
    """What was changed on screen (refresh, sort, hidden panes)."""
    return _place("state") / "state.toml"


def known_hosts_file() -> Path:
    """Host keys that were accepted inside gpuroom; the user's own files are never written."""
    return _place("state") / "known_hosts"


def data_dir() -> Path:
    """History, recordings and results."""
    return _place("data")


def log_dir() -> Path:
    """Crash reports."""
    return _place("log")
