"""Where `:` can go: hosts, screens, commands. What is offered follows from the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.dom import DOMNode
from textual.screen import Screen

from tui.actions import AREAS, find, keys_text
from tui.shell import Shell
from tui.themes import THEME_NAMES
from tui.widgets.host_state import host_word

if TYPE_CHECKING:
    from tui.app import RoomApp

Work = Callable[["RoomApp"], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the palette."""

    kind: str
    name: str
    about: str
    work: Work


def entries(shell: Shell, screen: Screen[object]) -> list[Entry]:
    """Everything that can be gone to from here."""
    now_s = shell.clock.monotonic_s()
    found = [
        Entry("host", name, host_word(shell.snapshot(name), now_s)[0], _host(name))
        for name in shell.names
    ]
    seen = set()
    for active in screen.active_bindings.values():
        action = find(active.binding.id or "")
        if action is None or action.id in seen or action.area == "nav" or not active.enabled:
            continue
        seen.add(action.id)
        found.append(
            Entry(
                AREAS[action.area].lower(),
                action.label,
                f"{action.help}  ({keys_text(action.keys)})",
                _action(active.binding.action, active.node),
            )
        )
    found += [Entry("theme", f"theme {name}", "", _theme(name)) for name in THEME_NAMES]
    return found


def _host(name: str) -> Work:
    return lambda app: app.select_host(name)


def _theme(name: str) -> Work:
    return lambda app: app.set_look(name)


def _action(action: str, node: DOMNode) -> Work:
    return lambda app: app.run_later(action, node)
