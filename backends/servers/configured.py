"""The profiles of a host, as configured; a demo host brings its own."""

from __future__ import annotations

from backends.config import Config, HostConfig
from backends.link.target import DEMO_PREFIX
from backends.servers.profiles import Profile, resolve_profiles
from backends.sim.profiles import demo_tables, port_of


def profiles_of(config: Config, host: HostConfig) -> tuple[Profile, ...]:
    """Every profile that names the host.

    Raises:
        ConfigError: A `[[servers]]` table is wrong.
    """
    tables = [*config.servers]
    target = host.target or host.name
    if target == "demo" or target.startswith(DEMO_PREFIX):
        written = {str(table.get("name")) for table in tables}
        own = demo_tables(host.name, port_of(host.name))
        tables += [table for table in own if table["name"] not in written]
    return tuple(profile for profile in resolve_profiles(tables) if profile.host == host.name)
