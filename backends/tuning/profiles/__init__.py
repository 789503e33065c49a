"""Thresholds that no vendor gives: ours, and said so.

`default.toml` holds them all; `latency.toml` and `throughput.toml` change some. A user's own file
of the same form may change any.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import msgspec

from backends.errors import ConfigError

NAMES = ("default", "latency", "throughput")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named set of thresholds; the unit stands in each name."""

    name: str
    description: str
    thresholds: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.thresholds[name]


@lru_cache(maxsize=8)
def load(name: str = "default") -> Profile:
    """One of the profiles that come with gpuroom.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in NAMES:
        raise ConfigError(f"no tuning profile {name!r}", hint=f"one of: {', '.join(NAMES)}")
    base = _read("default")
    return base if name == "default" else overlay(base, _read(name))


def overlay(base: Profile, changes: Profile) -> Profile:
    """`base` with the thresholds that `changes` sets.

    Raises:
        ConfigError: `changes` names a threshold that does not exist.
    """
    unknown = sorted(set(changes.thresholds) - set(base.thresholds))
    if unknown:
        raise ConfigError(
            f"profile {changes.name!r} sets an unknown threshold: {unknown[0]}",
            hint="`gpuroom tuning list --thresholds` names all of them",
        )
    merged: Mapping[str, float] = {**base.thresholds, **changes.thresholds}
    return Profile(changes.name, changes.description, dict(merged))


def _read(name: str) -> Profile:
    data = (resources.files(__name__) / f"{name}.toml").read_bytes()
    return msgspec.toml.decode(data, type=Profile)
