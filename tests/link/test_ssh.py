from __future__ import annotations

import asyncio
import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backends import paths
from backends.config import SshConfig
from backends.errors import (
    AuthenticationFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LinkError,
)
from backends.link import identities
from backends.link.base import Channel, NobodyToAsk, Prompter, SecretKind
from backends.link.ssh import SshTransport
from backends.link.target import SshTarget, parse_ssh_target
from tests.link.prompters import ScriptedPrompter
from tests.sshd import SshLab, free_port, make_key

pytestmark = pytest.mark.real

ECHO = [sys.executable, "-u", "-c", "import sys; print('ready'); print(sys.stdin.read())"]


@asynccontextmanager
async def linked(
    target: str | SshTarget, settings: SshConfig, prompter: Prompter | None = None
) -> AsyncIterator[SshTransport]:
    if isinstance(target, str):
        target = parse_ssh_target(target)
    transport = SshTransport("gpu01", target, settings, prompter or NobodyToAsk())
    try:
        await transport.connect()
        yield transport
    finally:
        await transport.close()


async def output_of(transport: SshTransport, argv: list[str], sent: bytes = b"") -> bytes:
    """All that a program prints, from the word `ready` on."""
    channel = await transport.open(argv)
    if sent:
        await channel.write(sent)
    collected = bytearray()
    closing: asyncio.Task[None] | None = None
    while chunk := await channel.read():
        collected += chunk
        if b"ready" in collected and closing is None:
            closing = asyncio.create_task(channel.close())
    if closing:
        await closing
    assert await channel.wait(5) == 0
    return bytes(collected[collected.index(b"ready") :])


async def read_to_end(channel: Channel) -> bytes:
    collected = bytearray()
    while chunk := await channel.read():
        collected += chunk
    return bytes(collected)


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
@pytest.mark.parametrize("compression", [True, False])
async def test_every_login_shell_with_banner_and_noise(
    ssh_lab: SshLab, shell: str, compression: bool
) -> None:
    ssh_lab.server(shell=shell, noise="welcome to the machine", banner="AUTHORISED USE ONLY\n")
    async with linked("gpu01", ssh_lab.settings(compression=compression)) as transport:
        assert await output_of(transport, ECHO, b"a'b \\ $c") == b"ready\na'b \\ $c\n"


async def test_status_and_standard_error_of_a_program(ssh_lab: SshLab) -> None:
    ssh_lab.server()
    code = "import sys; print('\\x1b[2Jbad', file=sys.stderr); sys.exit(7)"
    async with linked("gpu01", ssh_lab.settings()) as transport:
        channel = await transport.open([sys.executable, "-c", code])
        assert await channel.read() == b""
        assert await channel.wait(5) == 7
        assert await channel.stderr_tail() == "bad"


async def test_a_program_that_is_missing_ends_with_127(ssh_lab: SshLab) -> None:
    ssh_lab.server()
    async with linked("gpu01", ssh_lab.settings()) as transport:
        channel = await transport.open(["no-such-program-here"])
        assert await channel.read() == b""
        assert await channel.wait(5) == 127


async def test_large_output_and_input_arrive_whole(ssh_lab: SshLab) -> None:
    ssh_lab.server()
    size = 8_000_000
    code = "import sys; d=sys.stdin.buffer.read(%d); print(len(d)); sys.stdout.write('x'*%d)"
    async with linked("gpu01", ssh_lab.settings()) as transport:
        channel = await transport.open([sys.executable, "-c", code % (size, size)])
        await channel.write(b"y" * size)
        # The reader is slow to begin with: the far side has to wait, and nothing is lost.
        await asyncio.sleep(0.3)
        assert len(await read_to_end(channel)) == len(f"{size}\n") + size


async def test_one_session_at_a_time_is_enough(ssh_lab: SshLab) -> None:
    ssh_lab.server(options=["MaxSessions 1"])
    async with linked("gpu01", ssh_lab.settings()) as transport:
        for _ in range(3):
            assert await output_of(transport, ECHO, b"x") == b"ready\nx\n"


async def test_a_second_session_where_one_is_allowed_says_so(ssh_lab: SshLab) -> None:
    ssh_lab.server(options=["MaxSessions 1"])
    async with linked("gpu01", ssh_lab.settings()) as transport:
        channel = await transport.open(ECHO)
        with pytest.raises(LinkError, match="opens no session"):
            await transport.open(ECHO)
        await channel.close()


class TestHostKeys:
    async def test_unknown_and_nobody_to_ask(self, ssh_lab: SshLab) -> None:
        ssh_lab.server(known=False)
        with pytest.raises(HostKeyUnknown) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert "SHA256:" in caught.value.detail
        assert not paths.known_hosts_file().exists()

    async def test_accepted_once_then_known(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(known=False)
        yes = ScriptedPrompter(accept_keys=True)
        async with linked("gpu01", ssh_lab.settings(), yes) as transport:
            assert await output_of(transport, ECHO) == b"ready\n\n"
        (question,) = yes.host_keys
        assert (question.address, question.port) == ("127.0.0.1", server.port)
        assert question.fingerprint.startswith("SHA256:")
        assert paths.known_hosts_file().read_text() == server.known_hosts_line
        assert paths.known_hosts_file().stat().st_mode & 0o077 == 0
        assert ssh_lab.known_hosts.read_text() == "", "the user's own file is never written"
        async with linked("gpu01", ssh_lab.settings()):
            pass

    async def test_the_time_to_look_at_a_key_is_not_limited(self, ssh_lab: SshLab) -> None:
        ssh_lab.server(known=False)
        slow = ScriptedPrompter(accept_keys=True, think_s=1.5)
        async with linked("gpu01", ssh_lab.settings(connect_timeout_s=1.0), slow):
            pass

    async def test_changed_is_refused_and_nobody_is_asked(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server()
        server.cut()
        server.new_host_key()
        server.start()
        yes = ScriptedPrompter(accept_keys=True)
        with pytest.raises(HostKeyChanged) as caught:
            async with linked("gpu01", ssh_lab.settings(), yes):
                pass
        assert yes.host_keys == []
        assert f"{ssh_lab.known_hosts}:1" in caught.value.detail
        assert caught.value.detail.count("SHA256:") == 2
        assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f" in caught.value.hint

    async def test_a_key_of_another_kind_is_a_changed_key(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server()
        server.cut()
        server.new_host_key("ecdsa")
        server.start()
        with pytest.raises(HostKeyChanged):
            async with linked("gpu01", ssh_lab.settings(), ScriptedPrompter(accept_keys=True)):
                pass

    async def test_accepted_here_and_then_changed(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(known=False)
        yes = ScriptedPrompter(accept_keys=True)
        async with linked("gpu01", ssh_lab.settings(), yes):
            pass
        server.cut()
        server.new_host_key()
        server.start()
        with pytest.raises(HostKeyChanged) as caught:
            async with linked("gpu01", ssh_lab.settings(), yes):
                pass
        assert str(paths.known_hosts_file()) in caught.value.hint

    async def test_a_revoked_key_is_refused(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server()
        ssh_lab.known_hosts.write_text("@revoked * " + server.known_hosts_line.split(" ", 1)[1])
        with pytest.raises(HostKeyChanged, match="revoked"):
            async with linked("gpu01", ssh_lab.settings(), ScriptedPrompter(accept_keys=True)):
                pass


class TestJumpHosts:
    def way(self, lab: SshLab, *, jump_known: bool = True) -> None:
        lab.server("jump", known=jump_known)
        inner = lab.server("inner", alias=False)
        lab.add_alias("inner", inner, "ProxyJump jump")

    async def test_through_a_jump_host(self, ssh_lab: SshLab) -> None:
        self.way(ssh_lab)
        async with linked("inner", ssh_lab.settings()) as transport:
            assert await output_of(transport, ECHO, b"deep") == b"ready\ndeep\n"

    async def test_the_key_of_the_jump_host_is_checked_too(self, ssh_lab: SshLab) -> None:
        self.way(ssh_lab, jump_known=False)
        with pytest.raises(HostKeyUnknown, match="jump host jump"):
            async with linked("inner", ssh_lab.settings()):
                pass
        yes = ScriptedPrompter(accept_keys=True)
        async with linked("inner", ssh_lab.settings(), yes):
            assert [q.host for q in yes.host_keys] == ["jump host jump of gpu01"]

    async def test_a_circle_is_named(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server("a", alias=False)
        ssh_lab.add_alias("a", server, "ProxyJump b")
        ssh_lab.add_alias("b", server, "ProxyJump a")
        with pytest.raises(LinkError, match="circle"):
            async with linked("a", ssh_lab.settings()):
                pass

    async def test_a_dead_jump_host_is_named(self, ssh_lab: SshLab) -> None:
        ssh_lab.config_file.write_text(
            f"Host inner\n ProxyJump nobody@127.0.0.1:{free_port()}\n HostName 10.1.1.1\n"
        )
        with pytest.raises(LinkError, match=r"jump host nobody@127\.0\.0\.1.*refuses"):
            async with linked("inner", ssh_lab.settings()):
                pass

    async def test_a_proxy_command_with_shell_syntax(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(alias=False)
        code = (
            "import socket,sys,threading,os;s=socket.create_connection((sys.argv[1],sys.argv[2]));"
            "up=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,9999),b'')];"
            "threading.Thread(target=up,daemon=True).start();"
            "[os.write(1,d) for d in iter(lambda:s.recv(9999),b'')]"
        )
        program = ssh_lab.folder / "carry.py"
        program.write_text(code)
        ssh_lab.add_alias(
            "gpu01", server, f"ProxyCommand {sys.executable} {program} %h %p 2>/dev/null"
        )
        async with linked("gpu01", ssh_lab.settings()) as transport:
            assert await output_of(transport, ECHO, b"x") == b"ready\nx\n"

    async def test_a_proxy_command_that_fails_is_quoted(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(alias=False)
        ssh_lab.add_alias("gpu01", server, "ProxyCommand sh -c 'echo no route today >&2; exit 1'")
        with pytest.raises(LinkError) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert "no route today" in str(caught.value)


class TestKeys:
    async def test_passphrase_is_asked_for_and_asked_again(self, ssh_lab: SshLab) -> None:
        make_key(ssh_lab.key, passphrase="correct horse")
        ssh_lab.server()
        prompter = ScriptedPrompter("wrong", "correct horse")
        async with linked("gpu01", ssh_lab.settings(), prompter) as transport:
            assert await output_of(transport, ECHO) == b"ready\n\n"
        assert prompter.kinds == [SecretKind.PASSPHRASE, SecretKind.PASSPHRASE]
        assert [question.attempt for question in prompter.secrets] == [1, 2]
        assert str(ssh_lab.key) in prompter.secrets[0].prompt

    async def test_three_wrong_passphrases_are_enough(self, ssh_lab: SshLab) -> None:
        make_key(ssh_lab.key, passphrase="correct horse")
        ssh_lab.server()
        prompter = ScriptedPrompter("a", "b", "c", "correct horse")
        with pytest.raises(AuthenticationFailed) as caught:
            async with linked("gpu01", ssh_lab.settings(), prompter):
                pass
        assert len(prompter.secrets) == 3
        assert "wrong 3 times" in caught.value.detail
        assert "correct horse" not in repr(caught.value) + str(caught.value.__dict__)

    async def test_nobody_is_asked_for_a_key_that_would_not_help(self, ssh_lab: SshLab) -> None:
        other = make_key(ssh_lab.folder / "other", passphrase="x")
        server = ssh_lab.server(alias=False)
        ssh_lab.config_file.write_text(f"Host gpu01\n IdentityFile {other}\n")
        ssh_lab.add_alias("gpu01", server)
        prompter = ScriptedPrompter("x")
        async with linked("gpu01", ssh_lab.settings(), prompter):
            pass
        assert prompter.secrets == []

    async def test_no_key_fits(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(alias=False)
        missing = ssh_lab.folder / "missing"
        ssh_lab.config_file.write_text(
            f"Host gpu01\n HostName 127.0.0.1\n Port {server.port}\n User root\n"
            f" IdentityFile {missing}\n UserKnownHostsFile {ssh_lab.known_hosts}\n"
        )
        with pytest.raises(AuthenticationFailed) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert f"{missing}: no such key" in caught.value.detail

    async def test_an_old_encrypted_key_without_its_public_half(self, ssh_lab: SshLab) -> None:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "horse",
             "-f", ssh_lab.folder / "old"],
            check=True,
        )  # fmt: skip
        ssh_lab.key = ssh_lab.folder / "old"
        server = ssh_lab.server()
        ssh_lab.key.with_suffix(".pub").unlink()
        prompter = ScriptedPrompter("wrong", "horse")
        async with linked("gpu01", ssh_lab.settings(), prompter):
            assert server.port
        assert prompter.kinds == [SecretKind.PASSPHRASE, SecretKind.PASSPHRASE]

    async def test_too_many_keys(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(alias=False, options=["MaxAuthTries 2"])
        lines = [f"IdentityFile {make_key(ssh_lab.folder / f'k{n}')}" for n in range(4)]
        ssh_lab.config_file.write_text("Host gpu01\n " + "\n ".join(lines) + "\n")
        ssh_lab.add_alias("gpu01", server)
        with pytest.raises(AuthenticationFailed) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert "IdentitiesOnly" in caught.value.hint

    async def test_an_agent_that_hangs_is_done_without(
        self, ssh_lab: SshLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ssh_lab.server()
        path = ssh_lab.folder / "hung"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(5)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            monkeypatch.setattr(identities, "AGENT_S", 0.2)
            async with linked("gpu01", ssh_lab.settings()):
                pass

    async def test_a_user_certificate(self, ssh_lab: SshLab) -> None:
        authority = make_key(ssh_lab.folder / "ca")
        user = ssh_lab.server("plain").user
        key = make_key(ssh_lab.folder / "certified")
        subprocess.run(
            ["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", user, f"{key}.pub"], check=True
        )
        server = ssh_lab.server(alias=False, options=[f"TrustedUserCAKeys {authority}.pub"])
        ssh_lab.config_file.write_text(f"Host gpu01\n IdentityFile {key}\n")
        ssh_lab.key = key
        ssh_lab.add_alias("gpu01", server)
        async with linked("gpu01", ssh_lab.settings()):
            pass

    async def test_a_host_certificate(self, ssh_lab: SshLab) -> None:
        authority = make_key(ssh_lab.folder / "ca")
        server = ssh_lab.server(known=False)
        subprocess.run(
            ["ssh-keygen", "-q", "-s", authority, "-I", "h", "-h", "-n", "127.0.0.1",
             f"{server.host_key}.pub"],
            check=True,
        )  # fmt: skip
        with (server.folder / "sshd_config").open("a") as file:
            file.write(f"HostCertificate {server.host_key}-cert.pub\n")
        server.cut()
        server.start()
        yes = ScriptedPrompter(accept_keys=True)
        async with linked("gpu01", ssh_lab.settings(), yes):
            assert len(yes.host_keys) == 1, "without an authority the plain key is asked about"
        paths.known_hosts_file().unlink()
        line = " ".join(authority.with_suffix(".pub").read_text().split()[:2])
        ssh_lab.known_hosts.write_text(f"@cert-authority *,[*]:* {line}\n")
        async with linked("gpu01", ssh_lab.settings()):
            pass

    async def test_the_agent(self, ssh_lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> None:
        socket_path = ssh_lab.folder / "agent"
        agent = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 10
            while not socket_path.exists():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            subprocess.run(
                ["ssh-add", "-q", str(ssh_lab.key)],
                check=True,
                env={**os.environ, "SSH_AUTH_SOCK": str(socket_path)},
            )
            ssh_lab.key.unlink()
            ssh_lab.server()
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
            async with linked("gpu01", ssh_lab.settings()):
                pass
            authority = make_key(ssh_lab.folder / "ca")
            public = ssh_lab.key.with_suffix(".pub")
            by_name = ["-I", "me", "-n", getpass.getuser()]
            subprocess.run(["ssh-keygen", "-q", "-s", authority, *by_name, public], check=True)
            server = ssh_lab.server(
                "certified", alias=False, options=[f"TrustedUserCAKeys {authority}.pub"]
            )
            (server.folder / "authorized_keys").write_text("")
            ssh_lab.add_alias("certified", server, f"CertificateFile {ssh_lab.key}-cert.pub")
            async with linked("certified", ssh_lab.settings()):
                pass
        finally:
            agent.terminate()
            agent.wait(10)


class TestConfiguration:
    async def test_a_broken_line_is_named(self, ssh_lab: SshLab) -> None:
        ssh_lab.config_file.write_text("Host *\n  Port many\n")
        with pytest.raises(LinkError) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert f"{ssh_lab.config_file}:2" in caught.value.detail

    async def test_a_condition_that_is_not_known_is_named(self, ssh_lab: SshLab) -> None:
        ssh_lab.config_file.write_text("Match version 9.9\n  Port 22\n")
        with pytest.raises(LinkError) as caught:
            async with linked("gpu01", ssh_lab.settings()):
                pass
        assert f"{ssh_lab.config_file}:1" in caught.value.detail
        assert "own" in caught.value.hint

    async def test_a_configuration_file_that_is_missing(self, tmp_path: Path) -> None:
        missing = tmp_path / "none"
        with pytest.raises(LinkError) as caught:
            async with linked("gpu01", SshConfig(config_file=str(missing))):
                pass
        assert str(missing) in caught.value.detail

    async def test_a_condition_that_hangs(self, ssh_lab: SshLab) -> None:
        ssh_lab.config_file.write_text('Match exec "sleep 3"\n Port 1\n')
        with pytest.raises(LinkError) as caught:
            async with linked("gpu01", ssh_lab.settings(connect_timeout_s=0.3)):
                pass
        assert "Match exec" in caught.value.hint

    async def test_a_final_match(self, ssh_lab: SshLab) -> None:
        ssh_lab.server("jump")
        inner = ssh_lab.server("inner", alias=False)
        ssh_lab.add_alias("inner", inner)
        with ssh_lab.config_file.open("a") as file:
            file.write("Match final originalhost inner\n ProxyJump jump\n")
        async with linked("inner", ssh_lab.settings()) as transport:
            assert len(transport._route.through) == 1  # type: ignore[union-attr]

    async def test_include(self, ssh_lab: SshLab) -> None:
        ssh_lab.server()
        outer = ssh_lab.folder / "outer"
        outer.write_text(f"Include {ssh_lab.config_file}\n")
        async with linked("gpu01", SshConfig(config_file=str(outer))):
            pass

    async def test_user_and_port_of_the_target_win(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server(alias=False)
        ssh_lab.config_file.write_text(
            f"Host *\n Port 1\n User nobody\n IdentityFile {ssh_lab.key}\n"
            f" UserKnownHostsFile {ssh_lab.known_hosts}\n"
        )
        async with linked(f"{server.user}@127.0.0.1:{server.port}", ssh_lab.settings()):
            pass


class TestFailures:
    async def test_refused(self, ssh_lab: SshLab) -> None:
        with pytest.raises(LinkError, match="refuses connections"):
            async with linked(f"127.0.0.1:{free_port()}", ssh_lab.settings()):
                pass

    async def test_a_name_that_is_not_known(self, ssh_lab: SshLab) -> None:
        with pytest.raises(LinkError, match="is not known"):
            async with linked("no-such-host.invalid", ssh_lab.settings()):
                pass

    async def test_a_server_that_stays_silent(self, ssh_lab: SshLab) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(LinkError, match="stays silent"):
                async with linked(f"127.0.0.1:{port}", ssh_lab.settings(connect_timeout_s=0.5)):
                    pass

    async def test_a_server_that_is_no_ssh_server(self, ssh_lab: SshLab) -> None:
        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 70000)
            writer.close()

        server = await asyncio.start_server(http, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            with pytest.raises(LinkError):
                async with linked(f"127.0.0.1:{port}", ssh_lab.settings(connect_timeout_s=5)):
                    pass
        finally:
            server.close()


class TestLosingTheLink:
    async def test_sshd_killed(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server()
        async with linked("gpu01", ssh_lab.settings()) as transport:
            channel = await transport.open(ECHO)
            assert await channel.read()
            waiting = asyncio.create_task(transport.closed())
            server.cut()
            async with asyncio.timeout(10):
                assert await waiting
                with pytest.raises(LinkError, match="lost"):
                    await read_to_end(channel)
            with pytest.raises(LinkError, match="lost"):
                await channel.write(b"x")
            server.start()
            await transport.connect()
            assert await output_of(transport, ECHO) == b"ready\n\n"

    async def test_a_hung_host_is_noticed_and_close_does_not_wait(self, ssh_lab: SshLab) -> None:
        server = ssh_lab.server()
        settings = ssh_lab.settings(keepalive_s=0.3, keepalive_count=2)
        async with linked("gpu01", settings) as transport:
            channel = await transport.open(ECHO)
            assert await channel.read()
            server.freeze()
            try:
                async with asyncio.timeout(20):
                    assert "keepalive" in await transport.closed()
                async with asyncio.timeout(20):
                    await channel.close()
            finally:
                server.thaw()
