"""A store on a real agent: nothing lost or doubled through rotations and cut links."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

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
