"""The room under keys: what is shown, where keys lead, what reaches the hub."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input

from backends.errors import LinkError, RoomError
from backends.feeds import LEFT
from backends.model import DriverState, DriverStatus, LinkState, Severity
from backends.telemetry.history import Window
from screens.alerts import AlertScreen
from screens.bench import BenchScreen
from screens.confirm import ConfirmScreen, broken
from screens.fleet import FleetScreen
from screens.gpu import GpuScreen
from screens.help import HelpScreen
from screens.journal import JournalScreen
from screens.processes import ProcessScreen
from screens.room import RoomScreen
from screens.tuning import TuningScreen
from tests.ui.fakes import (
    FakeHub,
    FakeSession,
    drawn,
    gpu,
    link,
    make_app,
    make_clock,
    make_hub,
    ready,
    screen_text,
    shown,
)
from tui import actions
from tui.app import RoomApp

SIZE = (120, 40)


def room(app: RoomApp) -> RoomScreen:
    screen = app.screen_stack[0]
    assert isinstance(screen, RoomScreen)
    return screen


def cursor_index(app: RoomApp) -> int:
    item = room(app).grid.current()
    assert item is not None
    return item.gpu.index


def order(app: RoomApp) -> list[int]:
    grid = room(app).grid
    return [grid._items[key].gpu.index for key in grid.keys()]  # noqa: SIM118


async def test_the_room_shows_what_each_gpu_is() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        text = screen_text(app)
    for expected in (
        "560/600W", "cap 37%", "CAPPED", "SPINNING", "LOST  fell off the bus (Xid 79)", "5x4!",
        "DOWN-TRAINED", "hot 61%", "idle", "MIG", "GLM-5.2-NVFP4", "7 of 8 answer",
        "2655 W of 4200 W", "driver 580.95.05", "cpu 23% of 128",
    ):  # fmt: skip
        assert expected in text, expected


async def test_an_absent_value_is_never_a_number() -> None:
    without = gpu(
        0,
        utilization_gpu_pct=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        power_limit_enforced_w=None,
    )
    app = make_app(make_hub(gpus=[without]))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        line = next(line for line in screen_text(app).splitlines() if "560/" in line)
    assert "560/–W" in line
    assert "%" not in line.split("560/")[1].split("41%")[0]


async def test_unified_memory_is_called_so() -> None:
    card = gpu(0, memory_used_bytes=None, memory_total_bytes=None)
    reason = "unified memory: the GPU shares the host's"
    shared = replace(card, absent={**card.absent, "memory_total_bytes": reason})
    app = make_app(make_hub(gpus=[shared]))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        line = next(line for line in screen_text(app).splitlines() if "560/600W" in line)
    assert "unified" in line


async def test_keys_move_the_cursor_and_enter_opens_the_gpu() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("j", "j", "down")
        assert cursor_index(app) == 3
        await pilot.press("k")
        assert cursor_index(app) == 2
        await pilot.press("G")
        assert cursor_index(app) == 7
        await pilot.press("g")
        assert cursor_index(app) == 0
        await pilot.press("j", "enter")
        await drawn(pilot)
        assert isinstance(app.screen, GpuScreen)
        assert "held by cap 37.0 %" in screen_text(app)
        await pilot.press("n")
        await drawn(pilot)
        assert "GPU 2" in screen_text(app).splitlines()[0]
        await pilot.press("escape")
        assert isinstance(app.screen, RoomScreen)


async def test_escape_never_quits() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("escape", "escape", "escape", "ctrl+c")
        assert app.is_running
        assert isinstance(app.screen, RoomScreen)
        await pilot.press("q")
    assert app.return_code == 0


async def test_the_cursor_stays_on_its_gpu_through_sorting_and_new_data() -> None:
    hub = make_hub(gpus=[gpu(i) for i in range(8)])
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("j", "j", "j")
        assert cursor_index(app) == 3
        await pilot.press("o")
        watts = {i: gpu(i).readings.power_w or 0 for i in range(8)}
        assert order(app) == sorted(watts, key=lambda i: (-watts[i], i))
        assert cursor_index(app) == 3
        cards = [gpu(i, power_w=float(100 + i)) for i in range(8)]
        hub.host("gpu01").put(gpus=tuple(cards))
        await drawn(pilot)
        assert order(app) == [7, 6, 5, 4, 3, 2, 1, 0]
        assert cursor_index(app) == 3
        await pilot.press("O")
        assert order(app) == list(range(8))


async def test_gpus_without_the_value_come_last_whichever_way_round() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("o")
        assert order(app)[-1] == 3
        await pilot.press("O")
        assert order(app)[-1] == 3


async def test_the_filter_narrows_while_typing_and_escape_clears_it() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("slash", *"temp", "greater_than_sign", *"80")
        await pilot.pause()
        assert "Enter keep  Esc clear" in screen_text(app)
        assert order(app) == [5]
        await pilot.press("enter")
        assert "filter temp>80 1/8" in screen_text(app)
        assert room(app).grid.has_focus
        await pilot.press("slash")
        assert room(app).query_one("#filter", Input).value == "temp>80"
        await pilot.press("escape")
        assert len(order(app)) == 8


async def test_marks_choose_what_the_graph_shows() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("space", "space")
        await drawn(pilot)
        app.pump.draw(force=True)
        await pilot.pause()
        text = screen_text(app)
        assert "2 marked" in text
        assert "1158 W of 1200 W" in text
        await pilot.press("escape")
        assert not room(app).grid.marked


async def test_brackets_go_round_the_hosts() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("right_square_bracket")
        text = screen_text(app)
        assert "lost, retry in 30s: no answer to keepalives" in text
        assert "read-only" in text.splitlines()[0]
        await pilot.press("right_square_bracket")
        text = screen_text(app)
        assert "The host key of gpu03 has changed" in text
        assert "ssh-keygen -R gpu03" in text
        await pilot.press("right_square_bracket")
        assert app.shell.current == "gpu01"
        await pilot.press("left_square_bracket")
        assert app.shell.current == "gpu03"


async def test_a_lost_host_counts_down_and_keeps_its_last_values_with_their_age() -> None:
    clock = make_clock()
    hub = make_hub()
    app = make_app(hub, clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("right_square_bracket")
        clock.advance(10)
        await drawn(pilot)
        text = screen_text(app)
        assert "lost, retry in 20s" in text
        assert "560/600W" in text
        assert room(app).grid._items[app.shell.snapshot().gpus[0].uuid].stale_s == 22.0


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (LinkState.CONNECTING, "connecting"),
        (LinkState.HOST_KEY, "host key?"),
        (LinkState.AUTHENTICATING, "authenticating"),
        (LinkState.STARTING, "starting agent"),
        (LinkState.STALE, "stale"),
        (LinkState.CLOSED, "closed"),
    ],
)
async def test_every_state_of_the_link_has_its_word(state: LinkState, word: str) -> None:
    hub = make_hub()
    hub.host("gpu01").put(gpus=(), link=link(state), driver=None)
    app = make_app(hub)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert word in screen_text(app)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (DriverState.MISSING, ("no NVIDIA driver", "modprobe nvidia")),
        (DriverState.MISMATCH, ("driver and libraries differ", "reboot")),
        (DriverState.NO_PERMISSION, ("no permission for the GPUs", "/dev/nvidia*")),
        (DriverState.RELOADING, ("driver reloading", "by themselves")),
    ],
)
async def test_every_state_of_the_driver_has_its_words(
    state: DriverState, words: tuple[str, ...]
) -> None:
    hub = make_hub()
    hub.host("gpu01").put(gpus=(), driver=DriverStatus(state, None, detail="in its own words"))
    app = make_app(hub)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        text = screen_text(app)
    for word in (*words, "in its own words"):
        assert word in text


async def test_a_stuck_driver_keeps_its_values_and_says_since_when() -> None:
    hub = make_hub()
    stuck = DriverStatus(DriverState.STUCK, "580.95.05", detail="a call hangs", since_s=9_950.0)
    hub.host("gpu01").put(driver=stuck, sampled_s=9_948.0)
    app = make_app(hub)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        text = screen_text(app)
    assert "driver stuck for 50s: a call hangs" in text
    assert "560/600W" in text


async def test_pause_holds_the_screen_and_not_the_collecting() -> None:
    hub = make_hub(gpus=[gpu(0)])
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("p")
        assert "PAUSED" in screen_text(app)
        hub.host("gpu01").put(gpus=(gpu(0, power_w=123.0),))
        await drawn(pilot)
        assert "560/600W" in screen_text(app)
        await pilot.press("p")
        assert "123/600W" in screen_text(app)
        assert "PAUSED" not in screen_text(app)


async def test_the_pump_shows_the_newest_only() -> None:
    hub = make_hub(gpus=[gpu(0)])
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        frames = app.pump.frames
        for watts in range(100, 200):
            hub.host("gpu01").put(gpus=(gpu(0, power_w=float(watts)),))
        app.pump.draw()
        await pilot.pause()
        assert app.pump.frames == frames + 1
        assert "199/600W" in screen_text(app)
        app.pump.draw()
        assert app.pump.frames == frames + 1


async def test_the_pump_leaves_frames_out_while_the_terminal_is_behind() -> None:
    backlog = 9
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.pump._backlog = lambda _: backlog
        frames = app.pump.frames
        for _ in range(40):
            app.shell.touch()
            app.pump.tick()
        assert app.pump.frames == frames
        backlog = 0
        for _ in range(40):
            app.shell.touch()
            app.pump.tick()
        assert app.pump.frames > frames
        await pilot.pause()


async def test_nothing_is_repainted_when_nothing_changed() -> None:
    hub = make_hub(hosts=1)
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.pause(0.1)
        app.screen._compositor._dirty_regions.clear()
        for _ in range(5):
            app.pump.draw(force=True)
        assert not app.screen._dirty_widgets
        assert not app.screen._compositor._dirty_regions


async def test_only_changed_cells_are_repainted() -> None:
    cards = [gpu(i) for i in range(8)]
    hub = make_hub(gpus=cards, hosts=1)
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        grid = room(app).grid
        dirty: list[object] = []
        grid.refresh = lambda *regions, **_: dirty.extend(regions)  # type: ignore[method-assign,assignment]
        cards[3] = replace(cards[3], readings=replace(cards[3].readings, temperature_gpu_c=70.0))
        hub.host("gpu01").put(gpus=tuple(cards))
        app.pump.draw()
        assert [(r.y, r.width) for r in dirty] == [(5, 2), (10, 2)]  # type: ignore[attr-defined]
        await pilot.pause()


async def test_plus_and_minus_ask_for_another_interval() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("plus")
        await drawn(pilot)
        await pilot.press("minus")
        await drawn(pilot)
        await pilot.press("minus")
        await drawn(pilot)
        assert hub.host("gpu01").asked == [
            ("set_interval", 0.5),
            ("set_interval", 1.0),
            ("set_interval", 2.0),
        ]
        assert hub.host("gpu01").asked_by == ["host.faster", "host.slower", "host.slower"]


async def test_a_failed_request_is_shown() -> None:
    hub = make_hub()
    hub.host("gpu01").fail_with = LinkError("no link to gpu01", "connection reset", "press c")
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("plus")
        await drawn(pilot)
        texts = [notice.message for notice in app._notifications]
    assert texts == ["no link to gpu01: connection reset\npress c"]


async def test_c_connects_without_waiting() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("right_square_bracket", "c")
        await drawn(pilot)
        assert hub.host("gpu02").asked == [("retry_now", None)]


async def test_a_production_host_is_unlocked_only_by_its_name() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("right_square_bracket", "U")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press(*"gpu01", "enter")
        assert isinstance(app.screen, ConfirmScreen)
        assert hub.host("gpu02").asked == []
        await pilot.press(*"gpu02", "enter")
        await drawn(pilot)
        assert hub.host("gpu02").asked == [("unlock", None)]
        assert "read-only" not in screen_text(app).splitlines()[0]


async def test_a_read_only_room_cannot_be_unlocked() -> None:
    hub = make_hub()
    for session in hub.sessions:
        assert isinstance(session, FakeSession)
        session.read_only = True
    app = make_app(hub, read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert "read-only" in screen_text(app).splitlines()[0]
        await pilot.press("U")
        await pilot.pause()
        assert isinstance(app.screen, RoomScreen)
        assert hub.host("gpu01").asked == []


async def test_every_screen_opens_and_escape_leads_back() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for key, kind in (
            ("P", ProcessScreen), ("f", FleetScreen), ("A", AlertScreen), ("J", JournalScreen),
            ("question_mark", HelpScreen),
        ):  # fmt: skip
            await pilot.press(key)
            await drawn(pilot)
            assert isinstance(app.screen, kind), key
            await pilot.press(key)
            await pilot.press("escape")
            while not isinstance(app.screen, RoomScreen):
                await pilot.press("backspace")
            assert len(app.screen_stack) == 1


async def test_the_fleet_opens_a_host() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await drawn(pilot)
        assert "PROD rtx6000 lab" in screen_text(app)
        await pilot.press("j", "enter")
        await drawn(pilot)
        assert isinstance(app.screen, RoomScreen)
        assert app.shell.current == "gpu02"


async def test_the_fleet_is_filtered_by_label_and_by_number() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("f", "slash", *"rtx6000", "enter")
        await drawn(pilot)
        text = screen_text(app)
        assert "0 of 1 hosts live" in text
        assert "refused" not in "".join(text.splitlines()[1:])
        await pilot.press("escape")
        await drawn(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert "1 of 3 hosts live" in screen_text(app)
        await pilot.press("slash", *"power", "greater_than_sign", *"2500")
        await drawn(pilot)
        assert "1 of 1 hosts live" in screen_text(app)
        await pilot.press("escape", "escape")
        await drawn(pilot)
        assert isinstance(app.screen, RoomScreen)


async def test_processes_are_filtered_and_sorted() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("P")
        await drawn(pilot)
        assert "not visible from here" in screen_text(app)
        await pilot.press("slash", *"glm", "enter")
        await drawn(pilot)
        assert "not visible from here" not in screen_text(app)
        await pilot.press("escape", "o", "o", "o")
        await drawn(pilot)
        lines = screen_text(app).splitlines()
        assert lines.index(next(line for line in lines if " 991 " in line)) < lines.index(
            next(line for line in lines if " 4242 " in line and "infer" in line)
        )


async def test_goto_finds_a_host_and_a_command() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("colon", *"gpu03", "enter")
        await drawn(pilot)
        assert app.shell.current == "gpu03"
        await pilot.press("ctrl+p", *"journal", "enter")
        await drawn(pilot)
        assert isinstance(app.screen, JournalScreen)
        await pilot.press("colon", "escape")
        assert isinstance(app.screen, JournalScreen)


async def test_goto_changes_the_theme() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("colon", *"light", "enter")
        await drawn(pilot)
        assert app.shell.look.palette.name == "light"
        assert app.theme == "gpuroom-light"


async def test_a_notice_is_plain_where_the_look_is() -> None:
    app = make_app(make_hub(), ascii_set=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        app.notify("first", markup=False)
        app.notify("60 °C – hot", markup=False)
        text = await shown(pilot, lambda text: "C - hot" in text)
        assert text.isascii()
        assert "C - hot" in text.splitlines()[-1]
        assert "first" not in text


async def test_panes_are_reached_hidden_and_come_back() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("3")
        assert app.screen.focused is not None
        assert app.screen.focused.id == "pane-tuning"
        await pilot.press("H")
        await drawn(pilot)
        assert "tuning" not in screen_text(app)
        assert app.shell.hidden_panes == ("tuning",)
        await pilot.press("3")
        await drawn(pilot)
        assert "1 GPUs" in screen_text(app)
        assert "3▌tuning" in screen_text(app)
        await pilot.press("1")
        await drawn(pilot)
        assert room(app).grid.has_focus
        assert "1▌GPUs" in screen_text(app)
        assert "3 tuning" in screen_text(app)


async def test_what_was_changed_on_screen_is_kept() -> None:
    kept: list[tuple[str, tuple[str, ...], float | None]] = []
    app = make_app(make_hub(), keep=lambda s: kept.append((s.sort, s.hidden_panes, s.interval_s)))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("o", "H", "plus")
    assert kept[-1] == ("power", ("server", "tuning", "bench"), 0.5)


async def test_the_history_window_goes_round() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert "60 s" in screen_text(app)
        await pilot.press("w")
        assert "10 min" in screen_text(app)
        await pilot.press("w", "w")
        assert app.shell.window is Window.MINUTE


async def test_a_state_file_that_cannot_be_written_is_told_and_ends_nothing() -> None:
    def full(_: object) -> None:
        raise RoomError("could not be kept", "No space left on device", "Make room.")

    app = make_app(make_hub())
    app.shell.keep = full
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("o")
        await drawn(pilot)
        assert app.shell.sort == "power"
        told = ["could not be kept: No space left on device\nMake room."]
        assert [notice.message for notice in app._notifications] == told


async def test_alerts_are_noticed_and_listed() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        hub.alert("GPU 3 is lost", Severity.CRITICAL)
        app._tick()
        await pilot.pause()
        first = "gpu01: GPU 3 is lost: what was seen"
        assert [notice.message for notice in app._notifications] == [first]
        hub.alert("Link lost")
        hub.alert("Xid 79", Severity.CRITICAL)
        hub.alert("rebooted")
        app._tick()
        await pilot.pause()
        told = [notice.message for notice in app._notifications]
        assert told == [first, "gpu01: Xid 79: what was seen, and 2 more: A"]
        await pilot.pause()
        app.pump.draw()
        await pilot.pause()
        assert "▲ 4" in screen_text(app).splitlines()[0]
        await pilot.press("A")
        await drawn(pilot)
        assert "GPU 3 is lost" in screen_text(app)
        await pilot.press("escape")
        await drawn(pilot)
        assert "▲" not in screen_text(app).splitlines()[0]


async def test_the_journal_shows_exactly_what_was_sent_and_how_it_ended() -> None:
    hub = make_hub()
    hub.note("first")
    hub.note("set the limit", "Insufficient Permissions")
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("J")
        await drawn(pilot)
        text = screen_text(app)
        assert '{"method": "ping"}' in text
        assert "Insufficient Permissions" in text
        await pilot.press("j")
        assert "Insufficient Permissions" not in screen_text(app)


async def test_what_is_followed_until_nobody_looks_has_not_failed() -> None:
    hub = make_hub()
    hub.note("follow the log", LEFT)
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("J")
        await drawn(pilot)
        text = screen_text(app)
    assert "left" in text
    assert "ended from here" in text
    assert "failed" not in text


async def test_the_journal_shows_by_which_key() -> None:
    hub = make_hub()
    hub.note("change the refresh rate", asked_by="host.faster")
    hub.note("reach it", asked_by="host.retry")
    app = make_app(hub, keymap={"host.faster": "f7,plus"})
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("J")
        await drawn(pilot)
        rows = screen_text(app).splitlines()
    assert any("f7  host.faster" in row.lower() for row in rows), (
        "the user's own key, not the default"
    )
    assert any(" c   host.retry" in row for row in rows)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_gpu_page_has_all_five_curves(size: tuple[int, int]) -> None:
    app = make_app(make_hub())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await drawn(pilot)
        text = screen_text(app)
    for title in ("power 5", "utilisation ", "memory 8", "temperature ", "SM clock "):
        assert title in text, title


async def test_the_gpu_page_says_why_a_value_is_absent() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(160, 100)) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await drawn(pilot)
        text = screen_text(app)
    fan = next(line for line in text.splitlines() if " fan " in line)
    assert "–  not supported by this card" in fan
    assert "347.2 kWh" in text


async def test_a_gpu_page_whose_gpu_goes_away_is_left() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await drawn(pilot)
        hub.host("gpu01").put(gpus=())
        await drawn(pilot)
        await pilot.pause()
        assert isinstance(app.screen, RoomScreen)


async def test_closing_lets_go_of_the_hosts() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("q")
    assert hub.closed


async def test_a_crash_is_kept_for_the_report_and_ends_with_1() -> None:
    app = make_app(make_hub())

    async def crash() -> None:
        async with app.run_test(size=SIZE) as pilot:
            await ready(pilot)
            app.call_later(lambda: 1 / 0)
            await pilot.pause(0.2)

    with pytest.raises(ZeroDivisionError):
        await crash()
    assert isinstance(app.crashed, ZeroDivisionError)
    assert app.return_code == 1


def test_a_hub_that_is_not_there_yet_shows_hosts_as_not_connected() -> None:
    app = make_app(FakeHub([]))
    assert app.shell.names == []
    app = make_app(make_hub())
    assert app.shell.snapshot("gpu01").link.state is LinkState.IDLE
    assert app.shell.host_read_only("gpu02")


@pytest.mark.parametrize("read_only", [True, False])
async def test_what_changes_a_host_is_hidden_while_it_is_read_only(
    read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No action of the room changes a host yet: let one do so for this test.
    changing = replace(actions.ACTIONS[-1], id="gpus.sort", method="sort", changes_host=True)
    monkeypatch.setattr(actions, "ACTIONS", (*actions.ACTIONS, changing))
    hub = make_hub()
    hub.host("gpu01").read_only = read_only
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert ("o sort" in screen_text(app).splitlines()[-1]) is not read_only
        await pilot.press("o")
        assert (room(app).grid.sort == "index") is read_only


async def test_control_sequences_of_a_host_never_reach_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b31m"
    hub = make_hub(gpus=[gpu(0, name=evil), gpu(1, state_detail=evil)])
    process = replace(hub.host("gpu01").snapshot.processes[0], command=evil, model=evil, user=evil)
    hub.host("gpu01").put(processes=(process,), notes=(evil,))
    hub.note(evil, evil)
    hub.alert(evil)
    app = make_app(hub)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for key in ("", "enter", "escape", "P", "escape", "J", "escape", "A", "escape", "f"):
            if key:
                await pilot.press(key)
                await drawn(pilot)
            text = screen_text(app)
            assert not [c for c in text if c != "\n" and not c.isprintable()], key


async def test_enter_on_a_pane_opens_what_it_is_about() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("3", "enter")
        await pilot.pause()
        assert isinstance(app.screen, TuningScreen)
        await pilot.press("escape", "4", "enter")
        await pilot.pause()
        assert isinstance(app.screen, BenchScreen)


async def test_help_says_all_of_each_key_on_a_narrow_terminal() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(80, 60)) as pilot:
        await ready(pilot)
        await pilot.press("question_mark")
        await drawn(pilot)
        words = " ".join(screen_text(app).replace("servers.start", "").split())
    assert "Start the server, after a look at what is in the way and what runs." in words


def test_what_runs_is_broken_at_spaces_and_nothing_is_lost() -> None:
    line = "    sglang serve --model-path zai-org/GLM-5-NVFP4 --served-model-name glm-5-nvfp4"
    pieces = broken(line, 40)
    assert "".join(pieces) == line
    assert all(len(piece) <= 40 for piece in pieces)
    assert [piece.split()[0] for piece in pieces[1:]] == ["zai-org/GLM-5-NVFP4", "glm-5-nvfp4"]
    assert broken("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert broken("", 10) == [""]


async def test_a_frame_that_comes_while_the_room_closes_draws_nothing() -> None:
    hub = make_hub()
    app = make_app(hub)
    stop = hub.stop
    ticked = []

    async def slow_stop() -> None:
        assert not app.screen_stack
        app._tick()
        ticked.append(True)
        await stop()

    hub.stop = slow_stop  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
    assert ticked
