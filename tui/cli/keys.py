"""`gpuroom keys`: every key, with the user's own changes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from backends import config as configuration
from tui.actions import ACTIONS, AREAS, in_area, keys_text, markdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Form of the output, configuration."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one object an action")
    form.add_argument("--markdown", action="store_true", help="docs/keys.md: the keys as shipped")
    parser.add_argument("--config", type=Path, help="configuration file to use")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if arguments.markdown:
        print(markdown(), end="")
        return 0
    keymap = configuration.load(arguments.config).keys
    if arguments.json:
        table = [
            {
                "id": action.id,
                "keys": keymap.get(action.id, action.keys).split(","),
                "default_keys": action.keys.split(","),
                "help": action.help,
                "changes_host": action.changes_host,
            }
            for action in ACTIONS
        ]
        print(json.dumps(table, indent=2))
        return 0
    for area, title in AREAS.items():
        if in_area(area):
            print(title)
        for action in in_area(area):
            keys = keys_text(keymap.get(action.id, action.keys))
            print(f"  {keys:<16} {action.help:<50} {action.id}")
    return 0
