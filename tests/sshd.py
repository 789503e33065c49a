"""A real OpenSSH server on loopback for tests: own port, own keys, any login shell, any noise.

`SshServer` is one sshd. Its host key, the user's key and a configuration file for the client lie in
its folder, so that nothing of the developer's own is read or written. The login shell is played by
a forced command, which runs the shell under test as sshd would, with a home of its own whose start
files may print.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backends.config import SshConfig

START_FILES = {
    "sh": (".profile",),
    "bash": (".bashrc", ".bash_profile", ".profile"),
    "zsh": (".zshenv", ".zshrc"),
    "fish": (".config/fish/config.fish",),
}


def free_port() -> int:
    """A loopback port that nobody uses right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair at `path` and `path.pub`."""
    for old in (path, path.with_name(path.name + ".pub")):
        old.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path), "-C", "test"],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path


class SshServer:
    """One sshd in the foreground.

    Args:
        folder: Where its files go.
        client_key: The key that may log in.
        shell: Login shell to play: sh, bash, zsh or fish.
        noise: Text that the start files print at every login.
        banner: Text before the login.
        options: More lines for sshd_config.
        path: PATH of the programs it runs.
    """

    def __init__(
        self,
        folder: Path,
        client_key: Path,
        *,
        shell: str = "sh",
        noise: str = "",
        banner: str = "",
        options: Sequence[str] = (),
        path: str | None = None,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.user = getpass.getuser()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.home = folder / "home"
        for name in START_FILES[shell]:
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if noise:
                file.write_text(f"echo '{noise}'\necho '{noise}' >&2\n")
        self.host_key = make_key(folder / "host_key")
        (folder / "authorized_keys").write_text(client_key.with_suffix(".pub").read_text())
        shell_path = shutil.which(shell)
        assert shell_path, f"{shell} is not installed"
        wrapper = folder / "login"
        wrapper.write_text(
            "#!/bin/sh\n"
            f"HOME='{self.home}'; export HOME\n"
            f"SHELL='{shell_path}'; export SHELL\n"
            + (f"PATH='{path}'; export PATH\n" if path else "")
            + ("BASH_ENV=$HOME/.bashrc; export BASH_ENV\n" if shell == "bash" else "")
            + (". $HOME/.profile\n" if shell == "sh" and noise else "")
            + f'exec {shell_path} -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        wrapper.chmod(0o755)
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            f"PidFile {folder / 'sshd.pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin yes",
            "LogLevel ERROR",
            # A bash that sshd starts reads the developer's own .bashrc, unless it is not the first.
            "SetEnv SHLVL=1",
            *options,
        ]
        if not any(line.startswith("ForceCommand") for line in options):
            lines.append(f"ForceCommand {wrapper}")
        if banner:
            (folder / "banner").write_text(banner)
            lines.append(f"Banner {folder / 'banner'}")
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")

    @property
    def known_hosts_line(self) -> str:
        """Its entry for a known_hosts file."""
        algorithm, data = self.host_key.with_suffix(".pub").read_text().split()[:2]
        return f"[127.0.0.1]:{self.port} {algorithm} {data}\n"

    @property
    def pid(self) -> int:
        """Of the listening process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        Path("/run/sshd").mkdir(exist_ok=True)
        log = (self.folder / "sshd.log").open("ab")
        self._process = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, (self.folder / "sshd.log").read_text()
                time.sleep(0.02)
            else:
                return
        raise AssertionError("sshd did not start")

    def family(self) -> list[int]:
        """The listening process and all processes below it, parents first."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        found = [self.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def freeze(self) -> None:
        """Stop it and everything below it with SIGSTOP, as a hung host does."""
        for pid in self.family():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        for pid in self.family():
            os.kill(pid, signal.SIGCONT)

    def cut(self) -> None:
        """Kill it and every connection it serves."""
        if self._process is None:
            return
        for pid in self.family():  # parents first: none may take leave politely
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(10)
        self._process = None

    def cut_sessions(self) -> None:
        """Kill the sshd of every connection, and nothing else: what they ran sees its input end."""
        for pid in self.family()[1:]:
            with contextlib.suppress(OSError):
                if (Path(f"/proc/{pid}/exe").readlink()).name.startswith("sshd"):
                    os.kill(pid, signal.SIGKILL)

    def new_host_key(self, kind: str = "ed25519") -> None:
        """Give it another identity; takes effect with the next start."""
        make_key(self.host_key, kind)


class SshLab:
    """Servers of one test, and the client's files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = make_key(folder / "client_key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text("")
        self.config_file = folder / "ssh_config"
        self.config_file.write_text("")
        self._servers: list[SshServer] = []

    def server(
        self, name: str = "gpu01", *, known: bool = True, alias: bool = True, **kwargs: object
    ) -> SshServer:
        """Start an sshd; by default its key is known and `name` is an alias of it."""
        server = SshServer(self.folder / name, self.key, **kwargs)  # type: ignore[arg-type]
        server.start()
        self._servers.append(server)
        if known:
            with self.known_hosts.open("a") as file:
                file.write(server.known_hosts_line)
        if alias:
            self.add_alias(name, server)
        return server

    def add_alias(self, name: str, server: SshServer, *lines: str) -> None:
        """Write a `Host` block for a server."""
        with self.config_file.open("a") as file:
            file.write(
                f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
                f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
                f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
                + "".join(f"  {line}\n" for line in lines)
            )

    def settings(
        self,
        *,
        connect_timeout_s: float = 10.0,
        keepalive_s: float = 3.0,
        keepalive_count: int = 2,
        compression: bool = True,
    ) -> SshConfig:
        """The `[ssh]` table that leads to these servers."""
        return SshConfig(
            config_file=str(self.config_file),
            connect_timeout_s=connect_timeout_s,
            keepalive_s=keepalive_s,
            keepalive_count=keepalive_count,
            compression=compression,
        )

    def close(self) -> None:
        """End every server."""
        for server in self._servers:
            server.cut()


@pytest.fixture
def ssh_lab(tmp_path: Path) -> Iterator[SshLab]:
    """Servers on loopback and a client configuration for them; all gone afterwards."""
    lab = SshLab(tmp_path / "ssh")
    try:
        yield lab
    finally:
        lab.close()
