"""Errors an operator can act on.

Each carries a title (what went wrong, one line), a detail (where, and in whose words) and a hint
(what to do next). Backends raise them; only the command line and the shell draw them.
"""

from __future__ import annotations

from pathlib import Path


class RoomError(Exception):
    """Base of every error that is meant to be read by an operator.

    Attributes:
        title: What went wrong, in one line.
        detail: Where and in whose words; may be empty.
        hint: What to do about it; may be empty.
    """

    exit_code = 1
    """Exit status of a command that ends with this error."""

    def __init__(self, title: str, detail: str = "", hint: str = "") -> None:
        super().__init__(title)
        self.title = title
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        return ": ".join(part for part in (self.title, self.detail) if part)


class UsageError(RoomError):
    """The command was called in a way that cannot be carried out."""

    exit_code = 2


class ConfigError(RoomError):
    """The configuration cannot be used; says file, line and key."""

    exit_code = 2

    def __init__(
        self, title: str, *, path: Path | None = None, line: int | None = None, hint: str = ""
    ) -> None:
        where = "" if path is None else f"{path}:{line}" if line else str(path)
        super().__init__(title, where, hint)
        self.path = path
        self.line = line


class LinkError(RoomError):
    """The host cannot be reached, or the link to it was lost."""

    exit_code = 3


class NoSession(LinkError):
    """The host opens no further session on a connection that is up."""


class HostKeyUnknown(LinkError):
    """The host's key is in no known_hosts file, and nobody accepted it."""


class HostKeyChanged(LinkError):
    """The host answered with another key than the one that is known: refused."""


class AuthenticationFailed(LinkError):
    """The host was reached but let nobody in."""


class AgentError(RoomError):
    """The agent on the host could not be started, died, or answered with an error."""

    exit_code = 4


class RequestTimeout(AgentError):
    """The agent did not answer a request within its deadline."""


class AgentGone(AgentError):
    """It ended, or the link did, while an answer was awaited: what was done is not known."""


class ReadOnlyError(RoomError):
    """A change was asked of a host that is read-only here."""

    exit_code = 5
