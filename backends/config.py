"""The configuration file: typed, read only, with errors that name file, line and key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from backends import paths, toml
from backends.errors import ConfigError

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class TuningConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a host is judged: the `[tuning]` table, and `tuning` of one host, which wins.

    Attributes:
        profile: Which thresholds.
        use: What the host is for; some checks depend on it.
        checks: Files of `[[checks]]`, `[[waivers]]` and `[expected]`, seen from the folder of the
            configuration; those of the room and of the host all count.
        expected: Values that were agreed, by check.
    """

    profile: Literal["default", "latency", "throughput"] | None = None
    use: Literal["any", "dedicated", "shared", "vm_passthrough"] | None = None
    checks: tuple[str, ...] = ()
    expected: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[hosts]]` entry, or a host named on the command line.

    Attributes:
        name: What the room calls it.
        target: An alias of ~/.ssh/config, `user@host:port`, `local`, `demo` or `demo:SCENARIO`;
            the name itself when left out.
        labels: Words to filter by.
        production: Read-only until unlocked, and its name must be typed before a change.
        hypervisor: Name of the host that this one is a guest of.
        container: Its container or VM id there.
        python: The interpreter to use there.
        interval_s: Between samples; the room's own when left out.
        tuning: How it is judged, where that is otherwise than in the room.
    """

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    target: str = ""
    labels: tuple[str, ...] = ()
    production: bool = False
    hypervisor: str | None = None
    container: int | None = None
    python: str = "python3"
    interval_s: Seconds | None = None
    tuning: TuningConfig = TuningConfig()

    @property
    def address(self) -> str:
        """Where to connect."""
        return self.target or self.name


class RefreshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[refresh]` table."""

    interval_s: Annotated[float, Meta(ge=0.1, le=60)] = 1.0
    frames_per_second: Annotated[float, Meta(ge=1, le=10)] = 4.0
    pcie_throughput: bool = False


class ScreenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[screen]` table."""

    theme: str = "auto"
    ascii: bool = False
    sort: Literal["index", "power", "utilization", "memory", "temperature"] = "index"
    hidden_panes: tuple[str, ...] = ()


class SshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[ssh]` table."""

    config_file: str = "~/.ssh/config"
    connect_timeout_s: Seconds = 10.0
    keepalive_s: Seconds = 3.0
    keepalive_count: Annotated[int, Meta(ge=1, le=10)] = 2
    compression: bool = True


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    hosts: tuple[HostConfig, ...] = ()
    servers: tuple[dict[str, object], ...] = ()
    """As written; `backends.servers.profiles.resolve_profiles` checks and resolves them."""
    refresh: RefreshConfig = RefreshConfig()
    screen: ScreenConfig = ScreenConfig()
    ssh: SshConfig = SshConfig()
    tuning: TuningConfig = TuningConfig()
    keys: dict[str, str] = msgspec.field(default_factory=dict)


MAX_FILE_BYTES = 1 << 20


def load(path: Path | None = None) -> Config:
    """Read the configuration; it is never written.

    Args:
        path: The file, which must exist. None means the user's own, which need not.

    Raises:
        ConfigError: With file, line, key and the nearest valid key.
    """
    wanted = path or paths.config_file()
    try:
        with wanted.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(
            "no such configuration file", path=wanted, hint="`gpuroom config init` writes one"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=wanted) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError("the configuration is larger than 1 MiB", path=wanted)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError("the configuration is not UTF-8", path=wanted, line=line) from None
    return _anchored(parse(text, wanted), wanted.absolute().parent)


def _anchored(config: Config, folder: Path) -> Config:
    """The same with the paths of files that it names seen from its own folder."""

    def anchored(tuning: TuningConfig) -> TuningConfig:
        paths_ = tuple(str(folder / Path(name).expanduser()) for name in tuning.checks)
        return msgspec.structs.replace(tuning, checks=paths_)

    hosts = tuple(
        msgspec.structs.replace(host, tuning=anchored(host.tuning)) for host in config.hosts
    )
    return msgspec.structs.replace(config, hosts=hosts, tuning=anchored(config.tuning))


def parse(text: str, path: Path | None = None) -> Config:
    """Give the configuration that `text` says.

    Args:
        text: TOML.
        path: Where it came from, for messages.

    Raises:
        ConfigError: With file, line, key and the nearest valid key.
    """
    try:
        table = toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1  # else "at end of document"
        raise ConfigError(f"not valid TOML: {error}", path=path, line=line) from None
    place = _Place(text, path)
    _convert_table(table, Config, (), place)
    config = msgspec.convert(table, Config)
    _check_hosts(config.hosts, place)
    return config


def resolve_hosts(config: Config, names: Sequence[str]) -> tuple[HostConfig, ...]:
    """The hosts that `names` mean: configured ones by name, anything else as an address.

    No names means every configured host. `local`, `demo` and `demo:SCENARIO` need no entry.
    """
    if not names:
        return config.hosts
    known = {host.name: host for host in config.hosts}
    wanted = dict.fromkeys(names)
    return tuple(known.get(name) or HostConfig(name=name) for name in wanted)


def with_hypervisors(config: Config, hosts: Sequence[HostConfig]) -> tuple[HostConfig, ...]:
    """The same hosts, and after them the hypervisors that they are guests of."""
    known = {host.name: host for host in config.hosts}
    below = [known[host.hypervisor] for host in hosts if host.hypervisor in known]
    return tuple({host.name: host for host in (*hosts, *below)}.values())


class _Place:
    """Finds the line on which a key of a TOML text stands."""

    def __init__(self, text: str, path: Path | None) -> None:
        self._lines = text.splitlines()
        self._path = path

    def error(self, title: str, where: tuple[str | int, ...], hint: str = "") -> ConfigError:
        return ConfigError(title, path=self._path, line=self._line(where), hint=hint)

    def _sub_table(
        self, start: int, end: int, best: int, names: list[str], headers: list[int]
    ) -> tuple[int, int, int, list[str]]:
        """The same for `[table.names[0]]`, where it follows before the next `[table]`."""
        header = re.compile(rf"\s*\[[\w\"]+\.\"?{re.escape(names[0])}\"?\s*\]")
        last = next((n for n in headers if n > start), len(self._lines))
        for number in range(end, last):
            if header.match(self._lines[number]):
                later = (n for n in range(number + 1, last) if re.match(r"\s*\[", self._lines[n]))
                return number, next(later, last), number + 1, names[1:]
        return start, end, best, names

    def _line(self, where: tuple[str | int, ...]) -> int | None:
        """The line of the deepest part of `where` that is written on a line of its own."""
        start, end, best = 0, len(self._lines), None
        names = [part for part in where if isinstance(part, str)]
        index = next((part for part in where if isinstance(part, int)), 0)
        if len(where) > 1 or (names and f"[{names[0]}]" in "".join(self._lines)):
            header = re.compile(rf"\s*\[\[?\s*\"?{re.escape(names[0])}\"?\s*\]\]?")
            headers = [n for n, line in enumerate(self._lines) if header.match(line)]
            if index < len(headers):
                start = headers[index]
                best = start + 1
                later = (n for n in range(start + 1, end) if re.match(r"\s*\[", self._lines[n]))
                end = next(later, end)
                names = names[1:]
                if names and end < len(self._lines):
                    start, end, best, names = self._sub_table(start, end, best, names, headers)
        for name in names:
            key = re.compile(rf"\s*\"?{re.escape(name)}\"?\s*[=.]")
            found = next((n for n in range(start, end) if key.match(self._lines[n])), None)
            if found is not None:
                start, best = found, found + 1
        return best


def _convert_table(
    table: object, kind: type[msgspec.Struct], where: tuple[str | int, ...], place: _Place
) -> None:
    """Check a table key by key, so that an error names its exact place."""
    name = ".".join(str(part) for part in where if isinstance(part, str))
    if not isinstance(table, dict):
        raise place.error(f"`{name}` must be a table", where)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        here = (*where, key)
        field = fields.get(key)
        if field is None:
            raise place.error(f"unknown key `{_dotted(here)}`", here, nearest(key, fields))
        nested = _struct_of(field.type)
        if nested is not None and field.type is nested:
            _convert_table(value, nested, here, place)
        elif nested is not None and isinstance(value, list):
            for index, item in enumerate(value):
                _convert_table(item, nested, (*here, index), place)
        else:
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                wrong = str(error).split(" - at ")[0]
                raise place.error(
                    f"`{_dotted(here)}`: {_plain(wrong)}", here, _choices(field.type)
                ) from None
    for key, field in fields.items():
        if field.required and key not in table:
            raise place.error(f"`{_dotted((*where, key))}` is missing", where)


def _dotted(where: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in where if isinstance(part, str))


def _plain(message: str) -> str:
    """The words of a validation error, as part of a sentence."""
    return message[:1].lower() + message[1:].replace("`", "")


def _choices(kind: object) -> str:
    """The values that a closed set allows, or nothing."""
    literals = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
    if literals:
        kind = literals[0]
        return "valid here: " + ", ".join(str(value) for value in get_args(kind))
    return ""


def _struct_of(kind: object) -> type[msgspec.Struct] | None:
    """The struct that a field holds, alone or in a tuple."""
    candidates = (kind, *getattr(kind, "__args__", ()))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint that names the valid word nearest to `word`, or all of them when none is near."""
    names = list(valid)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return "valid here: " + ", ".join(names)


_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:\[\]-]*")


def _check_hosts(hosts: Sequence[HostConfig], place: _Place) -> None:
    """What types can't say: names are unique and speakable, hypervisors exist."""
    names: dict[str, int] = {}
    for index, host in enumerate(hosts):
        where = ("hosts", index, "name")
        if not _HOST_NAME.fullmatch(host.name):
            raise place.error(
                f"`hosts.name`: {host.name!r} can't be a host's name",
                where,
                "letters, digits, dot, dash, underscore, @ and :",
            )
        if host.name in names:
            raise place.error(f"two hosts are named {host.name!r}", where, "give one another name")
        names[host.name] = index
    for index, host in enumerate(hosts):
        if host.hypervisor is not None and host.hypervisor not in names:
            raise place.error(
                f"`hosts.hypervisor`: there is no host {host.hypervisor!r}",
                ("hosts", index, "hypervisor"),
                nearest(host.hypervisor, names),
            )
        if host.hypervisor == host.name:
            raise place.error(
                f"`hosts.hypervisor`: {host.name!r} can't be its own",
                ("hosts", index, "hypervisor"),
                "name the host that it is a guest of, or leave it out",
            )
        if host.container is not None and host.hypervisor is None:
            raise place.error(
                "`hosts.container` needs `hypervisor`",
                ("hosts", index, "container"),
                "name the host that runs the container",
            )
