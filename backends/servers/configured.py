"""The profiles of a host, as configured; a demo host brings its own."""

from __future__ import annotations

from backends.config import Config, HostConfig
from backends.servers.profiles import Profile, resolve_profiles


def profiles_of(config: Config, host: HostConfig) -> tuple[Profile, ...]:
    """Every profile that names the host.

    Raises:
        ConfigError: A `[[servers]]` table is wrong.
    """
    return tuple(
        profile for profile in resolve_profiles(config.servers) if profile.host == host.name
    )
