"""Textual bindings, made from the table of actions."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from tui.actions import ACTIONS


def bindings(*areas_or_ids: str) -> list[BindingType]:
    """Textual bindings for areas, or for single actions by id."""
    chosen = [a for name in areas_or_ids for a in ACTIONS if name in (a.area, a.id)]
    return [
        Binding(
            action.keys,
            action.method,
            action.label,
            show=bool(action.hint),
            tooltip=action.help,
            id=action.id,
            priority=action.typing_follows,
        )
        for action in chosen
    ]
