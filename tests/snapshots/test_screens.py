"""Every screen at three sizes, with and without colour; the states a host can be in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from backends.link.base import HostKeyQuestion, SecretKind, SecretQuestion
from backends.model import DriverState, DriverStatus, LinkState, Severity
from screens.auth import AuthScreen
from screens.confirm import ConfirmScreen
from screens.host_key import HostKeyScreen
from tests.ui.fakes import FakeHub, drawn, gpu, link, make_app, make_hub, ready
from tui.app import RoomApp

SIZES = [(80, 24), (120, 40), (200, 60)]
THEMES = ["dark", "mono"]
each_look = pytest.mark.parametrize("theme", THEMES)
each_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")

Compare = Callable[..., bool]


def room_hub() -> FakeHub:
    hub = make_hub()
    for number in range(40):
        hub.note(f"refresh {number}")
    hub.note("set the power limit", "nvidia-smi: Insufficient Permissions")
    return hub


def pressing(*keys: str, then: Callable[[RoomApp], None] | None = None) -> Callable[..., object]:
    """Wait for the first data, press keys, draw."""

    async def before(pilot: Pilot[int]) -> None:
        assert isinstance(pilot.app, RoomApp)
        await ready(pilot)
        for key in keys:
            await pilot.press(key)
            await drawn(pilot)
        if then is not None:
            then(pilot.app)
            await drawn(pilot)
        pilot.app.pump.draw(force=True)
        await pilot.pause()

    return before


SCREENS = {
    "room": (),
    "gpu": ("j", "enter"),
    "processes": ("P",),
    "fleet": ("f",),
    "alerts": ("A",),
    "journal": ("J",),
    "help": ("question_mark",),
    "goto": ("colon",),
}


@each_size
@each_look
@pytest.mark.parametrize("screen", SCREENS)
def test_screen(snap_compare: Compare, screen: str, theme: str, size: tuple[int, int]) -> None:
    """The screens that one goes to."""
    hub = room_hub()
    app = make_app(hub, theme=theme)

    def something_happens(app: RoomApp) -> None:
        hub.alert("Link lost")
        hub.alert("GPU 3 is lost", Severity.CRITICAL)
        # A notice goes by itself after a while, and no picture may depend on when.
        app.notices.told = hub.alerts.version

    then = something_happens if screen == "alerts" else None
    assert snap_compare(app, terminal_size=size, run_before=pressing(*SCREENS[screen], then=then))


DIALOGS: dict[str, Callable[[RoomApp], object]] = {
    "confirm": lambda app: app.push_screen(
        ConfirmScreen(
            app.shell.look,
            title="Set the power limit of 8 GPUs to 600 W",
            text="It holds until the next reboot.",
            runs=("nvidia-smi -i 0 -pl 600", "nvidia-smi -i 1 -pl 600"),
        )
    ),
    "confirm-production": lambda app: app.push_screen(
        ConfirmScreen(app.shell.look, title="Unlock gpu02", text="Until the end.", type_this="gpu02")
    ),
    "host-key": lambda app: app.push_screen(
        HostKeyScreen(
            HostKeyQuestion(
                "gpu04", "10.0.0.14", 22, "ssh-ed25519",
                "SHA256:uNiVztksCsDhcc0u9e8BrrEksXTKCTCZb7lvqmLyMrE",
            )
        )
    ),
    "auth": lambda app: app.push_screen(
        AuthScreen(SecretQuestion("gpu04", SecretKind.PASSWORD, "root@10.0.0.14's password:", attempt=2))
    ),
}  # fmt: skip


@each_size
@each_look
@pytest.mark.parametrize("dialog", DIALOGS)
def test_dialog(snap_compare: Compare, dialog: str, theme: str, size: tuple[int, int]) -> None:
    """The dialogs that ask."""
    app = make_app(room_hub(), theme=theme)
    assert snap_compare(
        app, terminal_size=size, run_before=pressing(then=lambda a: DIALOGS[dialog](a) and None)
    )


@pytest.mark.parametrize(
    ("count", "size"), [(16, (80, 24)), (64, (120, 50)), (256, (120, 40)), (1, (60, 15))]
)
def test_many_gpus(snap_compare: Compare, count: int, size: tuple[int, int]) -> None:
    """16 in 80x24, 64 in 120x50, 256 as a heat grid, one in little space."""
    app = make_app(make_hub(gpus=[gpu(i) for i in range(count)], hosts=1))
    assert snap_compare(app, terminal_size=size, run_before=pressing())


STATES: dict[str, dict[str, object]] = {
    "connecting": {"gpus": (), "driver": None, "link": link(LinkState.CONNECTING), "sampled_s": None},
    "lost": {
        "link": link(LinkState.LOST, error="no answer to keepalives", retry_at_s=10_007.0, attempt=2),
        "sampled_s": 9_960.0,
    },
    "refused": {
        "gpus": (), "driver": None, "sampled_s": None,
        "link": link(LinkState.REFUSED, error="The host key has changed", hint="ssh-keygen -R gpu01"),
    },
    "missing": {
        "gpus": (), "driver": DriverStatus(DriverState.MISSING, None, detail="no libnvidia-ml.so.1"),
    },
    "mismatch": {
        "gpus": (),
        "driver": DriverStatus(DriverState.MISMATCH, "580.95.05", detail="NVML is 580.105"),
    },
    "stuck": {
        "driver": DriverStatus(DriverState.STUCK, "580.95.05", detail="a call hangs", since_s=9_950.0),
        "sampled_s": 9_948.0,
    },
    "unified": {
        "gpus": (
            gpu(0, name="NVIDIA GB10", memory_used_bytes=None, memory_total_bytes=None,
                power_limit_enforced_w=None),
        ),
        "verdicts": (),
    },
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_state(snap_compare: Compare, state: str) -> None:
    """What a host can be."""
    hub = make_hub(hosts=1)
    hub.host("gpu01").put(**STATES[state])
    assert snap_compare(make_app(hub), terminal_size=(80, 24), run_before=pressing())


@pytest.mark.parametrize(("theme", "ascii_set"), [("light", False), ("ansi", False), ("mono", True)])
def test_look(snap_compare: Compare, theme: str, ascii_set: bool) -> None:
    """Light, sixteen colours, ASCII without colour."""
    app = make_app(make_hub(), theme=theme, ascii_set=ascii_set)
    assert snap_compare(app, terminal_size=(100, 30), run_before=pressing())


def test_filter_and_marks(snap_compare: Compare) -> None:
    """While a filter is typed."""
    keys = ("space", "space", "slash", *"util", "greater_than_sign", *"90")
    assert snap_compare(make_app(make_hub()), terminal_size=(100, 30), run_before=pressing(*keys))
