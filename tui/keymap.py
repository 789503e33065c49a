"""The user's own keys: checked against the table of actions before they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from textual.keys import _character_to_key

from backends.config import nearest
from backends.errors import ConfigError
from tui.actions import ACTIONS, AREAS, FORBIDDEN_KEYS, Action, find


def make_keymap(wanted: Mapping[str, str], path: Path | None = None) -> dict[str, str]:
    """Give Textual's keymap for `[keys]` of the configuration.

    Raises:
        ConfigError: An id that no action has (the nearest is named), a key that belongs to tmux or
            screen, or a key that two actions of one screen would share.
    """
    keymap: dict[str, str] = {}
    for action_id, keys in wanted.items():
        if find(action_id) is None:
            raise ConfigError(
                f"`keys`: no action is called `{action_id}`",
                path=path,
                hint=nearest(action_id, [action.id for action in ACTIONS]),
            )
        names = [normal_key(key) for key in keys.split(",") if key.strip()]
        if not names:
            raise ConfigError(f"`keys.{action_id}`: no key is given", path=path)
        for name in names:
            if name in FORBIDDEN_KEYS:
                raise ConfigError(
                    f"`keys.{action_id}`: {name} belongs to tmux or screen",
                    path=path,
                    hint="choose another key",
                )
        keymap[action_id] = ",".join(names)
    _check_clashes(keymap, path)
    return keymap


def normal_key(key: str) -> str:
    """Textual's name of a key: `?` is `question_mark`."""
    key = key.strip()
    return _character_to_key(key) if len(key) == 1 else key


def keys_of(action: Action, keymap: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of an action with the user's changes."""
    return tuple(normal_key(key) for key in keymap.get(action.id, action.keys).split(","))


SHARED_AREAS = ("app", "nav", "host")


def takes_over(one: Action, other: Action) -> bool:
    """Whether one of them takes the key of the other on its own screen, which is everywhere's."""
    return (one.takes_key and other.area in SHARED_AREAS) or (
        other.takes_key and one.area in SHARED_AREAS
    )


def _check_clashes(keymap: Mapping[str, str], path: Path | None) -> None:
    for area in AREAS:
        owner: dict[str, Action] = {}
        for action in ACTIONS:
            if action.area not in (area, *SHARED_AREAS) or action.area in ("dialog", "input"):
                continue
            for key in keys_of(action, keymap):
                other = owner.setdefault(key, action)
                if takes_over(action, other):
                    continue
                if other is not action and (action.id in keymap or other.id in keymap):
                    raise ConfigError(
                        f"`keys`: {key} would mean both `{other.id}` and `{action.id}`",
                        path=path,
                        hint="give one of them another key",
                    )
