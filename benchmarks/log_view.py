"""What the log screen costs: a large log on screen, and a fast one followed.

    python benchmarks/log_view.py [--gigabytes 5] [--seconds 10] [--rate 50000]

The file is made of real lines in the folder for temporary files, and deleted afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
from textual.events import Key
from textual.geometry import Region
from textual.strip import Strip

from backends.config import Config, HostConfig
from backends.servers.logstore import LogStore
from screens.log import LogScreen, host_of
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.shell import Shell
from tui.themes import make_look


def line(number: int) -> bytes:
    stamp = f"2026-03-14 09:{number // 60 % 60:02d}:{number % 60:02d}"
    return b"[%s TP%d] Decode batch, running: %9d, token usage: 0.61, gen throughput: 812.44\n" % (
        stamp.encode(), number % 8, number,
    )  # fmt: skip


def write_large(path: Path, size: int) -> None:
    block = b"".join(line(n) for n in range(100_000))
    with path.open("wb", buffering=0) as file:
        while file.tell() < size:
            file.write(block)
        file.write(b"the last line\n")


def write_fast(path: Path, rate: int, seconds: float) -> None:
    """Write at a rate, and say how many lines a second it really was."""
    count, total, began_s = 0, int(rate * seconds), time.perf_counter()
    with path.open("ab", buffering=0) as file:
        while count < total:
            due = min(total, int((time.perf_counter() - began_s) * rate)) - count
            if due > 0:
                file.write(b"".join(line(count + n) for n in range(due)))
                count += due
            time.sleep(0.02)
    print(count, count / (time.perf_counter() - began_s))


async def writer_of(path: Path, rate: int, seconds: float) -> tuple[int, float]:
    """The same in a process of its own: lines, and lines a second."""
    argv = [__file__, "--write", str(path), "--rate", str(rate), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    count, per_s = out.split()
    return int(count), float(per_s)


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    large, fast = folder / "large.log", folder / "fast.log"
    await asyncio.to_thread(write_large, large, int(arguments.gigabytes * 1e9))
    fast.write_bytes(b"")
    config, host = Config(), HostConfig(name="local")
    shell = Shell(make_look("dark", ascii_set=False), [host])
    app = RoomApp(shell, HubFromConfig(config, [host]))
    async with app.run_test(size=(120, 40)) as pilot:
        while shell.snapshot().link.state.value != "live":  # noqa: ASYNC110 - no callbacks
            await asyncio.sleep(0.05)
        base = psutil.Process().memory_info().rss / 2**20
        began_s = time.perf_counter()
        screen = LogScreen(shell, LogStore(host_of(shell, "local"), str(large)), "large.log")
        await app.push_screen(screen)
        while not screen.view.shown():
            await asyncio.sleep(0.002)
            app.pump.draw()
        await asyncio.sleep(0)
        opened_ms = (time.perf_counter() - began_s) * 1000
        for key in ("g", "pagedown", "pagedown", "G", "k", "pageup"):
            await pilot.press(key)
            await asyncio.sleep(0.3)
        grown = psutil.Process().memory_info().rss / 2**20 - base
        print(f"{large.stat().st_size / 1e9:.1f} GB on screen     {opened_ms:7.0f} ms   (300)")
        print(f"memory for it            {grown:7.0f} MB   (100)")
        await app.pop_screen()
        screen = LogScreen(shell, LogStore(host_of(shell, "local"), str(fast)), "fast.log")
        await app.push_screen(screen)
        painted = asyncio.Event()
        render = screen.view.render_lines

        def render_lines(crop: Region) -> list[Strip]:
            painted.set()
            return render(crop)

        screen.view.render_lines = render_lines  # type: ignore[method-assign]
        while screen.store.state == "opening" and not screen.store.text.segments:
            await asyncio.sleep(0.05)
            fast.write_bytes(line(0))
        writer = asyncio.create_task(writer_of(fast, arguments.rate, arguments.seconds))
        paints: list[float] = []
        while not writer.done():
            for key in ("k", "F"):
                painted.clear()
                pressed_s = time.perf_counter()
                app.post_message(Key(key, key))
                await painted.wait()
                paints.append((time.perf_counter() - pressed_s) * 1000)
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.1)
        written, per_s = await writer
        deadline_s = time.perf_counter() + 20
        while screen.store.text.newlines <= written and time.perf_counter() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        p95 = statistics.quantiles(paints, n=20)[-1]
        print(f"lines a second           {per_s:7.0f}      ({arguments.rate})")
        print(f"key to paint, p95        {p95:7.1f} ms   (50), of {len(paints)} keys")
        print(f"lines lost               {written + 1 - screen.store.text.newlines:7d}      (0)")
        app.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write_fast(arguments.write, arguments.rate, arguments.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments, Path(folder)))


if __name__ == "__main__":
    main()
