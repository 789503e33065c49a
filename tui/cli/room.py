"""`gpuroom HOST...`: open the control room."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from backends import config as configuration
from backends.config import Config, HostConfig
from backends.errors import UsageError
from backends.sim import scenarios
from backends.state import RoomState, load_state, save_state
from tui.themes import THEME_NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Hosts and options of the room."""
    parser.add_argument(
        "hosts",
        nargs="*",
        metavar="HOST",
        help="alias of ~/.ssh/config, user@host:port, a configured name, local, demo or "
        "demo:SCENARIO; none opens every configured host",
    )
    parser.add_argument("--config", type=Path, help="configuration file to use")
    parser.add_argument(
        "--read-only", action="store_true", help="refuse everything that changes a host"
    )
    parser.add_argument("--scenario", help="what the demo host does (with `demo`)")
    parser.add_argument("--theme", choices=("auto", *THEME_NAMES), help="colours")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII alone")
    parser.add_argument("--interval", type=float, help="seconds between samples (0.1 to 60)")


def run(arguments: argparse.Namespace) -> int:
    """Open the room, leave with its exit status."""
    config = configuration.load(arguments.config)
    hosts = named_hosts(config, arguments)
    if not hosts:
        raise UsageError(
            "no host to open",
            "none was named, and the configuration has none",
            "`gpuroom HOST` opens one, `gpuroom demo` a simulated one",
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the control room needs a terminal",
            hint="`gpuroom top HOST --once --json` gives readings to a script",
        )
    return open_room(config, hosts, arguments)


def named_hosts(config: Config, arguments: argparse.Namespace) -> tuple[HostConfig, ...]:
    """The hosts that were asked for and the hypervisors below; `--scenario` put into `demo`."""
    names = list(arguments.hosts)
    if arguments.scenario:
        if "demo" not in names:
            raise UsageError("--scenario needs the host `demo`", hint="gpuroom demo --scenario ...")
        scenarios.find(arguments.scenario)
        names = [f"demo:{arguments.scenario}" if name == "demo" else name for name in names]
    if arguments.interval is not None and not 0.1 <= arguments.interval <= 60:
        raise UsageError("--interval must be between 0.1 and 60 seconds")
    hosts = configuration.resolve_hosts(config, names)
    return configuration.with_hypervisors(config, hosts)


def open_room(config: Config, hosts: tuple[HostConfig, ...], arguments: argparse.Namespace) -> int:
    """Run the application; what was changed on screen last time holds again."""
    from tui.app import RoomApp
    from tui.hub_maker import HubFromConfig
    from tui.keymap import make_keymap
    from tui.shell import Shell
    from tui.themes import choose, make_look

    state = load_state()
    keymap = make_keymap(config.keys, arguments.config)
    theme = choose(arguments.theme or state.theme or config.screen.theme)
    hidden = config.screen.hidden_panes if state.hidden_panes is None else state.hidden_panes
    interval_s = arguments.interval or state.interval_s
    shell = Shell(
        make_look(theme, ascii_set=arguments.ascii or config.screen.ascii),
        hosts,
        config=config,
        read_only=arguments.read_only,
        sort=state.sort or config.screen.sort,
        hidden_panes=tuple(hidden),
        interval_s=interval_s,
        theme=state.theme,
        keep=keep_state,
    )
    app = RoomApp(
        shell,
        HubFromConfig(config, hosts, read_only=arguments.read_only, interval_s=interval_s),
        keymap=keymap,
        frames_per_second=config.refresh.frames_per_second,
    )
    for name in ("COLUMNS", "LINES"):
        # Exported by some shells and wrappers; the screen would never follow a resized window.
        os.environ.pop(name, None)
    app.run(mouse=False)
    if app.crashed is not None:
        from tui import crash

        crash.say(app.crashed, crash.write_report(app.crashed))
    return app.return_code or 0


def keep_state(shell: object) -> None:
    """Write what was changed on screen."""
    from tui.shell import Shell

    assert isinstance(shell, Shell)
    save_state(
        RoomState(
            interval_s=shell.interval_s,
            sort=shell.sort,
            hidden_panes=shell.hidden_panes,
            theme=shell.theme,
        )
    )
