"""What every way to a host offers: a byte channel to a program there, and nothing else.

A transport starts a program from an argument vector and hands over its three streams. It knows
nothing of agents, GPUs or screens. `ssh`, `local` and `demo` stand behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Channel(Protocol):
    """A running program on the host."""

    async def read(self, size: int = 65536) -> bytes:
        """The next bytes of standard output as they come, at most `size`; empty at the end.

        Raises:
            LinkError: The link was lost.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Send to standard input; waits while the far side does not take it."""
        ...

    async def stderr_tail(self) -> str:
        """The last 8 kB of standard error so far, cleaned."""
        ...

    async def wait(self, timeout_s: float) -> int | None:
        """Wait for the end and give the exit status; None where it is not known."""
        ...

    async def close(self) -> None:
        """End of standard input, then drop the channel. Never raises."""
        ...


class Forward(Protocol):
    """A port of this machine that leads to an address as seen from the host."""

    port: int

    async def close(self) -> None:
        """End it, and the connections that go through it. Never raises."""
        ...


@runtime_checkable
class Forwards(Protocol):
    """A transport that can forward ports."""

    @property
    def peer(self) -> str | None:
        """The host's address, as the connection reached it; None behind a jump host."""
        ...

    async def forward(self, address: str, port: int) -> Forward:
        """Listen on a free loopback port here.

        Raises:
            LinkError: Not connected, or it cannot be listened.
        """
        ...


class Transport(Protocol):
    """A way to one host. One connection, however many channels (sshd allows ten, sometimes one)."""

    kind: str

    async def connect(self) -> None:
        """Get there, within the deadlines of its settings.

        Raises:
            LinkError: With what to do about it.
        """
        ...

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program from an argument vector; no shell syntax is ever sent."""
        ...

    async def closed(self) -> str:
        """Wait until the connection is gone and say why, in words."""
        ...

    async def close(self) -> None:
        """Let go of everything. Never raises."""
        ...


class SecretKind(StrEnum):
    """What is asked of a person."""

    PASSWORD = "password"  # noqa: S105 - a kind, not a secret
    PASSPHRASE = "passphrase"  # noqa: S105
    CHALLENGE = "challenge"


@dataclass(frozen=True, slots=True)
class SecretQuestion:
    """A secret that a person must type; the answer is used once and kept nowhere."""

    host: str
    kind: SecretKind
    prompt: str
    echo: bool = False
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class HostKeyQuestion:
    """A host key that no known_hosts file has."""

    host: str
    address: str
    port: int
    algorithm: str
    fingerprint: str


class Prompter(Protocol):
    """Whoever can ask the person: a dialog, a terminal, or nobody."""

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """Whether the key is to be trusted from now on."""
        ...

    async def secret(self, question: SecretQuestion) -> str | None:
        """The answer, or None where the person declined."""
        ...


class NobodyToAsk:
    """The prompter of commands without a terminal: declines everything."""

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """No."""
        return False

    async def secret(self, question: SecretQuestion) -> str | None:
        """Nothing."""
        return None
