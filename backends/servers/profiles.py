"""Server profiles: the `[[servers]]` tables of the configuration, checked and resolved.

A profile says what to start, where and how, and when it counts as ready. One that `extends`
another takes everything from it and changes some of its arguments: that is how variants are
written. Arguments stay a list from the file to the host; no shell ever sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from backends.errors import ConfigError
from backends.servers.configuration import MANY_VALUES, is_option
from backends.servers.engines import ENGINES, Engine, EngineId

LauncherKind = Literal["process", "systemd", "docker", "podman", "tmux"]
DEFAULT_START_TIMEOUT_S: Final = 3600.0
"""Weights of a terabyte over a slow disk, with kernels compiled for the first time."""
_MAX_EXTENDS: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.@:-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*")

ArgumentValue = str | int | float | bool | list[str]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]


class ReadinessTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ready = {...}` as written: what must be seen besides what the engine's module knows."""

    log: str | None = None
    """A regular expression that a line of the log must match."""
    path: str | None = None
    """An endpoint that must answer with `code`."""
    code: Annotated[int, msgspec.Meta(ge=100, le=599)] = 200
    prompt: str | None = None
    """A prompt that must be completed once."""


class ServerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[servers]]` table as written; what is left out may come from `extends`."""

    name: str
    host: str | None = None
    engine: EngineId | None = None
    command: list[str] | None = None
    arguments: dict[str, ArgumentValue] = {}
    """Changes to the command: a value replaces or adds an option, `true` adds a flag, `false`
    takes the option away, a list gives several values."""
    env: dict[str, str] = {}
    cwd: str | None = None
    port: Port | None = None
    launcher: LauncherKind | None = None
    unit: str | None = None
    """Name of the systemd unit, the container or the tmux session that the launcher handles."""
    log: str | None = None
    start_timeout_s: Seconds | None = None
    stop_grace_s: Seconds | None = None
    ready: ReadinessTable | None = None
    api_key_env: str | None = None
    """Name of the variable with the server's key: of `env`, else of gpuroom's environment."""
    extends: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """What must be seen besides what the engine's module knows."""

    log: re.Pattern[str] | None = None
    path: str | None = None
    code: int = 200
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A server that can be started."""

    name: str
    host: str
    engine: Engine
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    port: int | None = None
    launcher: LauncherKind = "process"
    unit: str | None = None
    log: str | None = None
    start_timeout_s: float = DEFAULT_START_TIMEOUT_S
    stop_grace_s: float = 30.0
    ready: Readiness = field(default_factory=Readiness)
    api_key_env: str | None = None
    lineage: tuple[str, ...] = ()
    """The profiles it extends, nearest first."""


def resolve_profiles(
    tables: Sequence[Mapping[str, object]], *, path: Path | None = None
) -> tuple[Profile, ...]:
    """Check `[[servers]]` tables and resolve what they extend.

    Args:
        tables: As parsed from TOML.
        path: The file they come from, for errors.

    Raises:
        ConfigError: A table is wrong; says which, what about it, and how it should be.
    """
    written: dict[str, ServerTable] = {}
    for number, table in enumerate(tables, start=1):
        parsed = _parse(table, number, path)
        if parsed.name in written:
            raise ConfigError(f"server '{parsed.name}' is there twice", path=path)
        written[parsed.name] = parsed
    profiles: list[Profile] = []
    extended = {table.extends for table in written.values()}
    for name in written:
        merged, lineage = _merge(name, written, path)
        if name in extended and (merged.host is None or merged.command is None):
            continue  # only a part, which others complete
        profiles.append(_finish(merged, lineage, path))
    return tuple(profiles)


def _parse(table: Mapping[str, object], number: int, path: Path | None) -> ServerTable:
    label = table.get("name")
    who = f"server '{label}'" if isinstance(label, str) else f"server number {number}"
    try:
        parsed = msgspec.convert(dict(table), ServerTable)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{who}: {error}", path=path, hint=_hint(str(error))) from error
    if not _NAME.fullmatch(parsed.name):
        raise ConfigError(
            f"{who}: this name cannot be used",
            path=path,
            hint="letters, digits and . _ @ : - , at most 64, not beginning with a sign",
        )
    for variable in (*parsed.env, *([parsed.api_key_env] if parsed.api_key_env else ())):
        if not _VARIABLE.fullmatch(variable):
            raise ConfigError(f"{who}: '{variable}' is no environment variable", path=path)
    for option in parsed.arguments:
        if not option.startswith("-"):
            raise ConfigError(
                f"{who}: '{option}' is no option",
                path=path,
                hint='write options as on the command line: arguments = { "--tp" = 4 }',
            )
    return parsed


def _hint(error: str) -> str:
    if "command" in error:
        return 'the command is a list: command = ["vllm", "serve", "MODEL"]'
    if "engine" in error:
        return "one of " + ", ".join(engine.value for engine in EngineId)
    if "launcher" in error:
        return "one of process, systemd, docker, podman, tmux"
    if "unknown field" in error:
        known = ", ".join(ServerTable.__struct_fields__)
        return f"known keys: {known}"
    if "env" in error:
        return 'environment values are strings: env = { CUDA_VISIBLE_DEVICES = "0,1" }'
    return ""


def _merge(
    name: str, written: Mapping[str, ServerTable], path: Path | None
) -> tuple[ServerTable, tuple[str, ...]]:
    """Lay a table over those it extends, nearest last."""
    chain = [written[name]]
    while chain[-1].extends is not None:
        parent = chain[-1].extends
        if parent not in written:
            known = ", ".join(sorted(written))
            raise ConfigError(
                f"server '{chain[-1].name}' extends '{parent}', which is not there",
                path=path,
                hint=f"servers of this file: {known}",
            )
        if any(table.name == parent for table in chain) or len(chain) > _MAX_EXTENDS:
            circle = " -> ".join([table.name for table in chain] + [parent])
            raise ConfigError(f"servers extend each other in a circle: {circle}", path=path)
        chain.append(written[parent])
    merged = chain[-1]
    if merged.command is not None:
        merged = msgspec.structs.replace(merged, command=_changed(merged, merged.engine))
    for table in reversed(chain[:-1]):
        merged = _lay_over(merged, table)
    return merged, tuple(table.name for table in chain[1:])


def _lay_over(base: ServerTable, table: ServerTable) -> ServerTable:
    changes: dict[str, object] = {"name": table.name, "env": {**base.env, **table.env}}
    for key in ServerTable.__struct_fields__:
        if key in ("name", "env", "arguments", "extends"):
            continue
        value = getattr(table, key)
        if value is not None:
            changes[key] = value
    merged = msgspec.structs.replace(base, **changes)
    merged = msgspec.structs.replace(merged, arguments=table.arguments)
    if merged.command is None:
        return msgspec.structs.replace(merged, arguments={**base.arguments, **table.arguments})
    if base.command is None and table.command is not None:
        both = {**base.arguments, **table.arguments}
        merged = msgspec.structs.replace(merged, arguments=both)
    return msgspec.structs.replace(merged, command=_changed(merged, merged.engine))


def _changed(table: ServerTable, engine: EngineId | None) -> list[str]:
    command = list(table.command or ())
    for option, value in table.arguments.items():
        command = change_argument(command, option, value, ENGINES[engine] if engine else None)
    return command


def change_argument(
    command: Sequence[str], option: str, value: ArgumentValue, engine: Engine | None = None
) -> list[str]:
    """Set, replace or take away one option of a command.

    Args:
        command: The argument vector.
        option: As written on the command line; any of the engine's other spellings of it in the
            command is replaced.
        value: `True` for a flag, `False` to take the option away, else its value or values.
        engine: Tells the other spellings.
    """
    spellings, values = {option}, 1
    for known in engine.options if engine is not None else ():
        if option in known.spellings:
            spellings.update(known.spellings)
            values = 0 if (known.default or "").lower() == "false" else values
    if isinstance(value, list) or option in MANY_VALUES:
        values = len(command)
    kept: list[str] = []
    place: int | None = None
    position = 0
    while position < len(command):
        word = command[position]
        position += 1
        if position > 1 and word.partition("=")[0] in spellings:
            place = len(kept) if place is None else place
            taken = values if "=" not in word else 0
            while taken and position < len(command) and not is_option(command[position]):
                position, taken = position + 1, taken - 1
            continue
        kept.append(word)
    if value is False:
        return kept
    new = [option]
    if isinstance(value, list):
        new += value
    elif value is not True:
        new.append(str(value))
    place = len(kept) if place is None else place
    return kept[:place] + new + kept[place:]


def _finish(table: ServerTable, lineage: tuple[str, ...], path: Path | None) -> Profile:
    who = f"server '{table.name}'"
    if table.host is None:
        raise ConfigError(f"{who} has no host", path=path, hint='host = "gpu01"')
    engine = ENGINES[table.engine or EngineId.CUSTOM]
    launcher: LauncherKind = table.launcher or "process"
    if not table.command and launcher == "process":
        raise ConfigError(
            f"{who} has no command", path=path, hint='command = ["vllm", "serve", "MODEL"]'
        )
    if not table.command and table.unit is None:
        raise ConfigError(
            f"{who} has neither a command nor a unit",
            path=path,
            hint='unit = "NAME" names the unit, container or session that exists',
        )
    if any("\0" in word for word in table.command or ()):
        raise ConfigError(f"{who}: an argument has a NUL character", path=path)
    for key, place in (("cwd", table.cwd), ("log", table.log)):
        if place is not None and not place.startswith(("/", "~/")):
            raise ConfigError(
                f"{who}: {key} = '{place}' is no whole path",
                path=path,
                hint="it is a path on the host: begin with / or ~/",
            )
    port = table.port or _port_of(engine, table.command or []) or engine.default_port
    ready = _readiness(table, who, path)
    if port is None and (ready.path is not None or ready.prompt is not None):
        raise ConfigError(
            f"{who} has no port to ask", path=path, hint="port = 8000, or ready by `log` alone"
        )
    return Profile(
        name=table.name,
        host=table.host,
        engine=engine,
        command=tuple(table.command or ()),
        env=table.env,
        cwd=table.cwd,
        port=port,
        launcher=launcher,
        unit=table.unit,
        log=table.log,
        start_timeout_s=table.start_timeout_s or DEFAULT_START_TIMEOUT_S,
        stop_grace_s=table.stop_grace_s or engine.stop.grace_s,
        ready=ready,
        api_key_env=table.api_key_env,
        lineage=lineage,
    )


def _port_of(engine: Engine, command: Sequence[str]) -> int | None:
    """The port that the command itself names."""
    spellings = {"--port"}
    for option in engine.options:
        if option.name == "port":
            spellings.update(option.spellings)
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name not in spellings:
            continue
        text = value if equals else command[index + 1] if index + 1 < len(command) else ""
        if text.isdigit() and 0 < int(text) < 65_536:
            return int(text)
    return None


def _readiness(table: ServerTable, who: str, path: Path | None) -> Readiness:
    ready = table.ready
    if ready is None:
        return Readiness()
    if ready.path is not None and not PurePosixPath(ready.path).is_absolute():
        raise ConfigError(f"{who}: ready.path must begin with /", path=path)
    pattern: re.Pattern[str] | None = None
    if ready.log is not None:
        try:
            pattern = re.compile(ready.log)
        except re.error as error:
            raise ConfigError(
                f"{who}: ready.log is no regular expression: {error}", path=path
            ) from error
    return Readiness(pattern, ready.path, ready.code, ready.prompt)
