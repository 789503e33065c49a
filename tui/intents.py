"""What a key asks for. Screens post these; the controller carries them out."""

from __future__ import annotations

from textual.message import Message


class Intent(Message):
    """Asks for something of one host.

    Attributes:
        host: Its name in the room.
        asked_by: Id of the binding that asked.
    """

    def __init__(self, host: str, asked_by: str) -> None:
        super().__init__()
        self.host = host
        self.asked_by = asked_by


class SetInterval(Intent):
    """Sample at another interval."""

    def __init__(self, host: str, asked_by: str, seconds: float) -> None:
        super().__init__(host, asked_by)
        self.seconds = seconds


class RetryNow(Intent):
    """Connect without waiting."""


class Unlock(Intent):
    """Allow changes on a production host."""
