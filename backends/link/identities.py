"""The keys to offer: from the agent, from files, with certificates; encrypted ones only if wanted.

The order is the one that works with servers that allow few tries: agent keys that the
configuration names, keys of named files, other agent keys, keys of default files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncssh

AGENT_S: Final = 3.0
"""An agent that does not answer (a forwarded one whose link is dead) is done without."""
DEFAULT_KEY_NAMES: Final = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


@dataclass(slots=True)
class Identities:
    """What the configuration says about keys.

    Attributes:
        files: Private keys to offer.
        named: `files` were named by the configuration; else they are the usual ones.
        only: Offer no other agent key (IdentitiesOnly).
        agent_path: Socket of the agent; None for no agent.
        certificates: Certificate files.
        notes: What could not be used and why, for the error message when nobody is let in.
        wanted: Encrypted files that the server would accept.
    """

    files: tuple[Path, ...]
    named: bool
    only: bool
    agent_path: str | None
    certificates: tuple[Path, ...] = ()
    notes: list[str] = field(default_factory=list)
    wanted: list[Path] = field(default_factory=list)

    def load_files(self) -> list[asyncssh.SSHKeyPair]:
        """Read the key files (blocking).

        Of an encrypted key only its public half is offered. When the server accepts that, the
        signature is put off and the file noted in `wanted`, so that nobody is asked for the
        passphrase of a key that would not open the door.
        """
        self.notes.clear()
        self.wanted.clear()
        pairs: list[asyncssh.SSHKeyPair] = []
        for path in self.files:
            if not path.exists():
                if self.named and not path.with_name(path.name + ".pub").exists():
                    self.notes.append(f"{path}: no such key")
                continue
            try:
                pairs += asyncssh.load_keypairs(
                    str(path),
                    self._put_off,  # type: ignore[arg-type]  # a callable is allowed, see its docs
                    self._existing_certificates(),
                )
            except (OSError, ValueError) as error:
                if path in self.wanted:
                    continue
                self.notes.append(f"{path}: {getattr(error, 'strerror', None) or error}")
        return pairs

    def _put_off(self, filename: str) -> str:
        path = Path(filename)
        if path not in self.wanted:
            self.wanted.append(path)
        raise asyncssh.KeyImportError("the passphrase is asked for when the key is wanted")

    def _existing_certificates(self) -> list[str]:
        return [str(path) for path in self.certificates if path.is_file()]

    def decrypt(self, path: Path, passphrase: str) -> list[asyncssh.SSHKeyPair]:
        """Read an encrypted key (blocking).

        Raises:
            ValueError: The passphrase is wrong.
        """
        key = asyncssh.read_private_key(str(path), passphrase)
        certificates = self._existing_certificates()
        own = path.with_name(path.name + "-cert.pub")
        if own.is_file():
            certificates.append(str(own))
        return list(asyncssh.load_keypairs([key], None, certificates))

    async def load_agent(self) -> tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]:
        """Ask the agent for its keys; the client must stay open while they are used."""
        if not self.agent_path:
            return None, []
        client: asyncssh.SSHAgentClient | None = None
        try:
            async with asyncio.timeout(AGENT_S):
                client = await asyncssh.connect_agent(self.agent_path)
                return client, self._certified(list(await client.get_keys()))
        except (OSError, ValueError, asyncssh.Error) as error:
            why = "no answer" if isinstance(error, TimeoutError) else str(error)
            self.notes.append(f"agent {self.agent_path}: {why}")
        if client is not None:
            client.close()
        return None, []

    def _certified(self, pairs: list[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair]:
        """Give keys of the agent the certificates that lie in files."""
        for path in self._existing_certificates():
            try:
                certificate = asyncssh.read_certificate(path)
            except (OSError, ValueError) as error:
                self.notes.append(f"{path}: {error}")
                continue
            for pair in pairs:
                if pair.public_data == certificate.key.public_data:
                    pair.set_certificate(certificate)
        return pairs

    def ordered(
        self, from_files: Sequence[asyncssh.SSHKeyPair], from_agent: Sequence[asyncssh.SSHKeyPair]
    ) -> list[asyncssh.SSHKeyPair]:
        """Bring both together in the order of offering."""
        named = self._public_data() if self.named else frozenset()
        first = [pair for pair in from_agent if pair.key_public_data in named]
        others = [] if self.only else [pair for pair in from_agent if pair not in first]
        held = {pair.public_data for pair in from_agent}
        files = [pair for pair in from_files if pair.public_data not in held]
        return [*first, *files, *others] if self.named else [*first, *others, *files]

    def _public_data(self) -> frozenset[bytes]:
        found = set()
        for path in self.files:
            for candidate in (path.with_name(path.name + ".pub"), path):
                with contextlib.suppress(OSError, ValueError):
                    found.add(asyncssh.read_public_key(str(candidate)).public_data)
                    break
        return frozenset(found)
