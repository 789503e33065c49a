"""Why an agent did not start, or ended, in words: pure functions on what the host said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backends.errors import AgentError
from backends.text import clean, clean_lines

_TOO_OLD: Final = re.compile(r"no attribute 'buffer'|SyntaxError|No module named '?importlib\.abc")
_MISSING: Final = re.compile(
    r"not found|No such file|not recognized|unknown command|can't open|cannot find", re.IGNORECASE
)
_DENIED: Final = re.compile(r"permission denied|operation not permitted|not allowed", re.IGNORECASE)


class PythonMissing(AgentError):
    """The host has no such python: a streamed `nvidia-smi` may do instead."""


class PythonTooOld(AgentError):
    """The host's python is older than the agent needs."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of a start that failed.

    Attributes:
        python: The interpreter that was asked for.
        status: Exit status, where it is known.
        stderr: The end of standard error.
        noise: What came on standard output before the marker.
        marker: Whether the marker came: python runs there, and took the payload.
    """

    python: str
    status: int | None = None
    stderr: str = ""
    noise: str = ""
    marker: bool = False

    @property
    def text(self) -> str:
        """Everything that was said, cleaned, its lines kept."""
        noise = "\n".join(clean_lines(self.noise, max_lines=20))
        return "\n".join(part for part in (self.stderr, noise) if part)


def never_started(said: Said, end_reason: str) -> AgentError:
    """The error of a channel that ended before hello came."""
    words = last_words(said.text)
    if _TOO_OLD.search(said.text):
        return too_old(said.python, words)
    if said.status == 127 or (not said.marker and _says_missing(said)):
        return python_missing(said.python, words)
    if said.status == 126 or _DENIED.search(said.text):
        return AgentError(
            f"{said.python} may not be run on the host",
            words,
            "check its permissions, and that the account may run commands",
        )
    if said.marker:
        return AgentError("the agent crashed at its start", words or end_reason)
    return AgentError(
        "the agent did not start",
        words or end_reason,
        f"does `{said.python} -c 'print(1)'` work in a shell there?",
    )


def never_came(said: Said, timeout_s: float) -> AgentError:
    """The error of a start that took too long."""
    words = last_words(said.text)
    if said.marker:
        return AgentError(
            f"the agent said nothing within {timeout_s:g} s", words, "the host may be overloaded"
        )
    return AgentError(
        f"the agent did not come up within {timeout_s:g} s",
        f"the host said: {words}" if words else "",
        "does the account's login shell start programs without asking something first?",
    )


def why_it_ended(status: int | None, stderr: str) -> str:
    """Words for an agent that ran, and ended."""
    tail = last_words(stderr)
    if status is None or (status == 0 and not tail):
        words = "the agent ended"
    elif status < 0:
        words = f"the agent was killed by signal {-status}"
    else:
        words = f"the agent ended with status {status}"
    return f"{words}: {tail}" if tail else words


def python_missing(python: str, detail: str) -> PythonMissing:
    """There is no such interpreter."""
    return PythonMissing(
        f"no {python} on the host",
        clean(detail),
        "install python3 (3.8 or newer) there, or name one with `python` in the host's entry",
    )


def too_old(python: str, detail: str) -> PythonTooOld:
    """It is there, but of another age."""
    return PythonTooOld(
        f"{python} on the host is too old",
        detail,
        "the agent needs 3.8 or newer: name one with `python` in the host's entry",
    )


def last_words(text: str) -> str:
    """The last line of a program's complaints that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return clean(lines[-1], 400) if lines else ""


def _says_missing(said: Said) -> bool:
    """Whether a line says so of our python; a start file may miss programs of its own."""
    name = said.python.rpartition("/")[2]
    return any(name in line and _MISSING.search(line) for line in said.text.splitlines())
