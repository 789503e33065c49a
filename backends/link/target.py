"""Where a host name leads: this machine, the demo host, or an SSH address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backends.errors import UsageError

DEMO_PREFIX: Final = "demo:"

# What OpenSSH accepts too: nothing that a shell or an option parser could take for its own.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.%-]*", re.ASCII)
_ADDRESS_V6: Final = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z0-9_.][^\s\x00-\x1f'\"`;&|<>(){}$\\/]*")
_SCENARIO: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """This machine."""


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """The demo host, with the scenario it plays."""

    scenario: str = "healthy"


@dataclass(frozen=True, slots=True)
class SshTarget:
    """An alias of ~/.ssh/config or a host name; user and port where they were given.

    What is None is looked up in the SSH configuration.
    """

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


Target = LocalTarget | DemoTarget | SshTarget


def parse_target(text: str) -> Target:
    """Read `local`, `demo`, `demo:SCENARIO`, `[user@]host[:port]` or `[user@][v6][:port]`.

    A bare IPv6 address needs no brackets as long as no port follows. `ssh://` in front is allowed.

    Raises:
        UsageError: It is none of these.
    """
    text = text.strip()
    if text == "local":
        return LocalTarget()
    if text == "demo":
        return DemoTarget()
    if text.startswith(DEMO_PREFIX):
        scenario = text.removeprefix(DEMO_PREFIX)
        if not _SCENARIO.fullmatch(scenario):
            raise _not_a_target(text, "a scenario is a word of lower-case letters and digits")
        return DemoTarget(scenario)
    return parse_ssh_target(text)


def parse_ssh_target(text: str) -> SshTarget:
    """Read an SSH target alone; also one hop of a ProxyJump list.

    Raises:
        UsageError: It is no such target.
    """
    rest = text.strip().removeprefix("ssh://").rstrip("/")
    user: str | None = None
    if "@" in rest:
        user, rest = rest.rsplit("@", 1)
        if not _USER.fullmatch(user):
            raise _not_a_target(text, f"{user!r} is not a user name")
    host, port_text = _split_port(rest, text)
    if not (_HOST.fullmatch(host) or (":" in host and _ADDRESS_V6.fullmatch(host))):
        raise _not_a_target(text, f"{host!r} is not a host name or address")
    return SshTarget(host, user, None if port_text is None else _port(port_text, text))


def _split_port(rest: str, text: str) -> tuple[str, str | None]:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise _not_a_target(text, "an address in brackets is written [address]:port")
        return host, tail[1:] if tail else None
    if rest.count(":") == 1:
        host, _, port = rest.partition(":")
        return host, port
    return rest, None


def _port(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise _not_a_target(whole, f"{text!r} is not a port (1 to 65535)")
    return int(text)


def _not_a_target(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a host",
        why,
        "Give an alias of ~/.ssh/config, user@host:port, local, demo or demo:SCENARIO.",
    )
