"""Passwords, codes and what becomes of them: a server in this process asks, a script answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from backends.config import SshConfig
from backends.errors import AuthenticationFailed
from backends.link.base import NobodyToAsk, Prompter, SecretKind
from backends.link.ssh import SshTransport
from backends.link.target import parse_ssh_target
from tests.link.prompters import ScriptedPrompter

PASSWORD = "open sesame"
CODE = "123456"


class AskingServer(asyncssh.SSHServer):
    """Wants a password, or a password and a code in one challenge."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._conn: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn

    def begin_auth(self, username: str) -> bool:
        assert self._conn is not None
        self._conn.send_auth_banner("Mind \x1b[31mthe\x1b[0m gap\n")
        return True

    def password_auth_supported(self) -> bool:
        return self._kind == "password"

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD

    def kbdint_auth_supported(self) -> bool:
        return self._kind == "challenge"

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "Two steps", "", "", [("Password: ", False), ("Code: ", True)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> bool:
        return list(responses) == [PASSWORD, CODE]


@asynccontextmanager
async def asking(
    kind: str,
    folder: Path,
    prompter: Prompter,
    connect_timeout_s: float = 10.0,
    grace_s: float = 120.0,
) -> AsyncIterator[SshTransport]:
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: AskingServer(kind),
        server_host_keys=[host_key],
        login_timeout=grace_s,
    )
    port = server.get_port()
    public = host_key.export_public_key().decode()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "config").write_text(
        f"Host *\n UserKnownHostsFile {folder / 'known'}\n IdentityFile {folder / 'none'}\n"
    )
    settings = SshConfig(config_file=str(folder / "config"), connect_timeout_s=connect_timeout_s)
    transport = SshTransport("gpu01", parse_ssh_target(f"me@127.0.0.1:{port}"), settings, prompter)
    try:
        await transport.connect()
        yield transport
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()


async def test_a_password_is_asked_for_again_when_wrong(tmp_path: Path) -> None:
    prompter = ScriptedPrompter("wrong", PASSWORD)
    async with asking("password", tmp_path, prompter):
        pass
    assert prompter.kinds == [SecretKind.PASSWORD] * 2
    assert [question.attempt for question in prompter.secrets] == [1, 2]
    assert not any(question.echo for question in prompter.secrets)


async def test_a_challenge_with_two_questions(tmp_path: Path) -> None:
    prompter = ScriptedPrompter(PASSWORD, "000000", PASSWORD, CODE)
    async with asking("challenge", tmp_path, prompter):
        pass
    assert prompter.kinds == [SecretKind.CHALLENGE] * 4
    assert [question.prompt for question in prompter.secrets[:2]] == [
        "Two steps Password",
        "Two steps Code",
    ]
    assert [question.echo for question in prompter.secrets[:2]] == [False, True]
    assert [question.attempt for question in prompter.secrets] == [1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["password", "challenge"])
async def test_three_wrong_answers_are_enough(tmp_path: Path, kind: str) -> None:
    prompter = ScriptedPrompter(*["wrong"] * 20)
    with pytest.raises(AuthenticationFailed):
        async with asking(kind, tmp_path, prompter):
            pass
    assert prompter.secrets[-1].attempt == 3


@pytest.mark.parametrize("kind", ["password", "challenge"])
async def test_nobody_to_ask(tmp_path: Path, kind: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        async with asking(kind, tmp_path, NobodyToAsk()):
            pass
    assert "Mind the gap" in caught.value.detail
    assert "terminal" in caught.value.hint


async def test_a_person_may_take_longer_than_the_login_may(tmp_path: Path) -> None:
    prompter = ScriptedPrompter(PASSWORD, think_s=1.0)
    async with asking("password", tmp_path, prompter, connect_timeout_s=0.6):
        pass


async def test_a_host_that_waits_no_longer_takes_the_question_back(tmp_path: Path) -> None:
    prompter = ScriptedPrompter(PASSWORD, think_s=3600.0)
    async with asyncio.timeout(30):
        with pytest.raises(AuthenticationFailed, match="during the login"):
            async with asking("password", tmp_path, prompter, grace_s=0.5):
                pass
    assert prompter.secrets == [], "the question was taken back, not answered"
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not any("secret" in repr(task.get_coro()) for task in others)


def text_below(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.rglob("*") if file.is_file())


async def test_no_answer_is_logged_or_kept(
    tmp_path: Path, own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncssh.set_debug_level(3)
    try:
        prompter = ScriptedPrompter("wrong", PASSWORD)
        async with asking("password", tmp_path, prompter) as transport:
            held = repr(vars(transport)) + repr(vars(transport._route.client))  # type: ignore[union-attr]
    finally:
        asyncssh.set_debug_level(1)
    assert PASSWORD not in held
    assert PASSWORD not in caplog.text
    assert PASSWORD not in text_below(own_home)
