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


class ServerIntent(Intent):
    """Asks for something of one server.

    Attributes:
        server: What it is known by on its host.
    """

    def __init__(self, host: str, asked_by: str, server: str) -> None:
        super().__init__(host, asked_by)
        self.server = server


class StartServer(ServerIntent):
    """Start it, after a yes."""


class StopServer(ServerIntent):
    """Stop it, after a yes."""


class RestartServer(ServerIntent):
    """Stop it and start it again, after a yes."""


class ImportServer(ServerIntent):
    """Make a profile of what was found."""
