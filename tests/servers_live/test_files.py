"""A followed file loses no byte and doubles none, whatever happens to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from backends.errors import AgentError
from tests.servers_live.conftest import DEADLINE_S, Host


class Reader:
    """Follows a file and remembers where it is."""

    def __init__(self, host: Host, path: Path) -> None:
        self._host = host
        self._path = path
        self.data = b""
        self.events: list[str] = []
        self.place: dict[str, object] = {"offset": 0}
        self._pieces: AsyncGenerator[Any, None] | None = None

    async def until(self, test: Any) -> None:
        """Read on until `test()`."""
        async with asyncio.timeout(DEADLINE_S):
            while not test():
                if self._pieces is None:
                    params = {"path": str(self._path), **self.place}
                    stream = self._host.client.stream("files.follow", params)
                    assert isinstance(stream, AsyncGenerator)
                    self._pieces = stream
                self._take(await anext(self._pieces))

    def _take(self, piece: Any) -> None:
        if "event" in piece:
            self.events.append(piece["event"])
            return
        data = zlib.decompress(base64.b64decode(piece["z"]))
        self.data += data
        end = piece["o"] + len(data)
        tail = base64.b64encode(self.data[-64:][-end:] if end else b"").decode()
        self.place = {"offset": end, "inode": piece["i"], "tail": tail}

    async def leave(self) -> None:
        if self._pieces is not None:
            await self._pieces.aclose()
            self._pieces = None


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b"line %07d\n" % n for n in range(start, start + count))


async def test_append_rotate_truncate_delete(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(lines(1000))
    reader = Reader(host, path)
    await reader.until(lambda: len(reader.data) == len(lines(1000)))
    with path.open("ab") as file:
        file.write(lines(5, 1000))
        file.flush()
        os.rename(path, tmp_path / "server.log.1")
        file.write(lines(5, 1005))  # the writer still has the old file
        file.flush()
    path.write_bytes(lines(10, 1010))
    await reader.until(lambda: reader.data == lines(1020))
    assert reader.events == ["rotated"]
    with path.open("r+b") as file:  # copytruncate
        file.truncate(0)
        file.write(lines(3, 1020))
    await reader.until(lambda: reader.data == lines(1023))
    assert reader.events[-1] == "truncated"
    path.unlink()
    await reader.until(lambda: reader.events[-1] == "deleted")
    path.write_bytes(lines(2, 1023))
    await reader.until(lambda: reader.data == lines(1025))
    await reader.leave()


async def test_a_hundred_rotations_and_reconnections(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    reader = Reader(host, path)
    written = 0

    def all_read() -> bool:
        return len(reader.data) == written * 13

    for turn in range(100):
        with path.open("ab") as file:
            file.write(lines(37, written))
        written += 37
        if turn % 2 or turn == 0:
            await reader.until(all_read)
        if turn % 3 == 0:
            await reader.leave()
        for old in range(min(turn, 5), 0, -1):
            os.replace(f"{path}.{old}" if old else path, f"{path}.{old + 1}")
        os.replace(path, f"{path}.1")
        path.write_bytes(b"")
    await reader.until(all_read)
    assert reader.data == lines(written)
    assert "lost" not in reader.events
    await reader.leave()


async def test_what_is_gone_for_good_is_said(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(lines(10))
    reader = Reader(host, path)
    await reader.until(lambda: len(reader.data) == 130)
    await reader.leave()
    path.unlink()
    (tmp_path / "keeps-the-inode-away").write_bytes(b"x")
    path.write_bytes(lines(3, 50))
    await reader.until(lambda: reader.data.endswith(lines(3, 50)))
    assert reader.events == ["lost"]
    await reader.leave()


async def test_from_the_end_of_a_large_sparse_file(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        file.truncate(5 << 30)
        file.seek(5 << 30)
        file.write(lines(100))
    stat = await host.ask("files.stat", path=str(path))
    assert stat["size"] == (5 << 30) + 1300
    piece = await host.ask("files.read", path=str(path), offset=5 << 30, size=26)
    assert zlib.decompress(base64.b64decode(piece["z"])) == lines(2)
    reader = Reader(host, path)
    reader.place = {"offset": -1300}
    await reader.until(lambda: len(reader.data) == 1300)
    assert reader.data == lines(100)
    await reader.leave()


async def test_what_is_no_file_is_refused(host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AgentError, match="not a regular file"):
        await host.ask("files.stat", path=str(tmp_path))
    with pytest.raises(AgentError, match="not a regular file"):
        await host.ask("files.stat", path=str(tmp_path / "pipe"))
    with contextlib.suppress(FileNotFoundError):
        assert await host.ask("files.stat", path=str(tmp_path / "none")) == {"missing": True}
