"""How a host is judged: the configuration, the files it names, and the waivers that were kept.

The screen and the command line both ask here, so that they judge alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backends.config import Config, HostConfig
from backends.errors import ConfigError
from backends.tuning import waivers
from backends.tuning.custom import Custom, CustomCheck, known_check, parse
from backends.tuning.engine import Options
from backends.tuning.profiles import NAMES, load

DEFAULT: Final = NAMES[0]


def profile_of(config: Config, host: HostConfig) -> str:
    """Name of the profile that is configured for a host."""
    return host.tuning.profile or config.tuning.profile or DEFAULT


def options_for(
    config: Config,
    host: HostConfig,
    *,
    profile: str = "",
    files: Sequence[Path] = (),
    only_touched: bool = False,
) -> Options:
    """How a host is judged. Reads files: not from the event loop.

    What is said later wins: files of the room, files of the host, the tables themselves, `files`.

    Args:
        config: The configuration.
        host: The host; one that is not configured has a name alone.
        profile: Chosen now, in the place of the configured one.
        files: Of the operator's own checks, besides the configured ones.
        only_touched: See `Options`.

    Raises:
        ConfigError: A file cannot be read, or says something wrong; with its place.
    """
    tables = (config.tuning, host.tuning)
    checks: list[CustomCheck] = []
    paths = [Path(name) for table in tables for name in table.checks]
    configured = _read(paths, checks)
    named = _read([one for one in files if one not in paths], checks)
    expected: dict[str, str] = {}
    for custom in configured:
        expected |= custom.expected
    for table in tables:
        for check, value in table.expected.items():
            known_check(check, {one.id for one in checks}, None, None)
            expected[check] = str(value)
    for custom in named:
        expected |= custom.expected
    uses = [
        *(custom.use for custom in named[::-1]),
        host.tuning.use or "any",
        config.tuning.use or "any",
        *(custom.use for custom in configured[::-1]),
    ]
    accepted = [one for custom in (*configured, *named) for one in custom.waivers]
    return Options(
        profile=load(profile or profile_of(config, host)),
        only_touched=only_touched,
        checks=checks,
        waivers=[one for one in (*accepted, *waivers.load()) if one.host in ("", host.name)],
        expected=expected,
        use=next((use for use in uses if use != "any"), "any"),
        today=waivers.today().isoformat(),
    )


def _read(paths: Sequence[Path], checks: list[CustomCheck]) -> list[Custom]:
    """The files in order; their checks are added to `checks`, whose ids stay unlike."""
    found = []
    for path in dict.fromkeys(paths):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the file of checks: {error}",
                path=path,
                hint="`tuning.checks` of the configuration, or --checks, names it",
            ) from error
        custom = parse(text, path, {one.id for one in checks})
        checks += custom.checks
        found.append(custom)
    return found
