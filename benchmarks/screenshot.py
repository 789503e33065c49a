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
from tui.shell import Shell
from tui.themes import make_look

CELL = 12.2
"""Width of a cell in Rich's SVG."""


def neater(svg: str) -> str:
    """Spaces at the start of a text become an offset: not every viewer keeps them."""

    def move(match: re.Match[str]) -> str:
        attributes, text = match[1], match[2]
        stripped = text
        while stripped.startswith("&#160;"):
            stripped = stripped.removeprefix("&#160;")
        count = (len(text) - len(stripped)) // len("&#160;")
        if not count or not stripped:
            return match[0]

        def shift(name: str, by: float, attributes: str) -> str:
            return re.sub(
                rf'\b{name}="([\d.]+)"',
                lambda m: f'{name}="{round(float(m[1]) + by, 1)}"',
                attributes,
                count=1,
            )

        attributes = shift("x", CELL * count, attributes)
        attributes = shift("textLength", -CELL * count, attributes)
        return f"<text{attributes}>{stripped}</text>"

    svg = re.sub(r"<text([^>]*)>([^<]*)</text>", move, svg)
    # One name a picture: the same screen gives the same file.
    return re.sub(r"terminal-\d+-", "terminal-", svg)


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
        return neater(app.export_screenshot(title="gpuroom gpu01"))


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
