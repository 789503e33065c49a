"""Where the server is, and small requests to it: for everything but the measured load."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from backends.errors import RoomError, UsageError
from backends.text import clean

MAX_REPLY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address.

    Attributes:
        host: Name or address.
        port: TCP port.
        tls: Whether to speak TLS.
        base_path: What stands before every path, without a slash at its end.
        headers: Sent with every request; may hold a key, so it is never stored or shown.
        verify: Whether the certificate must be good.
        shown: What people are told instead of the address: of a tunnel, its other end.
    """

    host: str
    port: int
    tls: bool = False
    base_path: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    verify: bool = True
    shown: str = ""

    @property
    def authority(self) -> str:
        """Host and port as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address for people: no user name, password or query."""
        return self.shown or f"{'https' if self.tls else 'http'}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body and headers (lower case) of an answer."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.status < 300

    def json(self) -> object:
        """The body as JSON; None if it is none."""
        try:
            decoded: object = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return decoded

    def fields(self) -> dict[str, object]:
        """The body as a JSON object; empty if it is none."""
        value = self.json()
        return value if isinstance(value, dict) else {}

    def words(self) -> str:
        """The beginning of the body, cleaned, for a message."""
        return clean(self.body[:400].decode("utf-8", "replace"), 300)


class Fetch(Protocol):
    """One small request: by this machine, or by the agent on the server's host."""

    def __call__(
        self, method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Awaitable[Reply]:
        """The answer, whatever its status. Raises Unreachable."""
        ...


class Unreachable(RoomError):
    """The server gave no answer."""

    exit_code = 3


def parse_url(url: str, headers: dict[str, str] | None = None, verify: bool = True) -> Endpoint:
    """An endpoint from a URL. Raises UsageError with what is wrong with it."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"not a URL: {clean(url)}", str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"not a URL: {clean(url)}", hint="such as http://127.0.0.1:8000 or https://host/prefix"
        )
    if parts.username or parts.password:
        raise UsageError(
            "a URL with a user name or password is not accepted",
            hint="give a key with --api-key-env NAME",
        )
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        path = path.removesuffix("/v1")  # As clients of the OpenAI API are told their base.
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if tls else 80),
        tls=tls,
        base_path=path,
        headers=dict(headers or {}),
        verify=verify,
    )


def direct(endpoint: Endpoint) -> Fetch:
    """Requests from this machine, each in a thread, since they are few."""

    async def fetch(
        method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        try:
            # The thread ends by its own socket timeout; this deadline covers a trickling server.
            async with asyncio.timeout(timeout_s + 1.0):
                return await asyncio.to_thread(_request, endpoint, method, path, body, timeout_s)
        except TimeoutError as error:
            raise _unreachable(endpoint, f"no answer to {path} within {timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(endpoint, str(error) or type(error).__name__) from error

    return fetch


def _unreachable(endpoint: Endpoint, words: str) -> Unreachable:
    return Unreachable(
        f"no answer from {endpoint.url}", clean(words), "is the server up, and is this its port?"
    )


def _request(endpoint: Endpoint, method: str, path: str, body: object, timeout_s: float) -> Reply:
    connection: http.client.HTTPConnection
    if endpoint.tls:
        context = ssl.create_default_context()
        if not endpoint.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    try:
        headers = {"accept-encoding": "identity", "user-agent": "gpuroom", **endpoint.headers}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        connection.request(method, endpoint.base_path + path, body=data, headers=headers)
        response = connection.getresponse()
        return Reply(
            response.status,
            response.read(MAX_REPLY_BYTES),
            {name.lower(): value for name, value in response.getheaders()},
        )
    finally:
        connection.close()
