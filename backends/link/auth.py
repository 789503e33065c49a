"""Our side of a login: asks the person what must be asked, and keeps no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import asyncssh

from backends.link.base import Prompter, SecretKind, SecretQuestion
from backends.link.identities import Identities
from backends.link.threads import in_thread
from backends.text import clean

MAX_ANSWERS: Final = 3
"""How often a wrong answer is asked for again, as OpenSSH does (NumberOfPasswordPrompts)."""


class LoginClient(asyncssh.SSHClient):
    """Answers one server during one login, then watches the connection.

    Attributes:
        offered_key: The host key that no file had, when the server offered such a one.
        offered_authority: The authority of its certificate, when that is not known.
        banner: What the server said before the login, cleaned.
        declined: The person (or nobody) did not answer.
    """

    def __init__(self, host: str, prompter: Prompter, identities: Identities) -> None:
        self._host = host
        self._prompter = prompter
        self._identities = identities
        self._decrypted: set[Path] = set()
        self._asked: dict[SecretKind, int] = {}
        self.offered_key: asyncssh.SSHKey | None = None
        self.offered_authority: asyncssh.SSHKey | None = None
        self.banner = ""
        self.declined = False
        self._lost = asyncio.Event()
        self._lost_why = ""

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost.is_set()

    async def wait_lost(self) -> str:
        """Wait for the end of the connection and say why it ended."""
        await self._lost.wait()
        return self._lost_why

    @property
    def asked(self) -> int:
        """Secrets asked for so far."""
        return sum(self._asked.values())

    # Host key: only noted here. Whether it is unknown or changed, and what follows from that, is
    # decided when this connection is gone, so that a person may think for as long as they like.

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Called for a key that is not trusted: note it, refuse it."""
        self.offered_key = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called for an authority that is not trusted: note it, refuse it."""
        self.offered_authority = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """Keep the banner for the error message of a failed login."""
        self.banner = "\n".join(clean(line) for line in msg.split("\n")[:40])

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the reason."""
        self._lost_why = clean(str(exc)) if exc else "closed by the host"
        self._lost.set()

    async def public_key_auth_requested(self) -> Sequence[asyncssh.SSHKeyPair] | None:
        """All plain keys were refused: now the encrypted ones that the server would accept."""
        for path in list(self._identities.wanted):
            if path in self._decrypted:
                continue
            self._decrypted.add(path)
            pairs = await self._decrypt(path)
            if pairs:
                return pairs
        return None

    async def _decrypt(self, path: Path) -> Sequence[asyncssh.SSHKeyPair] | None:
        for attempt in range(1, MAX_ANSWERS + 1):
            passphrase = await self._ask(SecretKind.PASSPHRASE, f"Passphrase of {path}", attempt)
            if passphrase is None:
                self._identities.notes.append(f"{path}: encrypted, and its passphrase not given")
                return None
            decrypt = partial(self._identities.decrypt, path, passphrase)
            try:
                return await in_thread(decrypt)
            except (OSError, ValueError):
                continue
        self._identities.notes.append(f"{path}: the passphrase was wrong {MAX_ANSWERS} times")
        return None

    async def password_auth_requested(self) -> str | None:
        """Called again after each wrong password."""
        attempt = self._next_attempt(SecretKind.PASSWORD)
        if attempt is None:
            return None
        return await self._ask(SecretKind.PASSWORD, f"Password of {self._host}", attempt)

    async def kbdint_auth_requested(self) -> str | None:
        """Called again after each wrong answer; "" lets the server choose the method."""
        return None if self._next_attempt(SecretKind.CHALLENGE) is None else ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """Put each prompt of the server to the person."""
        answers: list[str] = []
        lead = " ".join(clean(text, 400) for text in (name, instructions) if text.strip())
        for prompt, echo in list(prompts)[:16]:
            words = clean(prompt, 400).strip().rstrip(":") or "Answer"
            answer = await self._ask(
                SecretKind.CHALLENGE,
                f"{lead} {words}".strip(),
                self._asked[SecretKind.CHALLENGE],
                echo=echo,
            )
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def _next_attempt(self, kind: SecretKind) -> int | None:
        attempt = self._asked.get(kind, 0) + 1
        if self.declined or attempt > MAX_ANSWERS:
            return None
        # One password behind two methods (PAM) is not asked for six times.
        other = SecretKind.CHALLENGE if kind is SecretKind.PASSWORD else SecretKind.PASSWORD
        if self._asked.get(other, 0) >= MAX_ANSWERS:
            return None
        self._asked[kind] = attempt
        return attempt

    async def _ask(
        self, kind: SecretKind, prompt: str, attempt: int, *, echo: bool = False
    ) -> str | None:
        if self.declined:
            return None
        answer = await self._prompter.secret(
            SecretQuestion(self._host, kind, prompt, echo, attempt)
        )
        if answer is None and kind is not SecretKind.PASSPHRASE:
            self.declined = True
        return answer
