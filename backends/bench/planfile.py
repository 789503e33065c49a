"""Plans as TOML files: shipped ones and the user's, read and checked."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from backends import paths, toml
from backends.bench.plan import (
    Choice,
    Closed,
    Length,
    LogNormal,
    Normal,
    Open,
    Plan,
    Step,
    Trace,
    Uniform,
)
from backends.bench.steps import many, unroll
from backends.errors import ConfigError, UsageError

SHIPPED: Final = Path(__file__).with_name("plans")
MAX_STEPS: Final = 500
MAX_STREAMS: Final = 20_000
MAX_REQUESTS: Final = 1_000_000
"""A step; each leaves a record, kept and weighed when the step is over."""
MAX_RATE_PER_S: Final = 100_000
"""Many times what a machine can send."""
MAX_TOKENS: Final = 10_000_000
"""Of a prompt or an answer: beyond every context."""
MAX_FRACTION: Final = 1e9
"""Of any figure of a plan: no time in seconds, weight or rate needs more."""


def available() -> dict[str, Path]:
    """Plan names to their files; the user's own win over shipped ones of the same name."""
    found = {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}
    own = paths.config_file().parent / "plans"
    found.update({path.stem: path for path in sorted(own.glob("*.toml"))})
    return found


def load(name_or_path: str) -> Plan:
    """The plan of that name, or in that file.

    Raises:
        UsageError: There is no such plan.
        ConfigError: The plan cannot be used; says where and why.
    """
    known = available()
    path = known.get(name_or_path)
    if path is None:
        path = Path(name_or_path).expanduser()
        if path.suffix != ".toml" or not path.is_file():
            near = difflib.get_close_matches(name_or_path, known, n=1)
            raise UsageError(
                f"no plan is called {name_or_path!r}",
                "there are: " + ", ".join(known),
                f"did you mean {near[0]}?"
                if near
                else "give one of these names, or the path of a .toml file",
            )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the plan cannot be read: {error}", path=path) from error
    return parse(text, path)


def parse(text: str, path: Path | None = None) -> Plan:
    """A plan from TOML, checked. Raises ConfigError."""
    try:
        plan = toml.decode(text, Plan)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the plan is not valid: {_readable(str(error))}",
            path=path,
            hint="docs/bench.md lists every key",
        ) from error
    except msgspec.DecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError(
            f"the plan is no TOML: {error}", path=path, line=int(line[1]) if line else None
        ) from error
    if plan.name == "custom" and path is not None:
        plan = msgspec.structs.replace(plan, name=path.stem)
    if path is not None:
        plan = _anchored(plan, path.parent)
    check(plan, path)
    return plan


def check(plan: Plan, path: Path | None = None) -> None:
    """Raise ConfigError if the parts of the plan don't fit together."""

    def wrong(text: str, hint: str = "") -> ConfigError:
        return ConfigError(f"the plan is not valid: {text}", path=path, hint=hint)

    for where, value in _numbers(msgspec.to_builtins(plan), ""):
        if not math.isfinite(value) or abs(value) > MAX_FRACTION:
            raise wrong(f"{where} is {value}", f"give a number up to {MAX_FRACTION:g}")
    if abs(plan.seed) >= 1 << 63:
        raise wrong("seed is too large", "give one of 64 bits")
    if not plan.steps:
        raise wrong("it has no steps", "add a [[steps]] table")
    if not plan.parts:
        raise wrong("it has no parts", "add a [[parts]] table with input and output")
    for number, step in enumerate(plan.steps, 1):
        ends = [
            name
            for name in ("requests", "requests_per_stream", "duration_s")
            if getattr(step, name, None) is not None
        ]
        if len(ends) > 1:
            raise wrong(f"step {number} has {' and '.join(ends)}", "give one of them")
        loads = getattr(step, "concurrency", None) or getattr(step, "rate_per_s", None)
        if not isinstance(step, Trace) and not loads:
            raise wrong(f"step {number} has no load", "name one or several")
        if _requests(step) > MAX_REQUESTS:
            raise wrong(
                f"step {number} has more than {MAX_REQUESTS} requests", "give fewer, or a duration"
            )
        if isinstance(step, Open):
            fastest = max((*many(step.rate_per_s), step.rate_end_per_s or 0.0))
            if fastest > MAX_RATE_PER_S:
                raise wrong(f"step {number} has more than {MAX_RATE_PER_S} requests a second")
        if isinstance(step, Closed) and max(many(step.concurrency)) > MAX_STREAMS:
            raise wrong(f"step {number} has more than {MAX_STREAMS} streams")
        if isinstance(step, Open) and (step.rate_end_per_s is None) != (step.ramp_s == 0):
            raise wrong(
                f"step {number}: a ramp needs both rate_end_per_s and ramp_s", "give both or none"
            )
        if isinstance(step, Open) and step.burstiness != 1.0 and step.arrivals != "gamma":
            raise wrong(
                f"step {number}: burstiness is for arrivals = 'gamma'",
                f"it has arrivals = '{step.arrivals}'",
            )
    for part in plan.parts:
        for what, length in (("input", part.input), ("output", part.output)):
            _check_length(length, what, wrong)
        prefix = part.prefix
        if prefix is not None and isinstance(part.input, int) and prefix.tokens >= part.input:
            raise wrong(
                f"the prefix has {prefix.tokens} tokens and the input {part.input}",
                "a prompt must be longer than its prefix",
            )
    if (plan.prompts == "dataset") != (plan.dataset is not None):
        raise wrong("prompts = 'dataset' and dataset = FILE go together")
    for name in ("stream", "messages", "prompt", "max_tokens", "stream_options"):
        if name in plan.body:
            raise wrong(f"body.{name} is set by the generator", "leave it out")
    if plan.repetitions > MAX_STEPS or len(unroll(plan)) > MAX_STEPS:
        raise wrong(f"it unrolls to more than {MAX_STEPS} steps", "fewer steps or repetitions")


def digest(plan: Plan) -> str:
    """SHA-256 of what the plan does: name, description and file names left out."""
    plain = msgspec.structs.replace(plan, name="", description="")
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()


def to_toml(plan: Plan) -> str:
    """The plan in full."""
    plain = msgspec.to_builtins(plan)
    return msgspec.toml.encode(_without_none(plain)).decode()


def _requests(step: Step) -> int:
    """How many requests the largest load of a step asks for; 0 where its end is a time."""
    if isinstance(step, Closed) and step.requests_per_stream is not None:
        return step.requests_per_stream * max(many(step.concurrency))
    return step.requests or 0


def _numbers(value: object, where: str) -> Iterator[tuple[str, float]]:
    """Every fraction of a plan, with its key."""
    if isinstance(value, float):
        yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _numbers(item, f"{where}[{place}]")


def _anchored(plan: Plan, folder: Path) -> Plan:
    """File names in a plan are relative to the plan's own file."""

    def anchor(name: str) -> str:
        path = Path(name).expanduser()
        return str(path if path.is_absolute() else folder / path)

    steps = tuple(
        msgspec.structs.replace(step, file=anchor(step.file)) if isinstance(step, Trace) else step
        for step in plan.steps
    )
    return msgspec.structs.replace(
        plan,
        steps=steps,
        dataset=anchor(plan.dataset) if plan.dataset else None,
        tokenizer=anchor(plan.tokenizer) if plan.tokenizer else None,
    )


def _check_length(length: Length, what: str, wrong: Callable[[str], ConfigError]) -> None:
    if max(_stated(length)) > MAX_TOKENS:
        raise wrong(f"{what}: more than {MAX_TOKENS} tokens")
    if isinstance(length, Uniform) and length.low > length.high:
        raise wrong(f"{what}: low is above high")
    if isinstance(length, Normal | LogNormal) and length.high and length.low > length.high:
        raise wrong(f"{what}: low is above high")
    if isinstance(length, Choice):
        if not length.values:
            raise wrong(f"{what}: values is empty")
        weights = length.weights
        if weights is not None and (
            len(weights) != len(length.values) or min(weights) < 0 or sum(weights) <= 0
        ):
            raise wrong(f"{what}: weights must be as many as values, and not all 0")


def _stated(length: Length) -> tuple[float, ...]:
    """The numbers of tokens that a length names."""
    if isinstance(length, int):
        return (length,)
    if isinstance(length, Uniform):
        return (length.low, length.high)
    if isinstance(length, Choice):
        return (0, *length.values)
    return (length.mean, length.low, length.high or 0)


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value


def _readable(message: str) -> str:
    """A decoder's message, its path in the plan's own words."""
    return re.sub(r" - at `\$\.?([^`]*)`", r" (in \1)", message).replace("(in )", "")
