"""What the servers of a host need of it, and what its agent answers, checked and cleaned."""

from __future__ import annotations

import base64
import zlib
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from backends.errors import AgentError
from backends.model import HostSnapshot
from backends.servers.apikey import ApiKey
from backends.text import clean

T = TypeVar("T")
TEXTS = frozenset({"out", "err", "body"})
"""Fields that hold many lines."""
MAX_TEXT_CHARS = 4 * 1024 * 1024
MAX_PIECE_BYTES = 16 * 1024 * 1024


@runtime_checkable
class Host(Protocol):
    """A host that can be asked; `backends.session.HostSession` is one."""

    @property
    def name(self) -> str:
        """Its name in the room."""
        ...

    @property
    def snapshot(self) -> HostSnapshot:
        """All that is known of it now."""
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> object:
        """Ask the agent for something."""
        ...

    def stream(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> AsyncGenerator[object]:
        """Ask the agent for something that comes in pieces."""
        ...


def convert(answer: object, kind: type[T], what: str) -> T:
    """The answer as that type, all its strings cleaned.

    Raises:
        AgentError: It is something else.
    """
    try:
        return msgspec.convert(_cleaned(answer), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise AgentError(f"the agent's answer about {what} makes no sense", str(error)) from None


def unpack(piece: str) -> bytes:
    """Bytes that came packed (`files.pack` of the agent).

    Raises:
        AgentError: They are damaged, or inflate to more than a piece may hold.
    """
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(piece), MAX_PIECE_BYTES)
    except (ValueError, zlib.error) as error:
        raise AgentError("a piece of a file came damaged", str(error)) from None
    if inflater.unconsumed_tail:
        raise AgentError("a piece of a file is larger than it may be")
    return data


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value, 8192)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {
            clean(str(key), 512): _cleaned_lines(item)
            if key in TEXTS and isinstance(item, str)
            else _cleaned(item)
            for key, item in value.items()
        }
    return value


def _cleaned_lines(text: str) -> str:
    """What a command printed or an endpoint answered: its lines stay lines."""
    return "\n".join(clean(line, MAX_TEXT_CHARS) for line in text[:MAX_TEXT_CHARS].split("\n"))


class PortHolder(msgspec.Struct, frozen=True):
    """A process that listens on a port."""

    pid: int
    start_ticks: int
    command: str
    user: str | None = None
    started: float | None = None
    """Epoch seconds."""


class PortFacts(msgspec.Struct, frozen=True):
    """Who has a port. Neither free nor owned: its owner is not visible from there."""

    port: int
    free: bool
    bound: bool = False
    owners: tuple[PortHolder, ...] = ()


class MemberFacts(msgspec.Struct, frozen=True):
    """One process of a server, and by what it is known to be one."""

    pid: int
    start_ticks: int
    command: str
    parent: int = 0
    state: str = "S"
    evidence: tuple[str, ...] = ()
    kernel_stack: str | None = None


class ExitFacts(msgspec.Struct, frozen=True):
    """How a main process ended."""

    code: int | None = None
    signal: int | None = None
    core: bool = False
    at: float | None = None
    oom_kills: int | None = None


class LogFile(msgspec.Struct, frozen=True):
    """A log file as it is now."""

    device: int
    inode: int
    size: int


class RunRecord(msgspec.Struct, frozen=True):
    """What a supervisor wrote down of a run."""

    profile: str
    run_id: str
    pid: int
    start_ticks: int
    boot_id: str
    log: str
    dir: str
    started_at: float
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    port: int | None = None
    engine: str | None = None
    by: str | None = None
    origin: str | None = None
    cgroup: str | None = None
    memory_before: Mapping[str, int] | None = None
    log_begin: int = 0


class StopAsked(msgspec.Struct, frozen=True):
    """Who had a run stopped, and when."""

    by: str | None = None
    origin: str | None = None
    at: float | None = None
    age_s: float | None = None
    """How long ago that was, by the host's clock."""
    going: bool = False
    """Whether it goes on: somebody on the host still sees to it."""
    restart: bool = False
    """Whether it was to be started again afterwards."""

    @property
    def who(self) -> str:
        """Who asked, and from where, as far as that is known."""
        return " from ".join(word for word in (self.by, self.origin) if word)


class RunState(msgspec.Struct, frozen=True):
    """A run of the process launcher now."""

    record: RunRecord
    alive: bool
    supervised: bool = False
    rebooted: bool = False
    age_s: float | None = None
    exit: ExitFacts | None = None
    stop: StopAsked | None = None
    members: tuple[MemberFacts, ...] = ()
    cpu_s: float | None = None
    read_bytes: int | None = None
    port: PortFacts | None = None
    log: LogFile | None = None


class HttpAnswer(msgspec.Struct, frozen=True):
    """What an endpoint on the host's loopback answered."""

    status: int | None = None
    body: str = ""
    error: str = ""
    took_s: float | None = None


class CommandResult(msgspec.Struct, frozen=True):
    """How a command on the host ended."""

    code: int | None = None
    out: str = ""
    err: str = ""
    took_s: float | None = None
    timed_out: bool = False
    missing: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran and ended with 0."""
        return self.code == 0 and not self.timed_out

    @property
    def words(self) -> str:
        """Its last words, in one line."""
        said = (self.err or self.out or self.missing or "").strip().splitlines()
        return said[-1] if said else f"exit status {self.code}"


async def ask_http(
    host: Host, port: int, path: str, *, asked_by: str, address: str | None = None,
    body: object = None, key: ApiKey | None = None, timeout_s: float = 2.0,
) -> HttpAnswer:  # fmt: skip
    """Ask an endpoint from the host's own loopback; the answer does not repeat the key."""
    params: dict[str, object] = {"port": port, "path": path, "timeout_s": timeout_s}
    if address is not None:
        params["address"] = address
    if key is not None:
        params["headers"] = key.headers
    if body is not None:
        params.update(method="POST", body=body)
    answer = await host.request(
        "http.ask", params, asked_by=asked_by, what=f"ask {path} on port {port}",
        timeout_s=timeout_s + 5.0,
    )  # fmt: skip
    told = convert(answer, HttpAnswer, path)
    return msgspec.structs.replace(told, body=key.masked(told.body)) if key is not None else told


async def run_command(
    host: Host, argv: list[str], *, asked_by: str, what: str, changes_host: bool = False,
    timeout_s: float = 30.0,
) -> CommandResult:  # fmt: skip
    """Run a command on the host, from its argument vector; times that it prints are UTC."""
    params = {"argv": argv, "timeout_s": timeout_s, "env": {"TZ": "UTC"}}
    answer = await host.request(
        "commands.run", params, asked_by=asked_by, what=what,
        changes_host=changes_host, timeout_s=timeout_s + 10.0,
    )  # fmt: skip
    return convert(answer, CommandResult, what)
