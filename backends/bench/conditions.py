"""What differs between two runs: what makes them incomparable, and what may be the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backends.bench.results import RunResult, RunStatus, StepResult
from backends.text import clean

MAX_SHOWN_CHARS: Final = 200
MAX_FOREIGN_SHARE: Final = 0.01
MAX_LENGTH_DIFFERENCE: Final = 0.01
MAX_FAILURE_DIFFERENCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in both runs, or wrong in one or both of them."""

    key: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.key}: {self.a} / {self.b}"


def obstacles(a: RunResult, b: RunResult) -> list[Difference]:
    """Differences in how it was measured: any of them makes the figures incomparable."""
    pairs: list[tuple[str, object, object]] = [
        ("tool that measured", a.harness, b.harness),
        ("prompts and lengths", _short(a.plan.workload_digest), _short(b.plan.workload_digest)),
        ("route", a.target.route, b.target.route),
        ("streaming", a.target.streaming, b.target.streaming),
        ("TLS", a.target.tls, b.target.tls),
        ("place of the client", a.client.where, b.client.where),
        ("version of the generator", a.client.generator, b.client.generator),
    ]
    found = [Difference(key, _show(x), _show(y)) for key, x, y in pairs if x != y]
    if RunStatus.BROKEN in (a.status, b.status):
        found.append(Difference("how it ended", a.status.value, b.status.value))
    return found


def step_obstacles(a: StepResult, b: StepResult) -> list[Difference]:
    """Reasons why one step cannot be compared, though the runs can."""
    found: list[Difference] = []
    if a.token_source != b.token_source:
        found.append(
            Difference("source of token counts", _show(a.token_source), _show(b.token_source))
        )
    if not (a.client.valid and b.client.valid):
        found.append(Difference("client kept up", _validity(a), _validity(b)))
    foreign = [step.ledger.foreign_output_share or 0.0 for step in (a, b)]
    if max(foreign) > MAX_FOREIGN_SHARE:
        found.append(Difference("somebody else's load", f"{foreign[0]:.1%}", f"{foreign[1]:.1%}"))
    failed = [step.failed / step.sent if step.sent else 0.0 for step in (a, b)]
    if abs(failed[0] - failed[1]) > MAX_FAILURE_DIFFERENCE:
        found.append(Difference("failed requests", f"{failed[0]:.1%}", f"{failed[1]:.1%}"))
    for key, one, two in (
        ("tokens an answer", a.output_length, b.output_length),
        ("tokens a prompt", a.input_length, b.input_length),
    ):
        x, y = one.mean if one else None, two.mean if two else None
        if x is None or y is None or not max(x, y):
            continue
        if abs(x - y) / max(x, y) > MAX_LENGTH_DIFFERENCE:
            found.append(Difference(key, f"{x:.1f}", f"{y:.1f}"))
    return found


def changes(a: RunResult, b: RunResult) -> list[Difference]:
    """What else differs: what the comparison may be about. Nothing here stands in its way."""
    one, two = a.environment, b.environment
    pairs: list[tuple[str, object, object]] = [
        ("engine", a.target.engine, b.target.engine),
        ("engine version", a.target.engine_version, b.target.engine_version),
        ("model", a.target.model, b.target.model),
        ("profile", a.target.profile, b.target.profile),
        ("host", one.host, two.host),
        ("kernel", one.kernel, two.kernel),
        ("driver", one.driver, two.driver),
        ("CUDA", one.cuda, two.cuda),
        ("boot", one.boot_id, two.boot_id),
        ("GPUs", _gpus(a), _gpus(b)),
        ("changed files", ", ".join(one.changed_files), ", ".join(two.changed_files)),
        ("command line", " ".join(one.server_argv), " ".join(two.server_argv)),
    ]
    found = [Difference(key, _show(x), _show(y)) for key, x, y in pairs if x != y]
    for key, x, y in (
        ("configuration", one.effective_config, two.effective_config),
        ("version", one.versions, two.versions),
        ("tuning", checks_of(one.tuning), checks_of(two.tuning)),
        ("environment", one.server_env, two.server_env),
    ):
        found += list(_entries(key, x, y))
    return found


def checks_of(tuning: Mapping[str, str]) -> dict[str, str]:
    """A digest of tuning without when it was read: verdicts and their counts."""
    return {name: word for name, word in tuning.items() if name not in ("boot_id", "read_utc")}


def _entries(key: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    # Only where both sides were recorded: else everything would seem to have changed.
    if not a or not b:
        return
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield Difference(f"{key} {clean(name, 80)}", _show(a.get(name)), _show(b.get(name)))


def _gpus(run: RunResult) -> str:
    return ", ".join(
        f"{gpu.get('name') or '?'} {gpu.get('power_limit_w') or '?'} W"
        for gpu in run.environment.gpus
    )


def _validity(step: StepResult) -> str:
    """Whether the client kept up, with one reason: all of them stand in the step itself."""
    if step.client.valid:
        return "yes"
    first, *others = step.client.reasons or ("no reason is known",)
    return f"no, {first}" + (f", and {len(others)} more" if others else "")


def _short(digest: str) -> str:
    return digest[:12]


def _show(value: object) -> str:
    if value is None or value == "":
        return "not known"
    return clean(str(value), MAX_SHOWN_CHARS)
