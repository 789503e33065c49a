"""What went wrong on the way to a host, in words that an operator can act on."""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

import asyncssh

from backends.errors import (
    AuthenticationFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LinkError,
)
from backends.link.auth import LoginClient
from backends.link.identities import Identities
from backends.link.known_hosts import KnownKey, KnownKeys
from backends.text import clean

_CONFIG_PLACE = re.compile(r"(?P<path>.+) line (?P<line>\d+): (?P<reason>.+)", re.DOTALL)


def config_failed(error: Exception, config_file: Path) -> LinkError:
    """The SSH configuration cannot be read or parsed: say file, line and reason."""
    match = _CONFIG_PLACE.fullmatch(str(error))
    if match:
        hint = "Correct the line, or give another file with config_file in the [ssh] table."
        if "match condition" in match["reason"]:
            hint = (
                "Newer OpenSSH knows this condition and gpuroom does not. Move it to a file of its "
                "own and include that only from where ssh alone reads, or name another file with "
                "config_file in the [ssh] table."
            )
        return LinkError(
            "The SSH configuration cannot be used",
            f"{match['path']}:{match['line']}: {clean(match['reason'])}",
            hint,
        )
    if isinstance(error, OSError):
        return LinkError(
            "The SSH configuration cannot be read",
            f"{error.filename or config_file}: {error.strerror or error}",
            "Correct its permissions, or name another file with config_file in the [ssh] table.",
        )
    return LinkError("The SSH configuration cannot be used", f"{config_file}: {clean(str(error))}")


def unreachable(host: str, address: str, port: int, error: BaseException) -> LinkError:
    """No connection could be made at all."""
    where = f"{address} port {port}"
    if isinstance(error, socket.gaierror):
        return LinkError(
            f"{host}: the name {address} is not known",
            error.strerror or str(error),
            "Check the spelling, the HostName in ~/.ssh/config, and that the name server answers.",
        )
    if isinstance(error, TimeoutError):
        return LinkError(
            f"{host} does not answer",
            f"no connection to {where} in time",
            "Check that the host is up and that no firewall drops the way to it.",
        )
    if isinstance(error, ConnectionRefusedError):
        return LinkError(
            f"{host} refuses connections",
            f"nothing listens at {where}",
            "Check the port, and that sshd runs there.",
        )
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return LinkError(
            f"There is no way to {host}",
            f"{where}: {error}",
            "Check routes and VPN, or whether a ProxyJump is needed.",
        )
    return LinkError(f"{host} cannot be reached", f"{where}: {clean(str(error))}")


def host_key_unknown(host: str, offered: asyncssh.SSHKey, known: KnownKeys) -> HostKeyUnknown:
    """Nobody accepted the key."""
    return HostKeyUnknown(
        f"The host key of {host} is not known",
        f"{known.name} offers {algorithm(offered)} {offered.get_fingerprint()}",
        "Compare the fingerprint with the host's own, then accept it with `gpuroom HOST` on a "
        "terminal, or with ssh.",
    )


def host_key_changed(
    host: str, offered: asyncssh.SSHKey | None, known: KnownKeys, config_hint: str = ""
) -> HostKeyChanged:
    """Another key than the known one: never accepted here, whoever asks."""
    told = ", ".join(f"{_describe(entry)} at {entry.place}" for entry in known.trusted)
    now = (
        f"now {algorithm(offered)} {offered.get_fingerprint()}"
        if offered
        else "now no key of that kind is offered"
    )
    files = dict.fromkeys(entry.path for entry in known.trusted)
    name = f"'{known.name}'" if "[" in known.name else known.name
    commands = "; ".join(f"ssh-keygen -R {name} -f {path}" for path in files)
    return HostKeyChanged(
        f"The host key of {host} has changed: refused",
        f"known: {told}; {now}{config_hint}",
        "Either the host was set up anew, or somebody stands in between. Ask whoever runs it for "
        f"its fingerprint. Only when that is right, forget the old key with: {commands}",
    )


def host_key_revoked(host: str, entry: KnownKey) -> HostKeyChanged:
    """A key that a file marks as revoked."""
    return HostKeyChanged(
        f"The host key of {host} is revoked: refused",
        f"{_describe(entry)} at {entry.place}",
        "The host must get a new key from whoever runs it.",
    )


def authority_not_trusted(host: str, key: asyncssh.SSHKey, known: KnownKeys) -> HostKeyChanged:
    """A certificate that no known authority has signed."""
    places = ", ".join(entry.place for entry in known.authorities)
    return HostKeyChanged(
        f"The host certificate of {host} is signed by another authority: refused",
        f"signed by {algorithm(key)} {key.get_fingerprint()}; trusted: {places}",
        "Ask whoever runs the authority, and correct the @cert-authority line when it is right.",
    )


def algorithm(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519` and the like."""
    return key.get_algorithm()


def _describe(entry: KnownKey) -> str:
    return f"{algorithm(entry.key)} {entry.key.get_fingerprint()}"


def login_failed(
    host: str,
    address: str,
    port: int,
    user: str,
    error: BaseException,
    client: LoginClient,
    identities: Identities,
    proxy_said: str = "",
) -> LinkError:
    """The host was reached, but the connection did not come about."""
    where = f"{address} port {port}"
    if isinstance(error, asyncssh.PermissionDenied):
        return _permission_denied(host, user, client, identities)
    if isinstance(error, asyncssh.DisconnectError) and "too many" in str(error).lower():
        return AuthenticationFailed(
            f"{host} let {user} try no more keys",
            clean(str(error)),
            "Name the right key with IdentityFile and IdentitiesOnly yes in ~/.ssh/config.",
        )
    if isinstance(error, TimeoutError):
        return LinkError(
            f"{host} takes the connection and stays silent",
            f"no login at {where} in time",
            "sshd there hangs, is overloaded, or something else listens at that port.",
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return LinkError(
            f"{host} and gpuroom have no algorithm in common",
            clean(str(error)),
            "An old sshd may need KexAlgorithms, Ciphers or HostKeyAlgorithms in ~/.ssh/config.",
        )
    if isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError):
        if client.asked:
            return AuthenticationFailed(
                f"{host} closed the connection during the login",
                clean(str(error)),
                "It allows only so much time and so many tries (LoginGraceTime, MaxAuthTries).",
            )
        if proxy_said:
            return LinkError(f"The ProxyCommand to {host} failed", proxy_said)
        return LinkError(
            f"{host} closed the connection before the login",
            f"{where}: {clean(str(error))}",
            "sshd may be limiting connections (MaxStartups) or banning this address.",
        )
    if isinstance(error, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return LinkError(
            f"What answers at {host} does not speak SSH",
            f"{where}: {clean(str(error))}",
            "Check the port.",
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return LinkError(
            f"The jump host cannot get on to {host}",
            f"{where}: {clean(str(error))}",
            "Check that the jump host reaches it and allows forwarding (AllowTcpForwarding).",
        )
    return LinkError(f"The connection to {host} failed", f"{where}: {clean(str(error))}")


def _permission_denied(
    host: str, user: str, client: LoginClient, identities: Identities
) -> AuthenticationFailed:
    parts = list(identities.notes)
    if not identities.files and not identities.agent_path:
        parts.append("no key file and no agent")
    if client.banner:
        parts.append(client.banner.split("\n", 1)[0])
    hint = "Check the user name, and that your key is in authorized_keys there."
    if client.declined:
        hint = (
            "It asks for a password or a code: connect on a terminal, or set up a key "
            f"(ssh-copy-id {user}@HOST)."
        )
    elif any("encrypted" in note for note in identities.notes):
        hint = "Load the key into the agent (ssh-add), or connect on a terminal."
    return AuthenticationFailed(f"{host} does not let {user} in", "; ".join(parts), hint)
