"""`gpuroom config`: check the configuration, write a commented one, say where it lies.

`gpuroom config PROFILE --effective` lays beside what a server was asked what it runs with.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from backends import config, paths
from backends.errors import UsageError

EFFECTIVE = "server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the three verbs, and the profile that may stand in their place."""
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB | PROFILE", action=_VerbOrProfile
    )
    # Any first word that is no verb is a profile.
    verbs.choices = None  # type: ignore[assignment]
    check = verbs.add_parser("check", help="say whether the configuration can be used")
    check.add_argument("--config", type=Path, metavar="FILE", help="another file than the own one")
    init = verbs.add_parser("init", help="write the commented sample to the own place")
    init.add_argument("--config", type=Path, metavar="FILE", help="another place")
    verbs.add_parser("path", help="say where the configuration and all other files lie")
    effective = verbs.add_parser(EFFECTIVE, help="what a server was asked, and what it runs with")
    from tui.cli.config_effective import add_arguments as add_effective

    add_effective(effective)


class _VerbOrProfile(argparse._SubParsersAction):  # type: ignore[type-arg]
    """`gpuroom config glm ...` means `gpuroom config server glm ...`."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        if values[0] not in self._name_parser_map:
            values = [EFFECTIVE, *values]
        super().__call__(parser, namespace, values, option_string)


def run(arguments: argparse.Namespace) -> int:
    """Carry out one verb.

    Raises:
        ConfigError: The file can't be used.
        UsageError: `init` would overwrite a file.
    """
    if arguments.verb == EFFECTIVE:
        from tui.cli.config_effective import run as run_effective

        return run_effective(arguments)
    if arguments.verb == "path":
        for name, place in (
            ("configuration", paths.config_file()),
            ("state", paths.state_file()),
            ("known hosts", paths.known_hosts_file()),
            ("data", paths.data_dir()),
            ("logs", paths.log_dir()),
        ):
            print(f"{name:<14}{place}{'' if place.exists() else '  (not there yet)'}")
        return 0
    path: Path = arguments.config or paths.config_file()
    if arguments.verb == "init":
        write_sample(path)
        print(f"written: {path}")
        return 0
    from backends.servers.profiles import resolve_profiles

    found = config.load(path)
    profiles = resolve_profiles(found.servers, path=path)
    hosts = ", ".join(host.name for host in found.hosts) or "no hosts"
    servers = f"; servers: {', '.join(each.name for each in profiles)}" if profiles else ""
    print(f"{path}: fine ({hosts}{servers})", file=sys.stdout)
    return 0


def write_sample(path: Path) -> None:
    """Write the commented sample to `path`, which must not exist yet.

    Raises:
        UsageError: It exists, or can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(sample())
    except FileExistsError:
        raise UsageError("there is a configuration already", str(path), "edit that one") from None
    except OSError as error:
        raise UsageError("cannot write the configuration", f"{path}: {error.strerror}") from None


def sample() -> str:
    """The commented sample, from the wheel or from the checkout."""
    import tui

    packaged = Path(tui.__file__).parent / "config.default.toml"
    if packaged.exists():
        return packaged.read_text(encoding="utf-8")
    return (Path(tui.__file__).parent.parent / "config.toml").read_text(encoding="utf-8")
