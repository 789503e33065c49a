"""What was changed on screen, kept apart from the user's configuration and its comments."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec
import tomli_w

from backends import paths, toml
from backends.errors import RoomError


class RoomState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state file. None means: as the configuration says."""

    interval_s: float | None = None
    sort: str | None = None
    hidden_panes: tuple[str, ...] | None = None
    theme: str | None = None


def load_state(path: Path | None = None) -> RoomState:
    """Read the state; what is missing, unreadable or of another version counts as unchanged."""
    try:
        return toml.decode((path or paths.state_file()).read_text(encoding="utf-8"), RoomState)
    except (OSError, ValueError, msgspec.MsgspecError):
        return RoomState()


def save_state(state: RoomState, path: Path | None = None) -> None:
    """Write the state, whole or not at all.

    Raises:
        RoomError: The place can't be written.
    """
    path = path or paths.state_file()
    values = {key: value for key, value in msgspec.to_builtins(state).items() if value is not None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                tomli_w.dump(values, file)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise RoomError(
            "what was changed on screen could not be kept",
            f"{path}: {error.strerror}",
            "it holds until gpuroom ends",
        ) from None
