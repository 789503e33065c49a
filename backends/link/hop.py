"""One host of the way, as the SSH configuration resolves it."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh

from backends import paths
from backends.config import SshConfig
from backends.errors import LinkError, UsageError
from backends.link import failures
from backends.link.identities import DEFAULT_KEY_NAMES, Identities
from backends.link.target import SshTarget, parse_ssh_target

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
_SYSTEM_KNOWN_HOSTS: Final = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_USER_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


@dataclass(slots=True)
class Hop:
    """Everything that is needed to connect to one host.

    Attributes:
        options: asyncssh's own view of the configuration, without keys, hosts or hops, which are
            dealt with here.
        jumps: Hosts to go through first, outermost first.
        host_key_alias: Name to look the host key up under, when it is not the address.
    """

    target: SshTarget
    options: asyncssh.SSHClientConnectionOptions
    address: str
    port: int
    user: str
    family: int
    bind_address: str | None
    host_key_alias: str | None
    host_key_algorithms_set: bool
    jumps: tuple[SshTarget, ...]
    proxy_command: str | None
    known_hosts_files: tuple[Path, ...]
    identities: Identities


def resolve(target: SshTarget, written_config_file: str) -> Hop:
    """Read the configuration for one target (blocking: `Match exec` runs programs).

    The usual file may be missing, and the system's is read after it. A file that was named
    explicitly must exist, and is the only one, as with `ssh -F`.

    Raises:
        LinkError: A file cannot be read or parsed; names file and line.
    """
    config_file = Path(written_config_file).expanduser()
    usual = written_config_file == SshConfig().config_file
    files = [str(config_file)] if config_file.exists() or not usual else []
    try:
        if usual and os.access(SYSTEM_CONFIG, os.R_OK):
            # What a distribution puts there may be newer than what is understood here; it is not
            # the user's to mend, so it is then done without.
            with contextlib.suppress(ValueError):
                return _read(target, [*files, SYSTEM_CONFIG])
        return _read(target, files)
    except UsageError as error:
        raise LinkError(
            f"The ProxyJump of {target} cannot be used", f"{error.title}: {error.detail}"
        ) from error
    except (OSError, ValueError) as error:
        raise failures.config_failed(error, config_file) from error


def _read(target: SshTarget, files: list[str]) -> Hop:
    options = asyncssh.SSHClientConnectionOptions(
        host=target.host,
        port=target.port or (),
        username=target.user or (),
        config=files,
        client_keys=None,
        known_hosts=None,  # replaced for every connection by what the files say
        canonicalize_hostname=False,
        request_pty=False,
    )
    if options.config.has_match_final():
        options.update(host=target.host, reload=True, canonical=False, final=True)
    return _hop(target, options)


def _hop(target: SshTarget, options: asyncssh.SSHClientConnectionOptions) -> Hop:
    config = options.config

    def text(name: str) -> str | None:
        value = config.get(name)
        return value if isinstance(value, str) and value.lower() != "none" else None

    def words(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = config.get(name)
        return tuple(map(str, value)) if isinstance(value, list) else default

    def places(names: tuple[str, ...]) -> tuple[Path, ...]:
        return tuple(Path(name).expanduser() for name in names)

    jump = text("ProxyJump")
    named_keys = places(words("IdentityFile"))
    agent = text("IdentityAgent") if config.get("IdentityAgent", ()) != () else "SSH_AUTH_SOCK"
    return Hop(
        target=target,
        options=options,
        address=options.host,
        port=options.port,
        user=options.username,
        family=options.family or socket.AF_UNSPEC,
        bind_address=text("BindAddress"),
        host_key_alias=text("HostKeyAlias"),
        host_key_algorithms_set=text("HostKeyAlgorithms") is not None,
        jumps=tuple(parse_ssh_target(part) for part in jump.split(",")) if jump else (),
        proxy_command=text("ProxyCommand"),
        known_hosts_files=(
            paths.known_hosts_file(),
            *places(words("UserKnownHostsFile", _USER_KNOWN_HOSTS)),
            *places(words("GlobalKnownHostsFile", _SYSTEM_KNOWN_HOSTS)),
        ),
        identities=Identities(
            files=named_keys or places(tuple(f"~/.ssh/{name}" for name in DEFAULT_KEY_NAMES)),
            named=bool(named_keys),
            only=config.get("IdentitiesOnly") is True,
            agent_path=_agent_path(agent),
            certificates=places(words("CertificateFile")),
        ),
    )


def _agent_path(value: str | None) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    return str(Path(value).expanduser()) if value else None
