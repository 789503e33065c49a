"""What came of asking files, and of steps: the same with the agent and without."""

from __future__ import annotations

from dataclasses import dataclass

from backends.errors import AgentError
from backends.tuning.steps import File


@dataclass(frozen=True, slots=True)
class Looked:
    """What files of one machine hold, and which boot it runs."""

    boot_id: str
    files: dict[str, File]


@dataclass(frozen=True, slots=True)
class Done:
    """One step that was carried out, or failed."""

    ok: bool
    error: str
    output: str
    after: bytes | None


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of the steps of one fix.

    Attributes:
        refused: Why nothing was done; empty where something was.
        kernel: The kernel's own lines since the beginning, where a step failed.
    """

    refused: str
    steps: tuple[Done, ...]
    kernel: tuple[str, ...]


class RootNeeded(AgentError):
    """sudo did not let us; its words say why."""

    @property
    def wants_password(self) -> bool:
        """Whether a password would help."""
        return "password" in self.detail
