"""The keys of servers, in the room and on a server's own screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from backends.errors import LinkError
from backends.model import Severity
from backends.servers.configuration import Standing
from backends.servers.host import MemberFacts
from backends.servers.launchers.base import StartPlan, StopResult
from backends.servers.planned import start_lines
from backends.servers.view import Doing, ServerView
from screens.bench import BenchScreen
from screens.confirm import ConfirmScreen
from screens.server import ServerScreen
from screens.server_sections import configuration_rows
from tests.servers_room.still import (
    CONFIGURATION,
    StillBoard,
    crashed_view,
    finding,
    found_view,
    loading_view,
    ready_view,
    room,
    view,
)
from tests.ui.fakes import drawn, make_hub, ready, screen_text, shown
from tui.app import RoomApp
from tui.glyphs import UNICODE

SMALL, LARGE = (80, 24), (200, 60)


async def pressed(pilot: Pilot[int], *keys: str) -> str:
    """Press keys one by one, each drawn; gives the text of the screen."""
    for key in keys:
        await pilot.press(key)
        await settled(pilot)
    return screen_text(pilot.app)


def notes(app: RoomApp) -> str:
    """What is said in passing."""
    return "\n".join(f"{note.title}\n{note.message}" for note in app._notifications)


async def settled(pilot: Pilot[int]) -> None:
    """Let a worker reach its question: it does not end before that is answered."""
    for _ in range(6):
        await pilot.pause()
    app = pilot.app
    assert isinstance(app, RoomApp)
    app.pump.draw(force=True)
    await pilot.pause()


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_s_shows_what_will_run_and_starts_after_a_yes(size: tuple[int, int]) -> None:
    board = StillBoard(view())
    app = room(board)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        text = await pressed(pilot, "s")
        assert isinstance(app.screen, ConfirmScreen)
        assert "Start glm on gpu01" in text
        assert "Nothing is in the way" in text
        assert "NCCL_P2P_DISABLE=1" in text
        assert "sglang.launch_server" in text
        assert "very-secret" not in text
        assert board.still.asked == [("check", "glm")]
        await pressed(pilot, "escape")
        assert board.still.asked == [("check", "glm")]
        await pressed(pilot, "s", "ctrl+y")
        assert board.still.asked[-1] == ("start", "glm")
        assert board.still.asked_by == ["servers.start"]


async def test_what_is_in_the_way_is_shown_with_its_way_out_and_the_name_insists() -> None:
    board = StillBoard(view())
    board.still.findings = [finding()]
    app = room(board)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        text = await pressed(pilot, "s")
        assert "port 30000 is held by pid 77 of bob" in text
        assert "-> stop that process yourself" in text
        assert "Type glm and press Enter" in text
        await pressed(pilot, "ctrl+y")
        assert board.still.asked == [("check", "glm")]
        await pressed(pilot, *"glm", "enter")
        assert board.still.asked[-1] == ("start", "glm")


async def test_a_warning_needs_no_more_than_a_yes() -> None:
    board = StillBoard(view())
    board.still.findings = [finding(Severity.WARNING)]
    app = room(board)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        assert "Ctrl+Y does it" in await pressed(pilot, "s")
        await pressed(pilot, "ctrl+y")
        assert board.still.asked[-1] == ("start", "glm")


async def test_x_names_whom_it_stops_and_stops_after_a_yes() -> None:
    board = StillBoard(ready_view())
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        text = await pressed(pilot, "x")
        assert "SIGTERM to pid 4242" in text
        assert "sglang::scheduler_TP0" in text
        await pressed(pilot, "ctrl+y")
        assert board.still.asked == [("stop", "glm")]
        assert "nothing of it is left" in notes(app)


async def test_what_a_stop_leaves_behind_is_named() -> None:
    board = StillBoard(ready_view())
    board.still.result = StopResult(left=(MemberFacts(4301, 1, "sglang::scheduler_TP1"),))
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        await pressed(pilot, "x", "ctrl+y")
        text = notes(app)
        assert "not wholly stopped" in text
        assert "pid 4301 is still there" in text


async def test_restart_checks_before_it_stops_and_again_before_it_starts() -> None:
    board = StillBoard(ready_view())
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        assert "Restart glm on gpu01" in await pressed(pilot, "R")
        await pressed(pilot, "ctrl+y")
        asked = [what for what, _ in board.still.asked]
        assert asked == ["check again", "hold", "stop", "check", "start", "let go"]


async def test_a_failure_is_shown() -> None:
    board = StillBoard(view())
    board.still.fail_with = LinkError("There is no link to gpu01", "no answer to keepalives")
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        await pressed(pilot, "s", "ctrl+y")
        text = notes(app)
        assert "There is no link to gpu01" in text
        assert "no answer to keepalives" in text


async def test_a_production_host_wants_its_name_and_is_first_unlocked() -> None:
    hub = make_hub(hosts=1)
    session = hub.host("gpu01")
    session.config = type(session.config)(name="gpu01", production=True)
    session.read_only = True
    board = StillBoard(view())
    app = room(board, hub)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        assert "s start" not in screen_text(app)
        await pressed(pilot, "s")
        assert board.still.asked == []
        session.read_only = False
        session.put()
        text = await pressed(pilot, "s")
        assert "gpu01 is a production host" in text
        assert "Type gpu01 and press Enter" in text
        await pressed(pilot, *"glm", "enter", "ctrl+y")
        assert board.still.asked == [("check", "glm")]
        await pressed(pilot, *"gpu01", "enter")
        assert board.still.asked[-1] == ("start", "glm")


async def test_read_only_hides_what_changes_and_leaves_the_log() -> None:
    board = StillBoard(ready_view())
    app = room(board, read_only=True)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        app.shell.session().read_only = True  # type: ignore[union-attr, misc]
        text = await pressed(pilot, "2")
        assert "x stop" not in text
        assert "R restart" not in text
        assert "l log" in text
        text = await pressed(pilot, "enter", "x", "R")
        assert isinstance(app.screen, ServerScreen)
        assert "x stop" not in text
        assert board.still.asked == []


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_key_that_would_change_a_read_only_host_says_why_it_does_nothing(
    size: tuple[int, int],
) -> None:
    board = StillBoard(ready_view())
    hub = make_hub(hosts=1)
    session = hub.host("gpu01")
    session.read_only = True
    app = room(board, hub)
    async with app.run_test(size=size, notifications=True) as pilot:
        await ready(pilot)
        said = "no stop: gpu01 is read-only: U unlocks it"
        await pressed(pilot, "2", "x")
        lines = (await shown(pilot, lambda text: said in text)).splitlines()
        assert said in lines[-1]  # over the keys: what is read stays
        await pressed(pilot, "enter", "R")
        await shown(pilot, lambda text: "no restart: gpu01 is read-only" in text)
        assert isinstance(app.screen, ServerScreen)
        await pressed(pilot, "x")
        text = await shown(pilot, lambda text: said in text)
        assert "no restart" not in text
        session.read_only = False
        session.put()
        await pressed(pilot, "x")
        assert isinstance(app.screen, ConfirmScreen)
        assert board.still.asked == []


async def test_in_a_room_that_was_opened_read_only_no_key_unlocks() -> None:
    board = StillBoard(ready_view())
    hub = make_hub(hosts=1)
    hub.host("gpu01").read_only = True
    app = room(board, hub, read_only=True)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        await pressed(pilot, "2", "x")
        assert "no stop: the room was opened with --read-only" in notes(app)
        # A key of another screen, which does nothing here, is not spoken of.
        app.clear_notifications()
        await pressed(pilot, "u")
        assert notes(app) == ""


async def test_a_host_without_gpus_gives_their_rows_to_its_servers_and_takes_them_back() -> None:
    board = StillBoard(ready_view())
    hub = make_hub(hosts=1)
    app = room(board, hub)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        session, pane = hub.host("gpu01"), app.screen.query_one("#pane-server")
        gpus = session.snapshot.gpus
        await shown(pilot, lambda text: "ready glm" in text)
        assert pane.size.height == 1
        session.put(gpus=())
        await pressed(pilot, "2")
        await shown(pilot, lambda text: "2▌servers ──" in text)
        assert pane.size.height > 8
        assert app.screen.query_one("#pane-tuning").size.height == 1
        session.put(gpus=gpus)
        await shown(pilot, lambda text: "ready glm" in text and "560/600W" in text)
        assert pane.size.height == 1


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_server_is_not_called_stopped_before_its_host_was_asked(
    size: tuple[int, int],
) -> None:
    board = StillBoard(view(listed=False))
    app = room(board)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pressed(pilot, "2", "x")
        text = await shown(pilot, lambda text: "unknown" in text)
        assert "stopped" not in text
        assert "the host has not said yet what runs there" in text
        assert "whether glm runs is not known yet" in notes(app)
        board.put(view())
        app.shell.touch()
        text = await shown(pilot, lambda text: "stopped" in text)
        assert "unknown" not in text


async def test_the_newest_line_of_a_log_never_falls_off_the_end_of_the_pane() -> None:
    lines = tuple(f"loaded layer {number}" for number in range(40))
    board = StillBoard(ready_view(last_lines=lines))
    hub = make_hub(hosts=1)
    app = room(board, hub)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        hub.host("gpu01").put(gpus=())
        await pressed(pilot, "2")
        text = await shown(pilot, lambda text: "log, newest lines" in text)
        below = text.partition("log, newest lines")[2]
        assert "loaded layer 39" in below
        assert "loaded layer 0 " not in below


async def test_with_several_servers_one_is_chosen_first() -> None:
    board = StillBoard(ready_view(), view("qwen"), found_view())
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        await pressed(pilot, "s")
        assert "choose a server, then press s" in notes(app)
        assert app.screen.focused is not None
        assert app.screen.focused.id == "pane-server"
        await pressed(pilot, "j", "s", "ctrl+y")
        assert board.still.asked == [("check", "qwen"), ("start", "qwen")]
        text = await pressed(pilot, "j", "x")
        assert "gpuroom did not start it" in text


async def test_with_several_servers_keys_are_offered_as_soon_as_one_can_take_them() -> None:
    board = StillBoard(view(), view("qwen"))
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        assert "x stop" not in screen_text(app).splitlines()[-1]
        board.put(ready_view(), view("qwen"))
        await settled(pilot)
        footer = screen_text(app).splitlines()[-1]
        assert "x stop" in footer
        assert "s start" in footer


async def test_only_keys_that_make_sense_are_offered() -> None:
    board = StillBoard(view())
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        footer = (await pressed(pilot, "2")).splitlines()[-1]
        assert "s start" in footer
        assert "x stop" not in footer
        board.put(loading_view())
        await settled(pilot)
        footer = screen_text(app).splitlines()[-1]
        assert "s start" not in footer
        assert "x stop" in footer
        assert "l log" in footer


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_pane_says_how_far_and_how_long(size: tuple[int, int]) -> None:
    board = StillBoard(loading_view())
    app = room(board)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        text = screen_text(app)
        for expected in ("loading", "37%", "about 5m 12s left"):
            assert expected in text, expected
        board.put(ready_view())
        await drawn(pilot)
        text = screen_text(app)
        for expected in ("ready", "5h 12m", "1 slow"):
            assert expected in text, expected
        board.put(crashed_view())
        await drawn(pilot)
        assert "out of GPU memory while capturing graphs" in screen_text(app)


async def test_the_pane_says_why_nothing_can_be_listed() -> None:
    app = room(StillBoard(trouble="looking for servers needs python3 on gpu01"))
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        assert "needs python3 on gpu01" in screen_text(app)


async def opened(pilot: Pilot[int]) -> str:
    return await pressed(pilot, "2", "enter")


async def test_the_screen_has_witnesses_phases_warnings_and_what_nobody_asked_for() -> None:
    board = StillBoard(ready_view())
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        text = await opened(pilot)
        assert isinstance(app.screen, ServerScreen)
        for expected in (
            "all witnesses agree", "/health 200", "30000: ours pid 4242", "ready (line 812)",
            "40s ago", "loading weights", "2m 01s", "several times slower", "(8 times)",
            "started by anna from jumpbox", "sglang::scheduler_TP7", "mem_fraction_static",
            "0.9 → 0.85", "nobody asked for it", "ep_size", "earlier starts", "cuda-oom", "7m 16s",
        ):  # fmt: skip
            assert expected in text, expected
        assert "tp_size" not in text
        text = await pressed(pilot, "e")
        assert "asked, and taken" in text
        assert "tp_size" in text
        text = await pressed(pilot, "escape")
        assert isinstance(app.screen, ServerScreen)
        await pressed(pilot, "escape")
        assert not isinstance(app.screen, ServerScreen)


@pytest.mark.parametrize(
    ("shown", "key", "says"),
    [
        (ready_view(), "s", "glm runs already: x stops it, R restarts it"),
        (found_view(), "s", "has no profile to start it by: a makes one of what runs"),
        (found_view(), "R", "has no profile to start it by"),
        (view(), "x", "glm does not run"),
        (view(), "R", "glm does not run: s starts it"),
        (view(), "l", "no log of glm is known"),
        (ready_view(doing=Doing.STOPPING), "s", "glm: wait for what is done"),
    ],
)
async def test_a_key_that_can_do_nothing_now_says_why(
    shown: ServerView, key: str, says: str
) -> None:
    board = StillBoard(shown)
    app = room(board)
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        await pressed(pilot, "2", key)
        assert says in notes(app)
        assert board.still.asked == []


async def test_a_key_that_does_something_says_nothing_else() -> None:
    app = room(StillBoard(view()))
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        await pressed(pilot, "2", "s")
        assert isinstance(app.screen, ConfirmScreen)
        assert notes(app) == ""


async def test_what_a_dead_server_runs_with_is_not_said() -> None:
    same = tuple(row for row in CONFIGURATION if row.standing is Standing.SAME)
    for seen, says in (
        (ready_view(configuration=same), "runs with all that was asked"),
        (crashed_view(configuration=same), "had taken all that was asked, as far as it said"),
        (ready_view(configuration=CONFIGURATION[2:3]), "it has not said what it runs with"),
    ):
        rows = configuration_rows(seen, 80, UNICODE)
        text = "\n".join("".join(part for part, _ in row.spans) for row in rows)
        assert says in text


async def test_a_cause_of_two_lines_stands_once_in_the_pane() -> None:
    long = "out of GPU memory after the weights: for workspaces, graphs or the KV cache"
    seen = crashed_view()
    assert seen.verdict is not None
    board = StillBoard(replace(seen, verdict=replace(seen.verdict, title=long)))
    app = room(board)
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        text = await pressed(pilot, "2")
    assert text.count("or the KV cache") == 1
    assert "line 1204" in text


async def test_a_crash_shows_cause_evidence_and_what_to_try_in_80x24() -> None:
    app = room(StillBoard(crashed_view()))
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        text = await opened(pilot)
        for expected in (
            "crashed", "out of GPU memory while capturing graphs", "line 1204",
            "torch.OutOfMemoryError", "try: lower --mem-fraction-static", "ended by signal 9",
        ):  # fmt: skip
            assert expected in text, expected
        assert "more lines below" in text
        text = await pressed(pilot, "G")
        assert "earlier starts" in text
        assert "more lines below" not in text
        assert "what failed" in await pressed(pilot, "g")


async def test_keys_of_the_screen_start_measure_and_make_a_profile() -> None:
    board = StillBoard(found_view())
    app = room(board)
    copied: list[str] = []
    app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
    async with app.run_test(size=LARGE) as pilot:
        await ready(pilot)
        text = await opened(pilot)
        assert "found" in text
        text = await pressed(pilot, "a")
        assert "[[servers]]" in text
        await pressed(pilot, "ctrl+y")
        assert 'name = "Qwen3-8B"' in copied[0]
        await pressed(pilot, "b")
        assert isinstance(app.screen, BenchScreen)
        assert app.screen.server == "8080"


async def test_another_host_shows_its_own_server_or_says_that_it_has_none() -> None:
    app = room(StillBoard(ready_view()), make_hub(hosts=2))
    async with app.run_test(size=SMALL) as pilot:
        await ready(pilot)
        await opened(pilot)
        assert "no such server" in await pressed(pilot, "right_square_bracket")


def test_what_will_run_is_shown_whole_without_secrets_and_obeyed_by_no_terminal() -> None:
    argv = (
        "docker",
        "run",
        "-e",
        "HF_TOKEN=s3cret",
        "--env=API_KEY=s3cret",
        "-e",
        "MODE=a\nb\x1b[2J",
    )
    lines = start_lines(StartPlan((argv,), {"X": "1\x07"}, "by docker"))
    assert lines == [
        "X=1\\x07",
        "docker run -e 'HF_TOKEN=***' '--env=API_KEY=***' -e 'MODE=a\\nb\\x1b[2J'",
        "by docker",
    ]
