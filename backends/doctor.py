"""Why can't I connect, or see GPUs? One step after the other, each with what to do about it.

`examine` goes the same way as the room does and stops where it stops, so what it finds is what the
room would meet.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec

from backends.clock import SYSTEM_CLOCK, Clock
from backends.config import Config, HostConfig
from backends.doctor_probe import MARKER
from backends.errors import (
    AgentError,
    AuthenticationFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LinkError,
    RoomError,
    UsageError,
)
from backends.link.base import Channel, Prompter, Transport
from backends.link.limiter import Limiter
from backends.link.target import SshTarget, parse_target
from backends.link.threads import in_thread
from backends.link.transports import transport_to
from backends.model import DriverState, GpuState, HostSnapshot, LinkState, LinkStatus
from backends.sources import start_source
from backends.telemetry.decode import Telemetry
from backends.text import clean

if TYPE_CHECKING:
    from backends.link.hop import Hop

PROBE_S: Final = 15.0
READINGS_S: Final = 12.0
_MAX_OUTPUT: Final = 1 << 20


class Outcome(StrEnum):
    """How a step came out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One step of the examination.

    Attributes:
        step: What was looked at.
        outcome: How it came out.
        detail: What was found.
        advice: What to do about it.
        exit_code: What a command should end with because of it; 0 where it is fine.
    """

    step: str
    outcome: Outcome
    detail: str
    advice: str = ""
    exit_code: int = 0


async def examine(
    host: HostConfig, config: Config, prompter: Prompter, clock: Clock = SYSTEM_CLOCK
) -> AsyncIterator[Finding]:
    """Examine the way to a host and its GPUs; findings come as they are made."""
    try:
        target = parse_target(host.address)
    except UsageError as error:
        yield _failed("target", error)
        return
    if isinstance(target, SshTarget):
        async for finding in _examine_address(target, config):
            yield finding
            if finding.outcome is Outcome.FAILED:
                return
    transport = transport_to(host, config.ssh, prompter, Limiter())
    try:
        connected = False
        async for finding in _examine_link(transport):
            yield finding
            connected = finding.outcome is not Outcome.FAILED
        if connected:
            async for finding in _examine_host(transport, host, clock):
                yield finding
    finally:
        await transport.close()


async def _examine_address(target: SshTarget, config: Config) -> AsyncIterator[Finding]:
    """Configuration, name and port of what is dialled first."""
    from backends.link.hop import resolve
    from backends.link.tcp import open_tcp

    async def look_up(wanted: SshTarget) -> Hop:
        return await in_thread(lambda: resolve(wanted, config.ssh.config_file))

    try:
        hop = first = await look_up(target)
        for _ in range(8):
            if not first.jumps:
                break
            first = await look_up(first.jumps[0])
    except LinkError as error:
        yield _failed("configuration", error)
        return
    through = "".join(f", through {jump}" for jump in hop.jumps)
    yield Finding("configuration", Outcome.OK, f"{hop.user}@{hop.address} port {hop.port}{through}")
    if first.proxy_command:
        yield Finding("name", Outcome.OK, f"left to the ProxyCommand: {first.proxy_command}")
        return
    where = f"{first.address} port {first.port}"
    try:
        async with asyncio.timeout(config.ssh.connect_timeout_s):
            found = await in_thread(
                lambda: socket.getaddrinfo(first.address, first.port, 0, socket.SOCK_STREAM)
            )
    except (OSError, UnicodeError) as error:
        yield _unreachable("name", first, error)
        return
    addresses = ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found))
    yield Finding("name", Outcome.OK, f"{first.address} is {addresses}")
    try:
        async with asyncio.timeout(config.ssh.connect_timeout_s):
            sock = await open_tcp(first.address, first.port, first.family, first.bind_address)
    except OSError as error:
        yield _unreachable("port", first, error)
        return
    sock.close()
    yield Finding("port", Outcome.OK, f"{where} takes connections")


def _unreachable(step: str, hop: Hop, error: BaseException) -> Finding:
    from backends.link.failures import unreachable

    return _failed(step, unreachable(str(hop.target), hop.address, hop.port, error))


async def _examine_link(transport: Transport) -> AsyncIterator[Finding]:
    began_s = asyncio.get_running_loop().time()
    try:
        await transport.connect()
    except (HostKeyChanged, HostKeyUnknown) as error:
        yield _failed("host key", error)
    except AuthenticationFailed as error:
        if transport.kind == "ssh":
            yield Finding("host key", Outcome.OK, "known")
        yield _failed("login", error)
    except LinkError as error:
        yield _failed("connection", error)
    else:
        took_ms = (asyncio.get_running_loop().time() - began_s) * 1000
        if transport.kind == "ssh":
            yield Finding("host key", Outcome.OK, "known")
        yield Finding("login", Outcome.OK, f"{transport.kind}, {took_ms:.0f} ms")


class Device(msgspec.Struct, frozen=True):
    """A device file, and what opening it gave."""

    path: str
    error: str | None = None
    mode: str = ""
    uid: int = 0
    gid: int = 0
    major: int = 0


class Probe(msgspec.Struct, frozen=True):
    """What `backends.doctor_probe` prints."""

    python: str
    executable: str
    user: str
    container: str | None
    module: str | None
    nouveau: bool
    library: str | None
    pci_gpus: int
    majors: dict[str, int]
    devices: list[Device]


async def _examine_host(
    transport: Transport, host: HostConfig, clock: Clock
) -> AsyncIterator[Finding]:
    probe: Probe | None = None
    try:
        probe = await _probe(transport, host.python)
        version = tuple(int(part) for part in probe.python.split(".")[:2] if part.isdigit())
        if version < (3, 8):
            yield Finding(
                "python",
                Outcome.WARNING,
                f"{clean(probe.executable)} is {clean(probe.python)}",
                "The agent needs 3.8 or newer: name one with `python` in the host's entry.",
                AgentError.exit_code,
            )
        else:
            yield Finding(
                "python", Outcome.OK, f"{clean(probe.python)} at {clean(probe.executable)}"
            )
    except RoomError as error:
        yield _failed("python", error)
    snapshot = await _readings(transport, host, clock)
    if isinstance(snapshot, RoomError):
        yield _failed("agent", snapshot)
    else:
        about = f"pid {snapshot.agent.pid}, " if snapshot.agent else ""
        about += f"user {snapshot.agent.user}" if snapshot.agent else snapshot.link.via
        yield Finding("agent", Outcome.OK, about)
    if probe is not None:
        for finding in judge_devices(probe):
            yield finding
    if isinstance(snapshot, HostSnapshot):
        for finding in judge_gpus(snapshot, probe):
            yield finding


def probe_program() -> str:
    """The probe as one line, which no login shell can take amiss."""
    source = resources.files("backends").joinpath("doctor_probe.py").read_bytes()
    packed = base64.b64encode(zlib.compress(source, 9)).decode("ascii")
    return f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"


async def _probe(transport: Transport, python: str) -> Probe:
    channel = await transport.open([python, "-c", probe_program()])
    try:
        async with asyncio.timeout(PROBE_S):
            output = await _output(channel)
            status = await channel.wait(2.0)
    except TimeoutError:
        raise AgentError(
            f"{python} does not come to an end on the host",
            f"no answer within {PROBE_S:.0f} s",
            "A call into the driver may hang there: look at the kernel log (dmesg).",
        ) from None
    finally:
        await channel.close()
    _, marker, rest = output.partition(f"{MARKER}\n".encode())
    with contextlib.suppress(msgspec.MsgspecError):
        if marker:
            return msgspec.json.decode(rest.split(b"\n", 1)[0], type=Probe)
    said = (await channel.stderr_tail()).rpartition("\n")[2]
    if status == 127:
        raise AgentError(
            f"There is no {python} on the host",
            said,
            "Install python3 (3.8 or newer), or name one with `python` in the host's entry.",
        )
    raise AgentError(f"{python} does not run on the host", said or f"exit status {status}")


async def _output(channel: Channel) -> bytes:
    collected = bytearray()
    while len(collected) < _MAX_OUTPUT and (data := await channel.read()):
        collected += data
    return bytes(collected)


async def _readings(
    transport: Transport, host: HostConfig, clock: Clock
) -> HostSnapshot | RoomError:
    """What the agent says within a while, or why it says nothing."""
    telemetry = Telemetry(host.name, clock)
    heard: set[str] = set()
    told = asyncio.Event()

    def take(method: str, params: Mapping[str, object]) -> None:
        telemetry.notify(method, params)
        heard.add(method)
        # A driver that fails is all there is to know; a good one is followed by its GPUs, and
        # they by a sample that shows whether they answer.
        failed = method == "driver" and params.get("state") != DriverState.OK
        if failed or (method == "fast" and {"driver", "gpus"} <= heard):
            told.set()

    link = LinkStatus(LinkState.LIVE, clock.monotonic_s(), transport.kind)
    try:
        source = await start_source(transport, host.python, take, 1.0, clock)
    except RoomError as error:
        return error
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READINGS_S):
                await told.wait()
        return telemetry.snapshot(link, 1.0, 0)
    finally:
        await source.close()


def judge_devices(probe: Probe) -> list[Finding]:
    """What the device files and the bus of a host say."""
    found = []
    if probe.pci_gpus or probe.module or probe.devices:
        loaded = f"kernel module {clean(probe.module)}" if probe.module else "no kernel module"
        bus = f"{probe.pci_gpus} NVIDIA GPU{'s' if probe.pci_gpus != 1 else ''} on the bus"
        advice = ""
        if probe.pci_gpus and not probe.module:
            advice = (
                "nouveau holds the cards: blacklist it and reboot."
                if probe.nouveau
                else "Install the driver, or load it with `modprobe nvidia`; dmesg says why not."
            )
        outcome = Outcome.FAILED if advice else Outcome.OK
        found.append(Finding("devices", outcome, f"{bus}, {loaded}", advice, 1 if advice else 0))
    denied = [device for device in probe.devices if device.error]
    if denied:
        found.append(_denied(denied, probe))
    elif probe.devices:
        found.append(
            Finding("permissions", Outcome.OK, f"{len(probe.devices)} device files can be opened")
        )
    return found


def _denied(denied: list[Device], probe: Probe) -> Finding:
    first = denied[0]
    error, path = clean(first.error or ""), clean(first.path)
    detail = f"{path}: {error}, as {clean(probe.user)}"
    if len(denied) > 1:
        detail += f"; and {len(denied) - 1} more"
    advice = "Look at the kernel log (dmesg)."
    if error == "EPERM":
        today = ", ".join(f"{clean(name)} {major}" for name, major in sorted(probe.majors.items()))
        advice = (
            "Its mode would allow it, so the device rules of the container do not: check that they "
            f"name today's major numbers ({today or 'see /proc/devices on its host'})."
        )
    elif error == "EACCES":
        advice = f"Add {clean(probe.user)} to the group that owns it (ls -l {path})."
    elif error == "ENOENT":
        advice = "The driver makes it when it is first used as root: run nvidia-smi as root there."
    elif error in ("ENXIO", "ENODEV"):
        advice = "The file is there and the device is not: its major number is of an earlier boot."
    elif error == "EIO":
        advice = "The card does not answer: look for Xid and NVRM lines in the kernel log (dmesg)."
    return Finding("permissions", Outcome.FAILED, detail, advice, 1)


_DRIVER_ADVICE: Final[Mapping[DriverState, str]] = {
    DriverState.MISSING: "Install the NVIDIA driver, or load it with `modprobe nvidia`.",
    DriverState.MISMATCH: "Stop what uses the GPUs and reload the modules, or reboot.",
    DriverState.STUCK: "Look for Xid and NVRM lines in the kernel log; it may take a reboot.",
    DriverState.RELOADING: "Wait until it is back.",
    DriverState.NO_PERMISSION: "Check who may open /dev/nvidia*, and the container's device rules.",
    DriverState.ERROR: "Look at the kernel log (dmesg).",
}


def judge_gpus(snapshot: HostSnapshot, probe: Probe | None) -> list[Finding]:
    """What driver, NVML and GPUs say."""
    driver = snapshot.driver
    if driver is None:
        return [Finding("driver", Outcome.FAILED, "nothing was said of it in time", "", 1)]
    if driver.state is not DriverState.OK:
        advice = _DRIVER_ADVICE.get(driver.state, "")
        detail = f"{driver.state.value}: {driver.detail}" if driver.detail else driver.state.value
        if driver.state is DriverState.MISSING and probe is not None and not probe.pci_gpus:
            advice = "There is no NVIDIA GPU on the bus of this host: nothing to install it for."
        return [Finding("driver", Outcome.FAILED, detail, advice, 1)]
    found = [Finding("driver", Outcome.OK, f"{driver.version}, CUDA up to {driver.cuda_version}")]
    nvml = snapshot.agent.nvml_version if snapshot.agent else None
    if nvml:
        found.append(Finding("NVML", Outcome.OK, nvml))
    bad = [gpu for gpu in snapshot.gpus if gpu.state is not GpuState.OK]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in snapshot.gpus))
    count = len(snapshot.gpus)
    missing = probe is not None and 0 < count < probe.pci_gpus
    if bad:
        words = "; ".join(f"GPU {g.index} {g.state.value} {g.state_detail}".strip() for g in bad)
        advice = "Look for Xid and NVRM lines in the kernel log (dmesg); it may need a reset."
        found.append(Finding("GPUs", Outcome.FAILED, words, advice, 1))
    elif not count:
        found.append(
            Finding("GPUs", Outcome.FAILED, "the driver knows none", "Look at dmesg and lspci.", 1)
        )
    elif missing and probe is not None:
        detail = f"{count} x {names}, but {probe.pci_gpus} on the bus"
        advice = "Another driver (vfio-pci) may hold the others, or they did not come up: dmesg."
        found.append(Finding("GPUs", Outcome.WARNING, detail, advice, 1))
    else:
        found.append(Finding("GPUs", Outcome.OK, f"{count} x {names}"))
    return found


def _failed(step: str, error: RoomError) -> Finding:
    return Finding(step, Outcome.FAILED, str(error), error.hint, error.exit_code)
