"""Host keys: what is known, of whom, in which line of which file.

The user's and the system's files are read and never written. A key that was accepted in gpuroom
goes to a file of its own, in the same format. Unknown and changed are told apart here, because
only an unknown key may ever be accepted.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import hmac
import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A line of a known_hosts file that speaks of the host."""

    key: asyncssh.SSHKey
    path: Path
    line: int
    marker: str = ""

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """All that the files say of one host.

    Attributes:
        name: The name it is known under: `host`, or `[host]:port` away from port 22.
        trusted: Its keys.
        authorities: Keys that may sign certificates for it.
        revoked: Keys that must never be accepted.
        by_bare_name: The trusted keys are those of `host` without the port, which OpenSSH also
            accepts. Another key is then unknown rather than changed: another server may well
            answer at another port.
    """

    name: str
    trusted: tuple[KnownKey, ...] = ()
    authorities: tuple[KnownKey, ...] = ()
    revoked: tuple[KnownKey, ...] = ()
    by_bare_name: bool = False

    def for_asyncssh(self) -> tuple[list[asyncssh.SSHKey], ...]:
        """Trusted keys, trusted authorities and revoked keys, as asyncssh takes them."""
        return (
            [entry.key for entry in self.trusted],
            [entry.key for entry in self.authorities],
            [entry.key for entry in self.revoked],
        )

    def algorithms(self) -> list[str]:
        """Host key algorithms to ask for, the known ones first.

        Others follow, so that a host that changed to another kind of key shows it and can be told
        apart from one that has no algorithm in common. Certificates are asked for only where an
        authority is known: a host that has one could not be trusted by its plain key otherwise.
        """
        kinds = [kind for entry in self.trusted for kind in entry.key.sig_algorithms]
        if self.authorities:
            kinds = [*get_default_certificate_algs(), *kinds]
        return [kind.decode() for kind in dict.fromkeys([*kinds, *get_default_public_key_algs()])]


def host_key_name(host: str, port: int, alias: str | None = None) -> str:
    """The name under which known_hosts files keep a host (sshd(8), known_hosts format)."""
    if alias:
        return alias.lower()
    host = host.lower()
    return host if port == 22 else f"[{host}]:{port}"


def look_up(files: Sequence[Path], host: str, port: int, alias: str | None = None) -> KnownKeys:
    """What `files` know of a host. Files that are missing and lines that are broken are skipped."""
    name = host_key_name(host, port, alias)
    entries = [entry for path in files for entry in _matches(path, name)]
    by_bare_name = False
    if not alias and port != 22 and not any(entry.marker != "revoked" for entry in entries):
        bare = host_key_name(host, 22)
        entries += [entry for path in files for entry in _matches(path, bare)]
        by_bare_name = True
    return KnownKeys(
        name=name,
        trusted=tuple(e for e in entries if not e.marker),
        authorities=tuple(e for e in entries if e.marker == "cert-authority"),
        revoked=tuple(e for e in entries if e.marker == "revoked"),
        by_bare_name=by_bare_name,
    )


def save(path: Path, name: str, key: asyncssh.SSHKey) -> None:
    """Append a key that a person accepted, under a lock, in one write, readable by the user alone.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    algorithm, data = key.export_public_key("openssh").decode("ascii").split()[:2]
    line = f"{name} {algorithm} {data}\n".encode()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        held = os.pread(descriptor, size, 0) if size <= MAX_FILE_BYTES else b""
        if line in held.splitlines(keepends=True):
            return  # another gpuroom was quicker
        if held and not held.endswith(b"\n"):
            line = b"\n" + line
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _matches(path: Path, name: str) -> list[KnownKey]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0)[1:] if fields[0].startswith("@") else ""
        if len(fields) < 3 or marker not in ("", "cert-authority", "revoked"):
            continue
        if not _names_match(fields[0], name):
            continue
        try:
            key = asyncssh.import_public_key(f"{fields[1]} {fields[2]}")
        except asyncssh.KeyImportError:
            continue  # a key type that is not supported here
        found.append(KnownKey(key, path, number, marker))
    return found


def _names_match(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _hashed_match(pattern, name)
    matched = False
    for part in pattern.lower().split(","):
        negated = part.startswith("!")
        if _glob(part.lstrip("!"), name):
            if negated:
                return False
            matched = True
    return matched


def _glob(pattern: str, name: str) -> bool:
    # Only * and ? are wild in known_hosts; brackets are part of [host]:port.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _hashed_match(pattern: str, name: str) -> bool:
    try:
        _, _, salt, digest = pattern.split("|")
        expected = b64decode(digest, validate=True)
        made = hmac.new(b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (ValueError, Base64Error):
        return False
    return hmac.compare_digest(made, expected)
