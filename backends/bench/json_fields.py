"""Typed, bounded reading of the JSON files that come with a model.

The files come from strangers: sizes are bounded before anything is decoded, every figure is
checked, and every error names the file and the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backends.errors import RoomError
from backends.text import clean

MAX_CONFIG_BYTES: Final = 16 * 1024 * 1024
MAX_LAYERS: Final = 4096
MAX_WIDTH: Final = 1 << 22


class ModelError(RoomError):
    """The model's files cannot be used; says which file and which field."""

    exit_code = 2


class Fields:
    """Typed, bounded access to a JSON object; errors name the field and the file."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values = values
        self.where = where

    def fail(self, field: str, problem: str) -> ModelError:
        """An error about `field`."""
        return ModelError(
            f"The model's configuration cannot be used: `{field}` {problem}",
            self.where,
            "Is this the config.json that came with the model?",
        )

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def integer(
        self, *names: str, default: int | None = None, low: int = 1, high: int = MAX_WIDTH
    ) -> int:
        """The first of `names` that is there.

        Raises:
            ModelError: None is there and there is no default, or it is no whole number in bounds.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, list) and value and all(item == value[0] for item in value):
                # One figure a layer, all the same.
                value = value[0]
            if isinstance(value, bool) or not isinstance(value, int):
                raise self.fail(name, f"should be a whole number, not {_show(value)}")
            if not low <= value <= high:
                raise self.fail(name, f"is {_show(value)}; expected {low} to {high}")
            return value
        if default is None:
            raise self.fail(names[0], "is missing")
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """A true or false; `default` where it is missing or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"should be true or false, not {_show(value)}")
        return value

    def word(self, name: str, default: str = "") -> str:
        """A short string, cleaned."""
        value = self.values.get(name)
        return clean(value, 120) if isinstance(value, str) else default

    def object(self, name: str) -> Fields | None:
        """A nested object, or None."""
        value = self.values.get(name)
        return Fields(value, self.where) if isinstance(value, dict) else None

    def words(self, name: str, limit: int = 100_000) -> list[str]:
        """A list of strings; other members are dropped."""
        value = self.values.get(name)
        if not isinstance(value, list):
            return []
        return [clean(item, 400) for item in value[:limit] if isinstance(item, str)]

    def integers(self, name: str, limit: int = MAX_LAYERS) -> list[int] | None:
        """A list of whole numbers, or None where the field is not one."""
        value = self.values.get(name)
        if not isinstance(value, list):
            return None
        return [
            item for item in value[:limit] if isinstance(item, int) and not isinstance(item, bool)
        ]


def _show(value: object) -> str:
    return clean(repr(value)[:60], 60)


def read_json(path: Path, limit_bytes: int = MAX_CONFIG_BYTES) -> dict[str, object]:
    """Read a JSON object of at most `limit_bytes`.

    Raises:
        ModelError: Unreadable, too large, no JSON, or no object.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(limit_bytes + 1)
    except OSError as error:
        raise ModelError("The model's file cannot be read", f"{path}: {error.strerror}") from error
    if len(raw) > limit_bytes:
        raise ModelError(
            "The model's file is too large", f"{path}: more than {limit_bytes // 1024**2} MiB"
        )
    return parse_json(raw, str(path))


def parse_json(raw: bytes, where: str) -> dict[str, object]:
    """Decode a JSON object; `where` names it in errors."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError("The model's file is no valid JSON", f"{where}: {error}") from error
    if not isinstance(value, dict):
        raise ModelError("The model's file holds no JSON object", where)
    return value
