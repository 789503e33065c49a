"""From the words of `gpuroom bench` to a server's address and a place to send load from."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from backends import config as configuration
from backends.bench import endpoint
from backends.bench.endpoint import Unreachable
from backends.bench.onhost import through
from backends.bench.place import Origin, Place, beside, from_here, here, tunnelled
from backends.clock import SYSTEM_CLOCK
from backends.config import Config, HostConfig
from backends.errors import LinkError, UsageError
from backends.hub import HostSession, RoomHub
from backends.model import LinkState
from backends.servers.apikey import key_headers
from backends.servers.configured import profiles_of
from backends.servers.profiles import Profile, resolve_profiles
from tui.cli.main import VERSION
from tui.cli.prompts import terminal_prompter

POLL_S: Final = 0.02
REACH_S: Final = 60.0
WHOLE_S: Final = 15.0
"""A host that answers, but not everything, is waited for so long."""
LISTEN_S: Final = 5.0
"""A server of the configuration is asked again for so long."""
LISTEN_POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Where:
    """What is measured and from where, as the command line says it.

    Attributes:
        server: Address of the server, as seen from where the load comes from.
        host: The host to go to; None for this machine.
        origin: Where on the way to that host the load comes from.
        profile: Name of the server's profile, where it was named.
        config: The configuration.
    """

    server: endpoint.Endpoint
    host: HostConfig | None
    origin: Origin
    profile: str | None
    config: Config


def where(arguments: argparse.Namespace) -> Where:
    """Read HOST, SERVER, --url and --api-key-env. Raises UsageError or ConfigError."""
    headers = {}
    if arguments.api_key_env:
        key = os.environ.get(arguments.api_key_env)
        if not key:
            raise UsageError(f"the environment variable {arguments.api_key_env} is not set")
        headers["authorization"] = f"Bearer {key}"
    url, profile = arguments.url, None
    config = configuration.load(arguments.config)
    host = None
    if arguments.host is not None:
        (host,) = configuration.resolve_hosts(config, [arguments.host])
    if arguments.server is not None:
        if url is not None:
            raise UsageError("SERVER and --url exclude each other")
        if arguments.server.isdecimal():
            url = f"http://127.0.0.1:{arguments.server}"
        elif "://" in arguments.server:
            url = arguments.server
        else:
            named = _of_profile(config, host, arguments)
            url, profile = _address(named), named.name
            headers = headers or key_headers(named, os.environ)
    if url is None:
        raise UsageError(
            "which server?",
            hint="gpuroom bench --url http://127.0.0.1:8000, or gpuroom bench HOST SERVER",
        )
    server = endpoint.parse_url(url, headers, verify=not arguments.insecure)
    origin = Origin(arguments.origin or Origin.HOST)
    if arguments.origin and host is None:
        raise UsageError(
            "--from is for a server of a HOST", hint="without HOST the load is sent from here"
        )
    return Where(server, host, origin, profile, config)


def _of_profile(config: Config, host: HostConfig | None, arguments: argparse.Namespace) -> Profile:
    profiles = resolve_profiles(config.servers) if host is None else profiles_of(config, host)
    found = next((one for one in profiles if one.name == arguments.server), None)
    if found is None:
        known = ", ".join(one.name for one in profiles) or "none"
        raise UsageError(
            f"no server is called {arguments.server!r}",
            f"the configuration has: {known}",
            "or give its address: gpuroom bench HOST --url http://127.0.0.1:8000",
        )
    return found


def _address(profile: Profile) -> str:
    port = profile.port or profile.engine.default_port
    if port is None:
        raise UsageError(f"the port of {profile.name} is not known", hint="give --url")
    return f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def place(found: Where) -> AsyncIterator[Place]:
    """The place, for as long as the block lasts. Raises LinkError when it cannot be reached."""
    if found.host is None:
        yield here(found.server, VERSION)
        return
    async with RoomHub([found.host], found.config, terminal_prompter()) as hub:
        session = hub.session(found.host.name)
        await _reached(session)
        if found.origin is Origin.TUNNEL:
            async with tunnelled(session, found.server, VERSION) as through:
                yield through
        elif found.origin is Origin.JUMPBOX:
            yield from_here(session, found.server, VERSION)
        else:
            if found.profile is not None and not found.server.tls:
                await _listening(session, found)
            yield beside(session, found.server, VERSION, found.host.python)


async def _listening(session: HostSession, found: Where) -> None:
    """Wait a little for a server of the configuration that is about to listen.

    That of a demo host starts with its host. Raises Unreachable with the way to one that runs.
    """
    ask = through(session, found.server)
    began_s = SYSTEM_CLOCK.monotonic_s()
    while True:
        try:
            await ask("GET", "/")
        except Unreachable as error:
            if SYSTEM_CLOCK.monotonic_s() - began_s > LISTEN_S:
                raise Unreachable(
                    error.title,
                    error.detail,
                    f"`gpuroom start {found.profile} --wait` starts it, "
                    f"`gpuroom wait-ready {found.profile}` waits for it",
                ) from error
            await asyncio.sleep(LISTEN_POLL_S)
        else:
            return


async def _reached(session: HostSession) -> None:
    """Wait until the host has given a sample, so that the environment is known."""
    began_s = SYSTEM_CLOCK.monotonic_s()
    while True:
        snapshot = session.snapshot
        link, readings = snapshot.link, snapshot.readings
        waited_s = SYSTEM_CLOCK.monotonic_s() - began_s
        known = snapshot.driver is not None and None not in (
            readings.kernel,
            readings.memory_total_bytes,
        )
        if snapshot.sampled_s is not None and (known or waited_s > WHOLE_S):
            return
        late = waited_s > REACH_S
        if late or link.state is LinkState.REFUSED or (link.state is LinkState.LOST and link.error):
            raise LinkError(
                f"cannot reach {session.name}", link.error or link.state.value, link.hint
            )
        await asyncio.sleep(POLL_S)
