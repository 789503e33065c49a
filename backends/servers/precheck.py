"""What stands in the way of a start, or may: each with a way out, none a silent kill. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.model import GpuStatus, HostSnapshot, Severity
from backends.servers.configuration import read_argv
from backends.servers.host import MemberFacts, PortFacts, RunState
from backends.servers.launchers.base import StartFinding, runs_already
from backends.servers.profiles import Profile
from backends.text import clean

LOG_ROOM_BYTES: Final = 1 << 30
BUSY_MEMORY_BYTES: Final = 2 << 30
"""A bare CUDA context takes half a gigabyte; what holds more is somebody's work. Ours."""
GONE_AFTER_STOP: Final = frozenset({"earlier-run", "earlier-left", "port-taken", "gpu-busy"})
"""What a stop of the run before may take away; all else would still be there after it."""
RUNS_ALREADY: Final = frozenset({"earlier-run", "earlier-left"})
"""What no insisting gets past: one profile has one server."""
MODEL_OPTIONS: Final = ("model", "model_path", "model_id")


class Executable(msgspec.Struct, frozen=True):
    """What the first word of the command is on the host."""

    exists: bool
    runs: bool
    path: str | None = None


class PathFacts(msgspec.Struct, frozen=True):
    """A path on the host and the disk it is on."""

    exists: bool
    readable: bool = False
    free_bytes: int | None = None
    free_inodes: int | None = None
    error: str | None = None


class CheckFacts(msgspec.Struct, frozen=True):
    """The agent's answer about a start (`servers.check`)."""

    port: PortFacts | None = None
    executable: Executable | None = None
    cwd: bool | None = None
    paths: Mapping[str, PathFacts] = msgspec.field(default_factory=dict)
    log_room: PathFacts | None = None
    earlier: tuple[RunState, ...] = ()
    left: tuple[MemberFacts, ...] = ()
    """Processes of runs whose main process has ended."""
    word_bytes: int | None = None
    """The longest argument, or variable with its name, that a program can be given there."""


def model_paths(profile: Profile) -> list[str]:
    """Model places that the command names as whole paths (a hub's name is none)."""
    options = read_argv(profile.engine, profile.command).options
    named = [options[name] for name in MODEL_OPTIONS if name in options]
    return [path for path in named if path.startswith(("/", "~/"))]


def findings(profile: Profile, facts: CheckFacts, snapshot: HostSnapshot) -> list[StartFinding]:
    """What a start of `profile` would run into, gravest first."""
    found = [
        *_earlier(profile, facts.earlier),
        *_left(profile, facts.left),
        *_port(profile, facts.port),
        *_executable(profile, facts),
        *_words(profile, facts.word_bytes),
        *_paths(profile, facts),
        *_gpus(profile, snapshot),
        *_room(facts),
    ]
    order = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _earlier(profile: Profile, earlier: Sequence[RunState]) -> list[StartFinding]:
    return [
        runs_already(
            profile,
            f"pid {state.record.pid}, started by {state.record.by}"
            f" from {state.record.origin}{_since(state.record.started_at)}",
        )
        for state in earlier
        if state.alive
    ]


def _left(profile: Profile, left: Sequence[MemberFacts]) -> list[StartFinding]:
    if not left:
        return []
    who = ", ".join(f"pid {member.pid} {clean(member.command, 60)}" for member in left[:3])
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    title = f"of a run of {profile.name} that has ended these processes are left: {who}{more}"
    out = f"`gpuroom stop {profile.name}` ends them"
    return [StartFinding("earlier-left", Severity.CRITICAL, title, out)]


def _port(profile: Profile, facts: PortFacts | None) -> list[StartFinding]:
    if facts is None or facts.free:
        return []
    if not facts.owners:
        who = "a process that is not visible from here"
        out = "look from the host that runs this container, or choose another port"
    else:
        first = facts.owners[0]
        who = f"pid {first.pid} of {first.user}, {clean(first.command, 120)}{_since(first.started)}"
        out = "stop that process yourself if it is not needed, or give the profile another port"
    return [
        StartFinding("port-taken", Severity.CRITICAL, f"port {facts.port} is held by {who}", out)
    ]


def _executable(profile: Profile, facts: CheckFacts) -> list[StartFinding]:
    found = []
    if facts.cwd is False:
        found.append(
            StartFinding(
                "cwd-missing",
                Severity.CRITICAL,
                f"the folder {profile.cwd} does not exist on the host",
                "mend `cwd`",
            )
        )
    program = facts.executable
    if program is not None and not program.exists:
        found.append(
            StartFinding(
                "executable-missing",
                Severity.CRITICAL,
                f"{profile.command[0]} is not found on the host",
                "give its whole path: the agent sees the PATH of a login without a shell",
            )
        )
    elif program is not None and not program.runs:
        found.append(
            StartFinding(
                "executable-denied",
                Severity.CRITICAL,
                f"{program.path} may not be executed by this account",
                "mend its permissions",
            )
        )
    return found


def _words(profile: Profile, most: int | None) -> list[StartFinding]:
    """Arguments and variables that no program can be given: the kernel refuses to execute it."""
    words = {f"argument {number} of the command": word for number, word in
             enumerate(profile.command)}  # fmt: skip
    words |= {f"the variable {name}": f"{name}={value}" for name, value in profile.env.items()}
    found = []
    for which, word in words.items():
        size = len(word.encode("utf-8", "surrogatepass"))
        if most is not None and size > most:
            title = f"{which} has {size} bytes; the host's kernel takes {most} at most"
            out = "put it into a file there, and give the server the path of the file"
            found.append(StartFinding("word-too-long", Severity.CRITICAL, title, out))
    return found


def _paths(profile: Profile, facts: CheckFacts) -> list[StartFinding]:
    found = []
    for path in model_paths(profile):
        told = facts.paths.get(path)
        if told is None:
            continue
        if not told.exists:
            out = "mend the path, or mount the disk it is on"
            title = f"the model {path} does not exist on the host"
            found.append(StartFinding("model-missing", Severity.CRITICAL, title, out))
        elif not told.readable:
            title = f"the model {path} may not be read by this account"
            out = "mend its permissions"
            found.append(StartFinding("model-denied", Severity.CRITICAL, title, out))
    return found


def _room(facts: CheckFacts) -> list[StartFinding]:
    room = facts.log_room
    if room is None or room.free_bytes is None or room.free_bytes >= LOG_ROOM_BYTES:
        return []
    free_mib = room.free_bytes / 2**20
    severity = Severity.CRITICAL if room.free_bytes < 1 << 20 else Severity.WARNING
    title = f"{free_mib:.0f} MiB are free where the log will be written"
    return [StartFinding("disk-full", severity, title, "make room, or name another `log` place")]


def _gpus(profile: Profile, snapshot: HostSnapshot) -> list[StartFinding]:
    """GPUs that hold somebody's memory, by a process that is visible or not."""
    found = []
    for gpu in _visible(profile, snapshot.gpus):
        used, total = gpu.readings.memory_used_bytes, gpu.readings.memory_total_bytes
        if used is None or used < BUSY_MEMORY_BYTES:
            continue
        holders = [p for p in snapshot.processes if gpu.uuid in p.memory_bytes]
        share = f" of {total / 2**30:.0f}" if total else ""
        amount = f"GPU {gpu.index} holds {used / 2**30:.1f}{share} GiB"
        if holders:
            who = ", ".join(f"pid {p.pid} {clean(p.command, 60)}" for p in holders[:3])
            out = "stop it, choose other GPUs (CUDA_VISIBLE_DEVICES), or leave it the memory"
            title = f"{amount}: {who}"
        else:
            title = f"{amount} and no process is visible that holds it"
            out = "a container, another pid namespace or a dead process: look on the hypervisor"
        found.append(StartFinding("gpu-busy", Severity.WARNING, title, out))
    return found


def _visible(profile: Profile, gpus: Sequence[GpuStatus]) -> list[GpuStatus]:
    """The GPUs that the profile will see."""
    text = profile.env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(gpus)
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    return [g for g in gpus if str(g.index) in wanted or any(g.uuid.startswith(w) for w in wanted)]


def _since(epoch_s: float | None) -> str:
    if epoch_s is None:
        return ""
    return f", since {datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
