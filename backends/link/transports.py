"""Which transport leads to which host."""

from __future__ import annotations

from backends.config import HostConfig, SshConfig
from backends.link.base import Prompter, Transport
from backends.link.limiter import Limiter
from backends.link.local import LocalTransport
from backends.link.ssh import SshTransport
from backends.link.target import DemoTarget, LocalTarget, parse_target


def transport_to(
    host: HostConfig, settings: SshConfig, prompter: Prompter, limiter: Limiter
) -> Transport:
    """A transport for one host of the configuration; nothing is connected yet.

    Raises:
        UsageError: Its target cannot be read.
    """
    target = parse_target(host.address)
    if isinstance(target, LocalTarget):
        return LocalTransport()
    if isinstance(target, DemoTarget):
        from backends.link.demo import DemoTransport

        return DemoTransport(host.name, target.scenario, settings, limiter)
    return SshTransport(host.name, target, settings, prompter, limiter)
