"""Which server a benchmark of a host measures: the one that answers, a profile, a port, a URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from backends.errors import RoomError, UsageError
from backends.model import LinkState
from backends.servers.apikey import key_headers
from backends.servers.configured import profiles_of
from tui.rows import Line
from tui.shell import Shell

if TYPE_CHECKING:
    from backends.servers.profiles import Profile
    from backends.servers.view import ServerView

DEFAULT_PORT: Final = "8000"


def _profiles(shell: Shell) -> tuple[Profile, ...]:
    try:
        return profiles_of(shell.config, shell.host_config(shell.current))
    except RoomError:
        return ()


def _views(shell: Shell) -> tuple[ServerView, ...]:
    return () if shell.servers is None else shell.servers.views(shell.current)


def first_server(shell: Shell) -> str:
    """The server that answers, else the first profile of the host, else port 8000."""
    for view in _views(shell):
        if view.answers and view.port is not None:
            return view.name if view.profile is not None else str(view.port)
    profiles = _profiles(shell)
    return profiles[0].name if profiles else DEFAULT_PORT


def address_of(shell: Shell, text: str) -> tuple[str, str | None]:
    """URL as seen from the host, and profile, of what was typed.

    Raises:
        UsageError: No server is called that.
    """
    if text.isdecimal():
        return f"http://127.0.0.1:{text}", None
    if "://" in text:
        return text, None
    found = next((one for one in _profiles(shell) if one.name == text), None)
    if found is None:
        raise UsageError(f"no server is called {text!r}", hint="give its port or URL")
    port = found.port or found.engine.default_port
    if port is None:
        raise UsageError(f"the port of {text} is not known", hint="give its port or URL")
    return f"http://127.0.0.1:{port}", found.name


def headers_of(shell: Shell, profile: str | None) -> dict[str, str]:
    """What shows the server of a profile its key.

    Raises:
        UsageError: The variable that the profile names holds none.
    """
    found = next((one for one in _profiles(shell) if one.name == profile), None)
    return key_headers(found, os.environ)


def server_line(shell: Shell, text: str) -> Line:
    """What is known of that server, or why it cannot be measured now."""
    line = Line().add("server ", "dim").add(text, "strong")
    line.add(f" on {shell.current}", "dim")
    link = shell.snapshot().link
    if link.state is not LinkState.LIVE:
        return line.add(f"  {shell.current} is not connected: a run needs the host", "warning")
    try:
        url, profile = address_of(shell, text)
    except UsageError as error:
        return line.add(f"  {error}", "warning")
    known = next(
        (
            view
            for view in _views(shell)
            if (profile is not None and view.name == profile)
            or (view.port is not None and url.endswith(f":{view.port}"))
        ),
        None,
    )
    if known is not None and known.answers:
        line.add(f"  {known.word}", "good").add(f" at {url}", "dim")
    elif known is not None:
        line.add(f"  {known.word}: it has to answer before it can be measured", "warning")
    elif not text.isdecimal():
        line.add(f"  {url}", "dim")
    return line.add("   e changes it", "dim")
