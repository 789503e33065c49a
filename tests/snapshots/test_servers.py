"""Servers in each state: the room's pane, and the server's own screen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers_room.still import VIEWS, StillBoard, found_view, ready_view, room, view
from tests.snapshots.test_screens import pressing
from tests.ui.fakes import gpu, make_hub

Compare = Callable[..., bool]
each_size = pytest.mark.parametrize(
    "size", [(80, 24), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}"
)
STATES = ("loading", "ready", "crashed", "stopped")


@each_size
@pytest.mark.parametrize("state", STATES)
def test_pane(snap_compare: Compare, state: str, size: tuple[int, int]) -> None:
    """The room with a server in that state."""
    app = room(StillBoard(VIEWS[state]()))
    assert snap_compare(app, terminal_size=size, run_before=pressing())


@each_size
def test_pane_of_several(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Several servers, the keys on the pane."""
    app = room(StillBoard(ready_view(), view("qwen"), found_view()))
    assert snap_compare(app, terminal_size=size, run_before=pressing("2", "j"))


@each_size
@pytest.mark.parametrize("state", STATES)
def test_server(snap_compare: Compare, state: str, size: tuple[int, int]) -> None:
    """The server's own screen."""
    app = room(StillBoard(VIEWS[state]()))
    assert snap_compare(app, terminal_size=size, run_before=pressing("2", "enter"))


@pytest.mark.parametrize(
    ("name", "keys", "theme", "ascii_set"),
    [
        ("configuration", ("2", "enter", "e"), "dark", False),
        ("mono", ("2", "enter"), "mono", True),
        ("light", ("2", "enter"), "light", False),
    ],
)
def test_look_of_a_server(
    snap_compare: Compare, name: str, keys: tuple[str, ...], theme: str, ascii_set: bool
) -> None:
    """Its configuration; ASCII without colour; light."""
    app = room(
        StillBoard(ready_view()),
        make_hub(hosts=1, gpus=[gpu(index) for index in range(8)]),
        theme=theme,
        ascii_set=ascii_set,
    )
    assert snap_compare(app, terminal_size=(100, 30), run_before=pressing(*keys))
