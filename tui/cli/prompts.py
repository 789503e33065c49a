"""Asks on the terminal, for commands without a screen."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import sys
import termios

from backends.link.base import HostKeyQuestion, NobodyToAsk, Prompter, SecretQuestion
from backends.link.threads import in_thread


class TerminalPrompter:
    """One question at a time, on standard error and standard input."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """Show the fingerprint; only `yes` in full accepts."""
        text = (
            f"The host key of {question.host} ({question.address} port {question.port}) is not "
            f"known.\n  {question.algorithm} {question.fingerprint}\n"
            "Compare it with the host's own. Trust it from now on? (yes/no) "
        )
        async with self._turn:
            return (await _ask(text, echo=True) or "").strip().lower() == "yes"

    async def secret(self, question: SecretQuestion) -> str | None:
        """Ask without echo; an empty line declines."""
        again = "Wrong, once more. " if question.attempt > 1 else ""
        text = f"{again}{question.host}: {question.prompt}: "
        async with self._turn:
            return await _ask(text, echo=question.echo) or None


async def _ask(text: str, *, echo: bool) -> str | None:
    settings = termios.tcgetattr(sys.stdin)

    def ask() -> str | None:
        with contextlib.suppress(EOFError):
            if not echo:
                return getpass.getpass(text)
            print(text, end="", file=sys.stderr, flush=True)
            return sys.stdin.readline().rstrip("\n")
        return None

    try:
        return await in_thread(ask, name="gpuroom-prompt")
    finally:
        # A question that is given up leaves its thread behind, and the terminal without echo.
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


def terminal_prompter() -> Prompter:
    """Asks on the terminal where there is one; else nobody is asked."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalPrompter()
    return NobodyToAsk()
