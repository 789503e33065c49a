"""A host with neither python3 nor nvidia-smi: that it answers, and nothing else.

A hypervisor whose GPUs are all passed through has no driver, and often no python3; its facts are
read with its own tools (`backends.tuning.posix`). One `cat` stays open and returns what it is sent:
a sign of life that starts no process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from backends.agent import agentless
from backends.agent.client import NotificationHandler
from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import AgentError, LinkError, RequestTimeout
from backends.link.base import Channel, Transport
from backends.model import HOST_READINGS, Lane
from backends.text import clean

NOTE: Final = (
    "neither python3 nor nvidia-smi can be run on this host: no readings. Its tuning facts are "
    "read with its own tools; every change needs python3 there"
)
MISSING: Final = "no nvidia-smi on the host: no driver, or the GPUs are passed through"
NEEDS_PYTHON: Final = "needs python3 on the host"
FILE_BYTES: Final = 4096
ECHO_S: Final = 5.0
_BOOT_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class BareClient:
    """A held `cat` on one host, behind the protocol of `Source`."""

    via = "tools"

    def __init__(
        self,
        transport: Transport,
        *,
        on_notification: NotificationHandler,
        clock: Clock = SYSTEM_CLOCK,
        interval_s: float = 1.0,
    ) -> None:
        self._transport = transport
        self._on_notification = on_notification
        self._clock = clock
        self._interval_s = interval_s
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._asking = asyncio.Lock()
        self._ended = asyncio.Event()
        self._end_reason = ""

    async def start(self, timeout_s: float) -> None:
        """Make sure that it is a Linux with `cat`, and hold one.

        Raises:
            AgentError: It is not.
            LinkError: The host can't be reached.
        """
        try:
            async with asyncio.timeout(timeout_s):
                boot_id = await self._file("/proc/sys/kernel/random/boot_id")
                if _BOOT_ID.fullmatch(boot_id) is None:
                    raise AgentError("the host has no Linux tools either", clean(boot_id, 200))
                hostname = await self._file("/proc/sys/kernel/hostname")
                self._channel = await self._transport.open(["cat"])
        except FileNotFoundError as error:
            raise AgentError("the host has no Linux tools either", str(error)) from error
        except TimeoutError:
            raise AgentError(f"cat did not answer within {timeout_s:g} s") from None
        self._on_notification("hello", agentless.hello(hostname, boot_id, self._interval_s, {}))
        self._on_notification("note", {"text": NOTE})
        self._on_notification(
            "driver",
            {
                "state": "missing",
                "version": None,
                "cuda_version": None,
                "detail": MISSING,
                "age_s": 0.0,
            },
        )
        self._on_notification("gpus", {"gpus": [], "h": {}})
        host = {spec.key: NEEDS_PYTHON for spec in HOST_READINGS}
        self._on_notification("absent", {"g": [], "h": host})
        self._task = asyncio.create_task(self._live(), name="bare-host")

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Answer what can be answered without an agent.

        Raises:
            AgentError: It can't be done without python3 on the host.
            RequestTimeout: The host returned nothing in time.
        """
        if self._ended.is_set():
            raise AgentError("the host no longer answers", self._end_reason)
        if method == "ping":
            await self._echo(timeout_s)
            return {"t": self._now_ns()}
        if method == "refresh":
            self._wake.set()
            return {}
        if method == "set_interval":
            self._interval_s = agentless.interval_of(params)
            self._wake.set()
            return {"seconds": self._interval_s}
        raise agentless.refusal(method)

    async def closed(self) -> str:
        """Wait until it has ended for good and say why, in words."""
        await self._ended.wait()
        return self._end_reason

    async def close(self) -> None:
        """End it. Never raises."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        self._end("closed here")

    async def _file(self, path: str) -> str:
        channel = await self._transport.open(["cat", path])
        try:
            data = b""
            while len(data) < FILE_BYTES and (chunk := await channel.read(FILE_BYTES)):
                data += chunk
            return data.decode("utf-8", "replace").strip() or await channel.stderr_tail()
        finally:
            await channel.close()

    async def _live(self) -> None:
        """A sign of life an interval, for as long as there is one."""
        try:
            while True:
                try:
                    await self._echo(ECHO_S)
                except RequestTimeout:
                    continue  # the lifeline sees the silence, and gives it up when it is too long
                self._on_notification(Lane.FAST.value, {"t": self._now_ns(), "g": [], "h": []})
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        except (AgentError, LinkError) as error:
            self._end(str(error))
        except asyncio.CancelledError:
            self._end("closed here")
            raise
        except Exception as error:
            self._end(f"{type(error).__name__}: {error}")

    async def _echo(self, timeout_s: float) -> None:
        """Send a line and take one back; a late one of before counts, since it lives either way."""
        channel = self._channel
        if channel is None:
            raise AgentError("the host no longer answers", self._end_reason)
        try:
            async with asyncio.timeout(timeout_s), self._asking:
                await channel.write(b"\n")
                if not await channel.read():
                    raise AgentError("cat has ended on the host")
        except TimeoutError:
            raise RequestTimeout(f"the host returned nothing within {timeout_s:g} s") from None

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * 1e9)

    def _end(self, reason: str) -> None:
        if not self._ended.is_set():
            self._end_reason = clean(reason)
            self._ended.set()
