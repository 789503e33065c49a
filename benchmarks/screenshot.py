"""The picture of the README: the demo's room, drawn off screen after it has run for a while.

python benchmarks/screenshot.py docs/room.svg [--seconds 25] [--scenario NAME] [--size 120x36]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from backends.config import Config, HostConfig
from backends.telemetry.history import Window
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.picture import neater
from tui.shell import Shell
from tui.themes import make_look


async def picture(scenario: str, seconds: float, size: tuple[int, int]) -> str:
    name = f"demo:{scenario}" if scenario else "demo"
    host = HostConfig(name="gpu01", target=name)
    config = Config(hosts=(host,))
    shell = Shell(make_look("dark", ascii_set=False), [host], config=config, window=Window.MINUTE)
    app = RoomApp(shell, HubFromConfig(config, [host]))
    async with app.run_test(size=size, notifications=False) as pilot:
        await pilot.pause(seconds)
        app.pump.draw(force=True)
        await pilot.pause()
        svg = neater(app.export_screenshot(title="gpuroom gpu01"))
        # One name a picture: the same screen gives the same file.
        return re.sub(r"terminal-\d+-", "terminal-", svg)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scenario", default="straggler")
    parser.add_argument("--size", default="120x36")
    arguments = parser.parse_args()
    columns, rows = (int(part) for part in arguments.size.split("x"))
    svg = asyncio.run(picture(arguments.scenario, arguments.seconds, (columns, rows)))
    arguments.file.write_text(svg + "\n", encoding="utf-8")
    print(f"{arguments.file}: {len(svg)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
