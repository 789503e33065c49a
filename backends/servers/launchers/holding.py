"""One operator at a time at a server: the other is told who."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, get_args

from backends.errors import AgentError, RoomError
from backends.servers.host import Host
from backends.servers.launchers.base import ProfileBusy

ASKED_BY: Final = "servers"
Operation = Literal["starting", "stopping", "restarting"]


def busy_of(error: AgentError, what: str) -> ProfileBusy | None:
    """The agent's word that somebody else is at it, else None."""
    for doing in get_args(Operation):
        if f"is {doing} it already" in error.detail:
            return ProfileBusy(f"{what} is in other hands", error.detail, "wait, and look again")
    return None


@contextlib.asynccontextmanager
async def holding(
    host: Host, name: str, doing: Operation, by: str, origin: str, *, place: str | None = None
) -> AsyncIterator[None]:
    """Hold a server while something is done with it; it is let go with the link, too.

    Args:
        host: Where it is.
        name: Of its profile.
        doing: What is done with it.
        by: Who does it.
        origin: From where.
        place: The folder of its run, where the process launcher started it.

    Raises:
        ProfileBusy: Somebody else holds it: says who.
    """
    params: Mapping[str, object] = {
        "name": name, "doing": doing, "by": by, "origin": origin, "dir": place,
    }  # fmt: skip
    what = f"restart {name}" if doing == "restarting" else f"hold {name}"
    pieces = host.stream("servers.hold", params, asked_by=ASKED_BY, what=what, changes_host=True)
    async with contextlib.aclosing(pieces):
        try:
            await anext(pieces)
        except AgentError as error:
            busy = busy_of(error, name)
            if busy is None:
                raise
            raise busy from None
        try:
            yield
        finally:
            # Answered once it is let go: whoever comes next is not told of us.
            with contextlib.suppress(RoomError):
                await host.request(
                    "servers.let_go", {"name": name}, asked_by=ASKED_BY, what=f"let go of {name}"
                )
