"""The agent asks HTTP on its own loopback and says what came of it."""

from __future__ import annotations

import asyncio

import pytest

from backends.errors import AgentError
from tests.servers_live.conftest import Host
from tests.servers_live.test_runs import free_port


async def serve(answer: bytes) -> tuple[asyncio.Server, int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not answer:
            await reader.read()  # until the other side gives up
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", {"status": 200, "body": "ok"}),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", {"status": 503, "body": ""}),
        (b"", {"error": "timeout"}),
    ],
)
async def test_answers(host: Host, answer: bytes, expected: dict[str, object]) -> None:
    server, port = await serve(answer)
    async with server:
        found = await host.ask("http.ask", port=port, path="/health", timeout_s=0.5)
    assert expected.items() <= found.items()


async def test_nobody_there_and_what_is_no_http(host: Host) -> None:
    found = await host.ask("http.ask", port=free_port(), path="/health")
    assert found["error"] == "refused"
    server, port = await serve(b"SSH-2.0-whatever\r\n\r\n")
    async with server:
        found = await host.ask("http.ask", port=port, path="/health")
    assert "BadStatusLine" in found["error"]


async def test_a_path_cannot_smuggle(host: Host) -> None:
    with pytest.raises(AgentError, match="not a path"):
        await host.ask("http.ask", port=1, path="/x HTTP/1.1\r\nX: y")
