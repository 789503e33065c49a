"""Passwords that were typed, for as long as the room lives: in memory alone, never shown."""

from __future__ import annotations


class Secrets:
    """By host: the password for sudo. It has no representation, so that no log can hold it."""

    def __init__(self) -> None:
        self._sudo: dict[str, str] = {}

    def sudo(self, host: str) -> str | None:
        """The password that was given for a host."""
        return self._sudo.get(host)

    def keep_sudo(self, host: str, password: str) -> None:
        """Hold it till the room ends."""
        self._sudo[host] = password

    def forget_sudo(self, host: str) -> None:
        """It was not accepted."""
        self._sudo.pop(host, None)
