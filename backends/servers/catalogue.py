"""The failure catalogue: which words mean which cause, and what to try.

The catalogue is data (`catalogue.toml` describes its form); a user's own file is read before it,
and an entry there replaces the one of the same id.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from backends import toml
from backends.errors import ConfigError
from backends.servers.engines import EngineId, Phase
from backends.servers.phrases import required_text

Kind = Literal["cause", "general", "echo", "symptom", "silent", "stop"]
CrashOutcome = Literal["crash", "stalled", "stopped"]

MAX_MESSAGE_CHARS: Final = 4000
"""How far into a message a signature is looked for."""
_REMEMBERED: Final = 8192
MAX_SIGNATURE_CHARS: Final = 500
_NESTED: Final = re.compile(r"\([^()]*[+*}][^()]*(?<!\\[.:/-])\)[+*{]")
"""A repetition of a repetition that no mark of its own ends."""
_LONG_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d{4,}")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_EMPTY_CLAUSE: Final = re.compile(r"[:,]? ?\{\w+\}")
_ESCAPE: Final = re.compile(r"\\.|\(\?P<\w+>")


class CauseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cause, as the file states it."""

    id: str
    title: str
    signatures: list[str]
    weak_signatures: list[str] = []
    kind: Kind = "cause"
    outcome: CrashOutcome = "crash"
    engines: list[EngineId] = []
    versions: str = ""
    phases: list[Phase] = []
    quiet: bool = False
    echoes: bool = False
    refines: list[str] = []
    remedies: list[str] = []
    reference: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cause: list[CauseEntry] = []


@dataclass(frozen=True, slots=True)
class Cause:
    """An entry with its signatures compiled."""

    entry: CauseEntry
    order: int
    """Place in the catalogue; where two causes are found on one line, the first one wins."""
    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    """Each signature with a text that whatever it matches must contain: quick to rule out."""
    engines: frozenset[EngineId]
    phases: frozenset[Phase]

    @property
    def id(self) -> str:
        """The name under which reports give it."""
        return self.entry.id

    @property
    def kind(self) -> Kind:
        """How much the entry explains."""
        return self.entry.kind


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that was found in a message."""

    cause: Cause
    signature: int
    """Its place among the cause's signatures; weak ones come after the others."""
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def weak(self) -> bool:
        """Whether it is believed only where nothing else explains the end."""
        return self.signature >= len(self.cause.entry.signatures)


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the log when a message is looked up."""

    engine: EngineId
    phase: Phase
    version: str | None = None
    quiet: bool = False
    """The line calls itself information or a warning."""


class Catalogue:
    """All causes, in order. Stateless but for a bounded memory of messages that mean nothing."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        self.causes = tuple(causes)
        self._by_id = {cause.id: cause for cause in causes}
        self._meaningless: set[int] = set()

    def get(self, cause_id: str) -> Cause | None:
        """The cause of that id, or None."""
        return self._by_id.get(cause_id)

    def find(self, message: str, context: Context) -> list[Match]:
        """Every cause that a message points to, in the catalogue's order."""
        message = message[:MAX_MESSAGE_CHARS]
        lowered = message.lower()
        key = hash(_LONG_NUMBER.sub("#", lowered))
        if key in self._meaningless:
            return []
        found: list[Match] = []
        meaningful = False
        for cause in self.causes:
            for index, (needed, pattern) in enumerate(cause.patterns):
                if needed not in lowered:
                    continue
                hit = pattern.search(lowered)
                if hit is None:
                    continue
                meaningful = True
                if _applies(cause, context):
                    found.append(Match(cause, index, _words(hit, message, lowered)))
                break
        if not meaningful:
            if len(self._meaningless) >= _REMEMBERED:
                self._meaningless.clear()
            self._meaningless.add(key)
        return found


def _applies(cause: Cause, context: Context) -> bool:
    if context.quiet and not cause.entry.quiet:
        return False
    if cause.engines and context.engine not in cause.engines:
        return False
    if cause.phases and context.phase not in cause.phases:
        return False
    return version_within(context.version, cause.entry.versions)


def _words(hit: re.Match[str], message: str, lowered: str) -> dict[str, str]:
    """Named groups, in the message's own capitals where lowering kept its length."""
    source = message if len(message) == len(lowered) else lowered
    return {
        name: source[hit.start(name) : hit.end(name)].strip()
        for name, value in hit.groupdict().items()
        if value
    }


def version_within(version: str | None, spec: str) -> bool:
    """Whether a version lies within a specification such as `>=0.5,<0.8`.

    True where either is not known: better a likely cause than none.
    """
    if not spec or not version:
        return True
    have = _numbers(version)
    for part in spec.split(","):
        found = re.fullmatch(r"\s*(>=|<=|==|<|>)\s*v?([\w.]+)\s*", part)
        if found is None:
            return True
        want = _numbers(found[2])
        length = max(len(have), len(want))
        left = have + (0,) * (length - len(have))
        right = want + (0,) * (length - len(want))
        holds = {
            ">=": left >= right,
            "<=": left <= right,
            "==": left == right,
            "<": left < right,
            ">": left > right,
        }[found[1]]
        if not holds:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"b?(\d+(?:\.\d+)*)", version)
    return tuple(int(part[:9]) for part in found[1].split(".")) if found else ()


def fill(template: str, groups: Mapping[str, str]) -> str | None:
    """Put found words in place of {names}; None where one of them was not found."""
    names = set(_PLACEHOLDER.findall(template))
    if not names <= groups.keys():
        return None
    return _PLACEHOLDER.sub(lambda name: groups[name[1]], template)


def fill_title(template: str, groups: Mapping[str, str]) -> str:
    """The same for a title, which loses the clause whose words were not found."""
    filled = fill(template, groups)
    return filled if filled is not None else _EMPTY_CLAUSE.sub("", template)


def parse_catalogue(text: str, *, path: Path | None = None) -> list[CauseEntry]:
    """Read entries from TOML.

    Raises:
        ConfigError: The text is no TOML, an entry has an unknown or missing key, or a signature
            is no regular expression or has capitals, which could never be found.
    """
    try:
        entries = msgspec.convert(toml.loads(text), _File).cause
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the failure catalogue is no valid TOML: {error}", path=path) from error
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the failure catalogue has a wrong entry: {error}",
            path=path,
            hint="`$.cause[n]` counts the entries from 0",
        ) from error
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise ConfigError(f"cause '{entry.id}' is there twice", path=path)
        seen.add(entry.id)
        if not entry.signatures:
            raise ConfigError(f"cause '{entry.id}' has no signature", path=path)
        for signature in (*entry.signatures, *entry.weak_signatures):
            _check_signature(entry.id, signature, path)
    return entries


def _check_signature(cause_id: str, signature: str, path: Path | None) -> None:
    try:
        re.compile(signature)
    except re.error as error:
        raise ConfigError(
            f"cause '{cause_id}': '{signature}' is no regular expression: {error}", path=path
        ) from error
    if len(signature) > MAX_SIGNATURE_CHARS or _NESTED.search(signature):
        raise ConfigError(
            f"cause '{cause_id}': '{signature[:80]}' is too long, or a repetition of a repetition",
            path=path,
            hint="it could take for ever on the wrong line: say it without (...+)+",
        )
    if any(char.isupper() for char in _ESCAPE.sub("", signature)):
        raise ConfigError(
            f"cause '{cause_id}': '{signature}' has capital letters",
            path=path,
            hint="messages are lower-cased before they are compared: write it in lower case",
        )


def build_catalogue(*sources: Sequence[CauseEntry]) -> Catalogue:
    """Merge entries; those of an earlier source come first and replace later ones of that id."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for entries in sources:
        for entry in entries:
            if entry.id in seen:
                continue
            seen.add(entry.id)
            causes.append(
                Cause(
                    entry=entry,
                    order=len(causes),
                    patterns=tuple(
                        (required_text(signature), re.compile(signature))
                        for signature in (*entry.signatures, *entry.weak_signatures)
                    ),
                    engines=frozenset(entry.engines),
                    phases=frozenset(entry.phases),
                )
            )
    return Catalogue(causes)


def load_catalogue(extra: Path | None = None) -> Catalogue:
    """The catalogue that comes with gpuroom, with a user's own entries before it.

    Raises:
        ConfigError: The user's file cannot be read or used.
    """
    own: list[CauseEntry] = []
    if extra is not None:
        try:
            text = extra.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the failure catalogue: {error}", path=extra) from error
        own = parse_catalogue(text, path=extra)
    return build_catalogue(own, _shipped())


@lru_cache(maxsize=1)
def _shipped() -> tuple[CauseEntry, ...]:
    path = Path(__file__).with_name("catalogue.toml")
    return tuple(parse_catalogue(path.read_text(encoding="utf-8"), path=path))
