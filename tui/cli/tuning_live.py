"""`gpuroom tuning HOST`: judge a host as it is now."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from backends import config as configuration
from backends.config import Config, HostConfig
from backends.errors import ConfigError
from backends.hub import RoomHub
from backends.session import HostSession
from backends.tuning.engine import Options, evaluate
from backends.tuning.gather import Gathered, gather
from tui.cli.prompts import terminal_prompter
from tui.cli.reading import reading_of


def machines(config: Config, name: str) -> tuple[HostConfig, HostConfig | None]:
    """A host, and the hypervisor below it where the configuration names one."""
    (host,) = configuration.resolve_hosts(config, [name])
    if host.hypervisor is None:
        return host, None
    below = next((h for h in config.hosts if h.name == host.hypervisor), None)
    if below is None:
        raise ConfigError(f"there is no host {host.hypervisor!r}", hint="see hosts.hypervisor")
    return host, below


@contextlib.asynccontextmanager
async def opened(
    config: Config, name: str
) -> AsyncIterator[tuple[HostSession, HostSession | None]]:
    """Sessions of a host and of the hypervisor below it, while the block runs."""
    host, below = machines(config, name)
    hosts = [host] if below is None else [host, below]
    async with RoomHub(hosts, config, terminal_prompter()) as hub:
        yield hub.sessions[0], hub.sessions[1] if below is not None else None


async def gather_host(config: Config, arguments: argparse.Namespace) -> Gathered:
    """The facts of the host that the command names."""
    reading = reading_of(arguments)
    async with opened(config, arguments.host) as (session, below):
        return await gather(session, hypervisor=below, reading=reading, timeout_s=arguments.timeout)


def judge(arguments: argparse.Namespace, options: Options) -> int:
    """`gpuroom tuning HOST`: gather, judge, print; the exit status says how bad it is."""
    from tui.cli.tuning import show

    config = configuration.load(arguments.config)
    gathered = asyncio.run(gather_host(config, arguments))
    for note in gathered.notes:
        print(f"note: {note}", file=sys.stderr)
    findings = evaluate(gathered.document, options)
    return show(arguments, findings, gathered.document)
