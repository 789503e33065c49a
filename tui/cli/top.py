"""`gpuroom top HOST`: the readings of a host without a screen, once or as a stream."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backends import config as configuration
from backends.clock import SYSTEM_CLOCK
from backends.config import Config, HostConfig
from backends.errors import LinkError, UsageError
from backends.hub import HostSession, RoomHub
from backends.model import DriverState, GpuState, HostSnapshot, Lane, LinkState
from backends.telemetry.readings_json import snapshot_json
from tui.cli.prompts import terminal_prompter

POLL_S: Final = 0.02
NO_DRIVER: Final = frozenset(
    {DriverState.MISSING, DriverState.MISMATCH, DriverState.NO_PERMISSION, DriverState.STUCK}
)
EXIT_NO_GPUS: Final = 6
LANES: Final = {Lane.FAST, Lane.SLOW}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Host, how often, how printed."""
    parser.add_argument(
        "host", metavar="HOST", help="alias, user@host:port, local, demo[:SCENARIO]"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="one sample, then leave (the default)")
    how.add_argument("--stream", action="store_true", help="a JSON line a sample, until stopped")
    parser.add_argument("--json", action="store_true", help="JSON (docs/top-json.md)")
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="between samples")
    parser.add_argument("--count", type=int, metavar="N", help="with --stream: end after N samples")
    parser.add_argument("--config", type=Path, help="configuration file to use")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS",
        help="give up when there is no sample by then (default %(default)s)",
    )  # fmt: skip
    parser.epilog = (
        "Exit status: 0 done, 2 wrong use, 3 the host is out of reach, 4 the agent failed there, "
        "6 the host answers but its GPUs can't be read."
    )


def run(arguments: argparse.Namespace) -> int:
    """Wait for whole samples and print them."""
    config = configuration.load(arguments.config)
    (host,) = configuration.resolve_hosts(config, [arguments.host])
    if arguments.interval is not None and not 0.1 <= arguments.interval <= 60:
        raise UsageError("--interval must be between 0.1 and 60 seconds")
    if arguments.stream:
        return asyncio.run(_stream(host, config, arguments))
    return asyncio.run(_once(host, config, arguments))


async def _once(host: HostConfig, config: Config, arguments: argparse.Namespace) -> int:
    async with RoomHub([host], config, terminal_prompter()) as hub:
        (session,) = hub.sessions
        if arguments.interval:
            await session.set_interval(arguments.interval)
        snapshot = await _wait(session, is_whole, arguments.timeout)
    if arguments.json:
        print(json.dumps(_json(snapshot), indent=2, ensure_ascii=False))
    else:
        print("\n".join(table(snapshot)))
    return exit_code(snapshot)


async def _stream(host: HostConfig, config: Config, arguments: argparse.Namespace) -> int:
    async with RoomHub([host], config, terminal_prompter()) as hub:
        (session,) = hub.sessions
        if arguments.interval:
            await session.set_interval(arguments.interval)
        last: float | None = None
        snapshot = await _wait(session, is_whole, arguments.timeout)
        count = 0
        while True:
            last = snapshot.sampled_s
            print(json.dumps(_json(snapshot), ensure_ascii=False), flush=True)
            count += 1
            if arguments.count is not None and count >= arguments.count:
                return exit_code(snapshot)
            # A host that falls silent is waited for: a stream is there to see it come back.
            while (snapshot := session.snapshot).sampled_s == last:  # noqa: ASYNC110 - no callbacks
                await asyncio.sleep(POLL_S)


async def _wait(
    session: HostSession, enough: Callable[[HostSnapshot], bool], timeout_s: float
) -> HostSnapshot:
    """The first snapshot that says enough.

    Raises:
        LinkError: The host was not reached in time, or refused; in the words of the link.
    """
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while True:
        snapshot = session.snapshot
        if enough(snapshot):
            return snapshot
        link = snapshot.link
        late = SYSTEM_CLOCK.monotonic_s() >= deadline_s
        if link.state is LinkState.REFUSED or (link.state is LinkState.LOST and link.error):
            raise LinkError(f"cannot reach {session.name}", link.error, link.hint)
        if late and snapshot.sampled_s is not None:
            return snapshot  # part of a sample is better than none, and says what it lacks
        if late:
            raise LinkError(
                f"no sample from {session.name} within {timeout_s:g} s",
                link.error or f"the link is {link.state.value}",
                link.hint or f"`gpuroom doctor {session.name}` says where it hangs",
            )
        await asyncio.sleep(POLL_S)


def is_whole(snapshot: HostSnapshot) -> bool:
    """Whether everything has been read once, or the driver has said that there is nothing.

    What runs on the GPUs comes in a message of its own, but never where nvidia-smi answers in the
    agent's place.
    """
    if snapshot.driver is not None and snapshot.driver.state in NO_DRIVER:
        return snapshot.readings.memory_total_bytes is not None
    says_processes = snapshot.link.via == "agent" and any(
        gpu.state is GpuState.OK for gpu in snapshot.gpus
    )
    return (
        snapshot.driver is not None
        and snapshot.sampled_s is not None
        and snapshot.readings.memory_total_bytes is not None
        and (snapshot.processes_listed or not says_processes)
        and all(gpu.read_s.keys() >= LANES or gpu.state != GpuState.OK for gpu in snapshot.gpus)
    )


def exit_code(snapshot: HostSnapshot) -> int:
    """0 where GPUs were read, else `EXIT_NO_GPUS`."""
    return 0 if any(gpu.readings.power_w is not None for gpu in snapshot.gpus) else EXIT_NO_GPUS


def _json(snapshot: HostSnapshot) -> dict[str, object]:
    return snapshot_json(snapshot, SYSTEM_CLOCK.monotonic_s())


def table(snapshot: HostSnapshot) -> list[str]:
    """The sample as lines for people; `-` where a value is absent."""
    driver = snapshot.driver
    head = f"{snapshot.host}  "
    if driver is not None:
        words = [driver.state.value, driver.version or "", driver.detail]
        head += "driver " + " ".join(word for word in words if word)
    lines = [head]
    columns = ("GPU", "NAME", "POWER", "LIMIT", "GPU%", "MEM%", "MEMORY", "TEMP", "SM MHz", "STATE")
    rows: list[tuple[str, ...]] = [columns]
    words_of = {verdict.gpu_uuid: verdict.word for verdict in snapshot.verdicts}
    for gpu in snapshot.gpus:
        got = gpu.readings
        rows.append(
            (
                str(gpu.index),
                gpu.name.removeprefix("NVIDIA "),
                _number(got.power_w, "W"),
                _number(got.power_limit_enforced_w, "W"),
                _number(got.utilization_gpu_pct, "%"),
                _number(got.utilization_memory_pct, "%"),
                _memory(got.memory_used_bytes, got.memory_total_bytes),
                _number(got.temperature_gpu_c, "C"),
                _number(got.sm_clock_mhz, ""),
                words_of.get(gpu.uuid, gpu.state.value),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
        if len(rows) > 1
    ]
    lines += [f"! {verdict.evidence}" for verdict in snapshot.verdicts if verdict.gpu_uuid is None]
    lines += [f"note: {note}" for note in snapshot.notes]
    return lines


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _memory(used_bytes: int | None, total_bytes: int | None) -> str:
    if used_bytes is None:
        return "-"
    total = "-" if total_bytes is None else f"{total_bytes / 2**30:.0f}"
    return f"{used_bytes / 2**30:.1f}/{total} GiB"
