"""One operator at a time at a server: the other is told who."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

from backends.errors import AgentError
from backends.servers.host import Host
from backends.servers.launchers.base import ProfileBusy

ASKED_BY: Final = "servers"


def busy_of(error: AgentError, what: str) -> ProfileBusy | None:
    """The agent's word that somebody else is at it, else None."""
    for doing in ("starting", "stopping"):
        if f"is {doing} it already" in error.detail:
            return ProfileBusy(f"{what} is in other hands", error.detail, "wait, and look again")
    return None


@contextlib.asynccontextmanager
async def holding(
    host: Host, name: str, doing: Literal["starting", "stopping"], by: str, origin: str
) -> AsyncIterator[None]:
    """Hold a server while something is done with it; it is let go with the link, too.

    Raises:
        ProfileBusy: Somebody else holds it: says who.
    """
    params: Mapping[str, object] = {"name": name, "doing": doing, "by": by, "origin": origin}
    pieces = host.stream(
        "servers.hold", params, asked_by=ASKED_BY, what=f"hold {name}", changes_host=True
    )
    async with contextlib.aclosing(pieces):
        try:
            await anext(pieces)
        except AgentError as error:
            busy = busy_of(error, name)
            if busy is None:
                raise
            raise busy from None
        yield
