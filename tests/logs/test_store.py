"""A store on a real agent: nothing lost or doubled through rotations and cut links."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.logquery import Query
from backends.servers.logstore import LogStore
from backends.servers.logtext import Item
from tests.logs.conftest import RealHost


async def texts(store: LogStore) -> list[str]:
    found: list[str] = []

    def take(item: Item) -> bool:
        if item.line is not None:
            found.append(item.line.text)
        return True

    await store.scan(Query(), store.text.start, back=False, on_item=take)
    return found


async def test_rotations_and_cut_links_lose_and_double_nothing(
    host: RealHost, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    path.write_text("")
    store = LogStore(host, str(path))
    running = asyncio.create_task(store.run())
    written = 0
    try:
        for turn in range(100):
            with path.open("a") as file:
                for _ in range(7):
                    file.write(f"line {written}\n")
                    written += 1
            if turn in (20, 60):
                await host.connect()
            for old in range(min(turn, 5), 0, -1):
                os.replace(f"{path}.{old}", f"{path}.{old + 1}")
            async with asyncio.timeout(60):
                while store.text.newlines < written:
                    store.changed.clear()
                    await store.changed.wait()
            os.replace(path, f"{path}.1")
            path.write_text("")
        assert await texts(store) == [f"line {n}" for n in range(written)]
        assert len(store.text.segments) == 100
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(store: LogStore, lines: int) -> None:
    async with asyncio.timeout(60):
        while store.text.newlines < lines:
            store.changed.clear()
            await store.changed.wait()


async def test_a_copied_and_emptied_file_loses_nothing(host: RealHost, tmp_path: Path) -> None:
    path, written = tmp_path / "server.log", 0
    path.write_text("")
    store = LogStore(host, str(path))
    running = asyncio.create_task(store.run())
    try:
        for turn in range(10):
            with path.open("a") as file:
                for _ in range(50):
                    file.write(f"this is line number {written}\n")
                    written += 1
            if turn == 0:
                await until(store, written)  # its place must be known before
            # Copied and emptied before what was just written can have been read.
            (tmp_path / f"server.log.{turn + 1}").write_bytes(path.read_bytes())
            path.write_bytes(b"")
            await until(store, written)
            with path.open("a") as file:
                file.write(f"this is line number {written}\n")
                written += 1
            await until(store, written)
        assert await texts(store) == [f"this is line number {n}" for n in range(written)]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_a_command_prints_goes_on_behind_a_cut_link(
    host: RealHost, tmp_path: Path
) -> None:
    path = tmp_path / "printed"
    path.write_text("")
    place = LogPlace(LogKind.COMMAND, argv=("tail", "-n", "+1", "--follow", str(path)))
    store = LogStore(host, place)
    running = asyncio.create_task(store.run())
    written = 0
    try:
        for turn in range(6):
            with path.open("a") as file:
                for _ in range(2000):
                    file.write(f"line {written}\n")
                    written += 1
            if turn % 2:
                await host.connect()
            await until(store, written)
        assert await texts(store) == [f"line {n}" for n in range(written)]
        path.write_text("another\n")  # less than was seen: it is another log by now
        await host.connect()
        # The command of before may have told of it too, before its link was cut.
        async with asyncio.timeout(60):
            while not any("read anew" in segment.mark for segment in store.text.segments):
                store.changed.clear()
                await store.changed.wait()
        await until(store, written + 1)
        assert (await texts(store))[-1] == "another"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
