"""Prompters that answer from a script and remember what they were asked."""

from __future__ import annotations

import asyncio

from backends.link.base import HostKeyQuestion, SecretKind, SecretQuestion


class ScriptedPrompter:
    """Gives the answers it was made with, in order; then declines."""

    def __init__(
        self, *answers: str | None, accept_keys: bool = False, think_s: float = 0.0
    ) -> None:
        self._answers = list(answers)
        self._accept = accept_keys
        self._think_s = think_s
        self.host_keys: list[HostKeyQuestion] = []
        self.secrets: list[SecretQuestion] = []

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        await asyncio.sleep(self._think_s)
        self.host_keys.append(question)
        return self._accept

    async def secret(self, question: SecretQuestion) -> str | None:
        await asyncio.sleep(self._think_s)
        self.secrets.append(question)
        return self._answers.pop(0) if self._answers else None

    @property
    def kinds(self) -> list[SecretKind]:
        return [question.kind for question in self.secrets]
