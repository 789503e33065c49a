"""Questions of a link become dialogs, one at a time, and answers find their way back."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from textual.widgets import Input

from backends.link.base import HostKeyQuestion, Prompter, SecretKind, SecretQuestion
from backends.model import Severity
from screens.auth import AuthScreen
from screens.host_key import HostKeyScreen, kind_of
from screens.room import RoomScreen
from tests.ui.fakes import FakeMaker, make_app, make_hub, ready, screen_text
from tui.app import RoomApp

KEY = HostKeyQuestion("gpu01", "10.0.0.1", 22, "ssh-ed25519", "SHA256:abcdef")
PASSWORD = SecretQuestion("gpu01", SecretKind.PASSWORD, "root's password:")


def prompter_of(app: RoomApp) -> Prompter:
    maker = app._make_hub
    assert isinstance(maker, FakeMaker)
    assert maker.prompter is not None
    return maker.prompter


async def wait_for(app: RoomApp, kind: type) -> None:
    for _ in range(500):
        if isinstance(app.screen, kind):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no {kind.__name__}, but {app.screen}")


async def test_a_host_key_is_trusted_by_ctrl_y_alone() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        for key, expected in (("escape", False), ("ctrl+y", True)):
            question = asyncio.create_task(prompter_of(app).accept_host_key(KEY))
            await wait_for(app, HostKeyScreen)
            await pilot.pause()
            assert "SHA256:abcdef" in screen_text(app)
            assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in screen_text(app)
            await pilot.press("enter", "y", "space")
            assert not question.done()
            await pilot.press(key)
            assert await asyncio.wait_for(question, 5) is expected


@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512"])
def test_the_command_that_prints_a_host_s_own_fingerprint_works(
    tmp_path: Path, algorithm: str
) -> None:
    kind = kind_of(algorithm)
    path = tmp_path / f"ssh_host_{kind}_key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    shown = subprocess.run(
        ["ssh-keygen", "-lf", f"{path}.pub"], check=True, capture_output=True, text=True
    )
    assert "SHA256:" in shown.stdout


async def test_no_notice_lies_over_a_question() -> None:
    hub = make_hub()
    app = make_app(hub)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        hub.alert("GPU 3 is lost", Severity.CRITICAL)
        app._tick()
        await pilot.pause()
        assert len(app._notifications) == 1
        question = asyncio.create_task(prompter_of(app).accept_host_key(KEY))
        await wait_for(app, HostKeyScreen)
        hub.alert("Link lost", Severity.CRITICAL)
        app._tick()
        await pilot.pause()
        assert len(app._notifications) == 0
        assert "SHA256:abcdef" in screen_text(app)
        await pilot.press("escape")
        assert await asyncio.wait_for(question, 5) is False
        await wait_for(app, RoomScreen)
        app._tick()
        await pilot.pause()
        told = [notice.message for notice in app._notifications]
        assert told == ["gpu01: Link lost: what was seen"]


async def test_a_secret_is_hidden_handed_on_and_forgotten() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        question = asyncio.create_task(prompter_of(app).secret(PASSWORD))
        await wait_for(app, AuthScreen)
        await pilot.pause()
        box = app.screen.query_one(Input)
        await pilot.press(*"hunter2")
        assert "hunter2" not in screen_text(app)
        await pilot.press("enter")
        assert await asyncio.wait_for(question, 5) == "hunter2"
        assert box.value == ""


async def test_declining_a_secret_gives_none() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        question = asyncio.create_task(prompter_of(app).secret(PASSWORD))
        await wait_for(app, AuthScreen)
        await pilot.press("escape")
        assert await asyncio.wait_for(question, 5) is None


async def test_two_questions_are_asked_one_after_the_other() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        first = asyncio.create_task(prompter_of(app).accept_host_key(KEY))
        second = asyncio.create_task(prompter_of(app).secret(PASSWORD))
        await wait_for(app, HostKeyScreen)
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("ctrl+y")
        await wait_for(app, AuthScreen)
        await pilot.press("x", "enter")
        assert await asyncio.wait_for(first, 5) is True
        assert await asyncio.wait_for(second, 5) == "x"


async def test_a_question_that_nobody_waits_for_any_more_is_taken_away() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        question = asyncio.create_task(prompter_of(app).secret(PASSWORD))
        await wait_for(app, AuthScreen)
        await pilot.pause()
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)
        await wait_for(app, RoomScreen)


async def test_an_open_question_is_no_when_the_room_closes() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        question = asyncio.create_task(prompter_of(app).accept_host_key(KEY))
        await wait_for(app, HostKeyScreen)
    assert await asyncio.wait_for(question, 5) is False
