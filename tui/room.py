"""What the shell needs of the hosts it shows. `backends.hub` fits; tests bring their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backends.config import HostConfig
from backends.feeds import Journal, Ring
from backends.link.base import Prompter
from backends.model import Alert, HostSnapshot
from backends.telemetry.history import History


class HostView(Protocol):
    """One host of the room."""

    @property
    def name(self) -> str:
        """Its name in the room."""
        ...

    @property
    def config(self) -> HostConfig:
        """Name, target, labels, whether it is in production."""
        ...

    @property
    def snapshot(self) -> HostSnapshot:
        """All that is known of it now."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change of the snapshot."""
        ...

    @property
    def history(self) -> History:
        """Its past."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether changes are refused (`--read-only`, or production and not unlocked)."""
        ...

    async def set_interval(self, seconds: float, *, asked_by: str) -> float:
        """Ask for another sampling interval; gives what was granted."""
        ...

    def retry_now(self) -> None:
        """Connect again without waiting."""
        ...

    def unlock(self, *, asked_by: str) -> None:
        """Allow changes on a production host for this session."""
        ...


class RoomHub(Protocol):
    """All hosts of the room."""

    @property
    def sessions(self) -> Sequence[HostView]:
        """Hosts in the order of the room."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change anywhere."""
        ...

    @property
    def journal(self) -> Journal:
        """Everything asked of hosts."""
        ...

    @property
    def alerts(self) -> Ring[Alert]:
        """What happened, oldest first."""
        ...

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        ...

    async def stop(self) -> None:
        """Let go of every host."""
        ...


class HubMaker(Protocol):
    """Makes the hub once the first frame is painted, with the dialogs to ask through."""

    def prepare(self) -> None:
        """Import what the hub needs; called in a thread."""
        ...

    def __call__(self, prompter: Prompter) -> RoomHub:
        """The hub, not started."""
        ...
