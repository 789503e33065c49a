"""Telemetry of a host without python3: one `nvidia-smi` that streams, as the agent would speak.

It gives the same notifications (`hello`, `driver`, `gpus`, `fast`, `slow`, `absent`, `gpu_state`),
so that nobody behind it needs to know; what can't be done this way is said in a `note`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Final

from backends.agent import agentless
from backends.agent.client import NotificationHandler
from backends.agent.smi_fields import (
    KEYS,
    NOT_TOLD,
    SmiRow,
    names_of_help,
    negotiate,
    parse_row,
    rejected_field,
)
from backends.agent.wire import LineSplitter
from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import AgentError, LinkError
from backends.link.base import Channel, Transport
from backends.model import HOST_READINGS, Lane
from backends.text import clean

NOTE: Final = (
    "there is no python3 on this host: nvidia-smi is streamed instead. Not available this way: "
    "processes, readings of the host, energy, NVLink, PCIe throughput, remapped rows, kernel log, "
    "and every change"
)
HELP_BYTES: Final = 1024 * 1024
SLOW_EVERY: Final = 5
STUCK_LEAST_S: Final = 3.0
FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 15.0
RETRY_LOST_S: Final = 60.0
MISSED_SAMPLES: Final = 2
"""A slow driver can tear a sample in two: once missed is not yet lost."""
_STATES: Final = (
    (re.compile(r"version mismatch", re.I), "mismatch"),
    (re.compile(r"insufficient permissions|permission denied", re.I), "no-permission"),
    (re.compile(r"couldn't communicate|driver not loaded|no devices were found", re.I), "missing"),
    (re.compile(r"failed to initialize NVML|NVIDIA-SMI has failed", re.I), "error"),
)
_LOST_GPU: Final = re.compile(r"GPU\s*\d*\s*:?\s*([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d)", re.I)


class Frame:
    """Collects rows to samples: a sample ends when it is complete, or when the next one begins.

    The next one begins where indices start over, whichever comes first: GPU 0 may be the one that
    is lost. How many rows make a sample is counted from one such place to the next.
    """

    def __init__(self) -> None:
        self._rows: dict[int, SmiRow] = {}
        self._last = -1
        self._counted = 0
        self.expected = 0

    def add(self, row: SmiRow) -> list[SmiRow] | None:
        """Take a row; gives the sample that it ends, if it does."""
        done: list[SmiRow] | None = None
        if row.index <= self._last:
            self.expected = self._counted
            self._counted = 0
            done = self.flush()
        self._last = row.index
        self._counted += 1
        self._rows[row.index] = row
        if done is None and self.expected and self._counted >= self.expected:
            done = self.flush()
        return done

    def flush(self) -> list[SmiRow] | None:
        """The rows so far as a sample; None where there are none."""
        rows, self._rows = list(self._rows.values()), {}
        return rows or None


class SmiClient:
    """A streamed `nvidia-smi` on one host, behind the protocol of `Source`.

    Attributes:
        garbage_lines: Lines that were no row and no known complaint.
    """

    via = "nvidia-smi"

    def __init__(
        self,
        transport: Transport,
        *,
        on_notification: NotificationHandler,
        clock: Clock = SYSTEM_CLOCK,
        interval_s: float = 1.0,
        program: str = "nvidia-smi",
    ) -> None:
        self._transport = transport
        self._on_notification = on_notification
        self._clock = clock
        self._interval_s = interval_s
        self._program = program
        self._query = negotiate(())
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._restart = False
        self._ended = asyncio.Event()
        self._end_reason = ""
        self._frame = Frame()
        self._known: dict[str, SmiRow] = {}
        self._order: list[str] = []
        self._excluded: set[str] = set()
        self._states: dict[str, str] = {}
        self._absent: list[dict[str, str]] | None = None
        self._driver: tuple[str, str, str] | None = None
        self._slow_in = 0
        self._said = ""
        self._rows_seen = 0
        self._excluded_s = 0.0
        self._missed: dict[str, int] = {}
        self.garbage_lines = 0

    async def start(self, timeout_s: float) -> None:
        """Ask what it knows, then begin to stream.

        Raises:
            AgentError: There is no nvidia-smi either, or it can't be run.
            LinkError: The host can't be reached.
        """
        try:
            async with asyncio.timeout(timeout_s):
                status, text = await self._run([self._program, "--help-query-gpu"])
                names = names_of_help(text)
                if not names and status not in (0, None):
                    raise AgentError(
                        "neither python3 nor nvidia-smi can be run on the host",
                        clean(text[-400:]),
                        "install python3 there, or check that this is the right host",
                    )
                self._query = negotiate(names)
                _, boot_id = await self._run(["cat", "/proc/sys/kernel/random/boot_id"])
                _, hostname = await self._run(["cat", "/proc/sys/kernel/hostname"])
        except TimeoutError:
            raise AgentError(
                f"nvidia-smi did not answer within {timeout_s:g} s",
                hint="the driver may hang: look at the kernel log of the host",
            ) from None
        self._tell("hello", agentless.hello(hostname, boot_id, self._interval_s, KEYS))
        self._tell("note", {"text": NOTE})
        self._task = asyncio.create_task(self._stream(), name="smi-stream")

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Answer what can be answered without an agent.

        Raises:
            AgentError: It can't be done without python3 on the host.
        """
        if self._ended.is_set():
            raise AgentError("the stream has ended", self._end_reason)
        if method == "ping":
            return {"t": self._now_ns()}
        if method == "refresh":
            self._slow_in = 0
            return {}
        if method == "set_interval":
            self._interval_s = agentless.interval_of(params)
            self._restart = True
            if self._channel is not None:
                await self._channel.close()
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
        self._end("closed here")

    async def _run(self, argv: list[str]) -> tuple[int | None, str]:
        """Run a program to its end; gives status and what it printed, bounded."""
        try:
            channel = await self._transport.open(argv)
        except FileNotFoundError as error:
            return 127, str(error)
        try:
            data = b""
            while len(data) < HELP_BYTES and (chunk := await channel.read()):
                data += chunk
            status = await channel.wait(2.0)
            text = data.decode("utf-8", "replace")
            return status, text or await channel.stderr_tail()
        finally:
            await channel.close()

    async def _stream(self) -> None:
        """Stream, and begin again when it ends, for as long as the link is there."""
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                self._rows_seen = 0
                again = await self._stream_once()
                if self._restart or again:
                    self._restart = False
                    continue
                worked = self._rows_seen > 0
                pause_s = FIRST_PAUSE_S if worked else min(LAST_PAUSE_S, pause_s * 2)
                await asyncio.sleep(pause_s)
        except LinkError as error:
            self._end(str(error))
        except asyncio.CancelledError:
            self._end("closed here")
            raise
        except Exception as error:
            self._end(f"{type(error).__name__}: {error}")

    def _argv(self) -> list[str]:
        argv = [
            self._program,
            f"--query-gpu={','.join(self._query.names)}",
            "--format=csv,noheader,nounits",
            "-lms",
            str(round(self._interval_s * 1000)),
        ]
        if self._excluded:
            rest = [uuid for uuid in self._order if uuid not in self._excluded]
            argv.append(f"--id={','.join(rest)}")
        return argv

    async def _stream_once(self) -> bool:
        """One nvidia-smi from start to end; True where it must be asked differently at once."""
        try:
            channel = await self._transport.open(self._argv())
        except FileNotFoundError as error:
            raise LinkError("nvidia-smi is gone", str(error)) from error
        self._channel = channel
        self._frame = Frame()
        self._said = ""
        splitter = LineSplitter()
        reading: asyncio.Task[bytes] | None = None
        silent_s = 0.0
        again = False
        wait_s = max(0.3, self._interval_s / 2)
        try:
            while True:
                reading = reading or asyncio.create_task(channel.read())
                await asyncio.wait({reading}, timeout=wait_s)
                if not reading.done():
                    # Between samples: whatever came is one, complete or not.
                    self._sample(self._frame.flush())
                    if self._retry_excluded():
                        return True
                    silent_s += wait_s
                    if silent_s >= max(STUCK_LEAST_S, 3 * self._interval_s):
                        self._tell_driver(
                            "stuck", "nvidia-smi prints nothing: a call has not come back", silent_s
                        )
                    continue
                silent_s = 0.0
                data, reading = reading.result(), None
                if not data:
                    break
                for line in splitter.feed(data):
                    again = self._take(line.decode("utf-8", "replace").rstrip("\r")) or again
            self._sample(self._frame.flush())
            if not again and not self._restart:
                await self._why_it_ended(channel)
                again = self._exclude_lost()
            return again
        finally:
            self._channel = None
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            with contextlib.suppress(Exception):
                await channel.close()

    def _take(self, line: str) -> bool:
        """One line; True where a field was rejected and the query has become smaller."""
        if not line.strip():
            return False
        row = parse_row(line, self._query)
        if row is not None:
            self._rows_seen += 1
            self._sample(self._frame.add(row))
            return False
        name = rejected_field(line)
        if name is not None and name in self._query.names and name not in ("index", "uuid"):
            self._query = self._query.without(name)
            return True
        self.garbage_lines += 1
        self._said = f"{self._said}\n{clean(line, 400)}"[-2000:]
        return False

    async def _why_it_ended(self, channel: Channel) -> None:
        status = await channel.wait(2.0)
        words = self._said.strip() or (await channel.stderr_tail()).strip()
        detail = clean(" ".join(words.split()), 400) or f"nvidia-smi ended with status {status}"
        state = next((state for pattern, state in _STATES if pattern.search(detail)), None)
        if state is None and _LOST_GPU.search(detail) is not None:
            return
        if state == "missing" and self._known:
            state = "reloading"
        self._tell_driver(state or "error", detail, 0.0)

    def _exclude_lost(self) -> bool:
        """Some drivers end the whole query for one lost GPU: ask for the others then."""
        match = _LOST_GPU.search(self._said)
        if match is None or "lost" not in self._said.lower():
            return False
        bus_id = match.group(1).lower()
        for uuid, row in self._known.items():
            if bus_id.endswith(row.bus_id[-10:]) and uuid not in self._excluded:
                self._excluded.add(uuid)
                self._excluded_s = self._clock.monotonic_s()
                self._tell_state(uuid, "lost", clean(self._said.strip(), 200))
                return len(self._excluded) < len(self._order)
        return False

    def _retry_excluded(self) -> bool:
        """Whether it is time to ask for lost GPUs again."""
        now_s = self._clock.monotonic_s()
        if not self._excluded or now_s - self._excluded_s < RETRY_LOST_S:
            return False
        self._excluded.clear()
        return True

    def _sample(self, rows: list[SmiRow] | None) -> None:
        """A sample is complete: say what is new, then the readings."""
        if not rows:
            return
        uuids = [row.uuid for row in rows]
        if any(uuid not in self._known for uuid in uuids):
            self._list(rows)
        self._tell_driver("ok", "", 0.0, rows[0].driver_version)
        by_uuid = {row.uuid: row for row in rows}
        for uuid in self._order:
            row = by_uuid.get(uuid)
            if row is not None and not row.lost:
                self._missed[uuid] = 0
                self._tell_state(uuid, "ok", "")
                continue
            self._missed[uuid] = self._missed.get(uuid, 0) + 1
            if row is not None:
                self._tell_state(uuid, "lost", "nvidia-smi says that it is lost")
            elif self._missed[uuid] >= MISSED_SAMPLES:
                self._tell_state(uuid, "lost", "nvidia-smi no longer lists it")
        live = {uuid: row for uuid, row in by_uuid.items() if not row.lost}
        self._tell_lane(Lane.FAST, live)
        if self._slow_in <= 0:
            self._slow_in = SLOW_EVERY
            self._tell_lane(Lane.SLOW, live)
        self._slow_in -= 1
        self._tell_absent(live)

    def _list(self, rows: list[SmiRow]) -> None:
        for row in rows:
            self._known[row.uuid] = row
        listed = sorted(self._known.values(), key=lambda row: row.index)
        self._order = [row.uuid for row in listed]
        self._states.clear()
        self._absent = None
        entries = [
            {
                "uuid": row.uuid,
                "index": row.index,
                "name": clean(row.name, 128),
                "bus_id": row.bus_id,
                "once": {key: row.values[key] for key in KEYS[Lane.ONCE] if key in row.values},
                "absent": {
                    key: row.absent.get(key, NOT_TOLD)
                    for key in KEYS[Lane.ONCE]
                    if key not in row.values
                },
            }
            for row in listed
        ]
        self._tell("gpus", {"gpus": entries, "h": {}})

    def _tell_lane(self, lane: Lane, rows: Mapping[str, SmiRow]) -> None:
        cells = []
        for uuid in self._order:
            row = rows.get(uuid)
            cells.append(None if row is None else [row.values.get(key) for key in KEYS[lane]])
        self._tell(lane.value, {"t": self._now_ns(), "g": cells, "h": []})

    def _tell_absent(self, rows: Mapping[str, SmiRow]) -> None:
        keys = [*KEYS[Lane.FAST], *KEYS[Lane.SLOW], *KEYS[Lane.PCIE]]
        reasons: list[dict[str, str]] = []
        for position, uuid in enumerate(self._order):
            row = rows.get(uuid)
            if row is None:
                reasons.append(self._absent[position] if self._absent else {})
                continue
            reasons.append(
                {key: row.absent.get(key, NOT_TOLD) for key in keys if key not in row.values}
            )
        if reasons != self._absent:
            self._absent = reasons
            host = {spec.key: "needs python3 on the host" for spec in HOST_READINGS}
            self._tell("absent", {"g": reasons, "h": host})

    def _tell_state(self, uuid: str, state: str, detail: str) -> None:
        if self._states.get(uuid, "ok") != state:
            self._states[uuid] = state
            self._tell("gpu_state", {"uuid": uuid, "state": state, "detail": detail})

    def _tell_driver(self, state: str, detail: str, age_s: float, version: str = "") -> None:
        known = (state, detail, version or (self._driver[2] if self._driver else ""))
        if known == self._driver:
            return
        self._driver = known
        params = {"state": state, "version": known[2] or None, "cuda_version": None}
        self._tell("driver", {**params, "detail": detail, "age_s": age_s})

    def _tell(self, method: str, params: Mapping[str, object]) -> None:
        with contextlib.suppress(Exception):
            self._on_notification(method, params)

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * 1e9)

    def _end(self, reason: str) -> None:
        if not self._ended.is_set():
            self._end_reason = clean(reason)
            self._ended.set()
