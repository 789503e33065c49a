"""What is known about an engine, as data: how it is recognised, what it prints, what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class EngineId(StrEnum):
    """Engines with a module of their own; anything else is custom."""

    SGLANG = "sglang"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    TRTLLM = "trtllm"
    TGI = "tgi"
    TRANSFORMERS = "transformers"
    OLLAMA = "ollama"
    CUSTOM = "custom"


class Phase(StrEnum):
    """Stages of a start, in the usual order; an engine skips some and may repeat others."""

    LAUNCHING = "launching"
    DOWNLOADING = "downloading"
    DISTRIBUTED = "distributed"
    LOADING = "loading-weights"
    MEMORY = "allocating-memory"
    COMPILING = "compiling"
    AUTOTUNING = "autotuning"
    CAPTURING = "capturing-graphs"
    HTTP = "starting-http"
    WARMING = "warming-up"
    READY = "ready"

    @property
    def words(self) -> str:
        """How it reads in a sentence: while ..."""
        return _PHASE_WORDS.get(self, self.value.replace("-", " "))


_PHASE_WORDS: Final = {Phase.DISTRIBUTED: "connecting ranks", Phase.HTTP: "starting HTTP"}
PHASE_ORDER: Final = {phase: index for index, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True)
class Hint:
    """A phrase that gives an engine away, and how much it counts."""

    pattern: re.Pattern[str]
    weight: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that says that a phase has begun (or, with `ends`, that it is over)."""

    phase: Phase
    pattern: re.Pattern[str]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Presumption:
    """Where one line says of which kind a server is, another is the last that it prints."""

    after: re.Pattern[str]
    then: re.Pattern[str]
    """Ready from this line on, unless a phase of a start follows."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A line that costs performance, or changes what was asked for, and that scrolls by."""

    id: str
    pattern: re.Pattern[str]
    title: str
    while_serving: bool = False
    """Also looked for once requests are served."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP endpoint and what its codes mean. A code of None: the connection is refused."""

    path: str
    loading: tuple[int | None, ...]
    ready: tuple[int, ...] = (200,)
    broken: tuple[int, ...] = ()
    """Codes that, once ready, say that the server cannot serve."""
    proves_ready: bool = True
    """False where the endpoint answers 200 before the model can serve."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of the command line under its canonical name, with its other spellings."""

    name: str
    spellings: tuple[str, ...]
    default: str | None = None
    """What the engine takes when nobody asks, in the spelling it reports; None: not known."""


@dataclass(frozen=True, slots=True)
class Stop:
    """How the engine takes an orderly stop."""

    marks: tuple[re.Pattern[str], ...]
    """Lines of an orderly stop, the plainest first."""
    note: str = ""
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything gpuroom knows about one engine. Patterns match a line's message."""

    id: EngineId
    title: str
    default_port: int | None
    hints: tuple[Hint, ...] = ()
    version: tuple[re.Pattern[str], ...] = ()
    """Group 1 is the version."""
    version_prefix: str = ""
    banner: tuple[re.Pattern[str], ...] = ()
    """Lines that only the beginning of a run prints: a second one is a second run."""
    marks: tuple[Mark, ...] = ()
    bars: tuple[tuple[re.Pattern[str], Phase], ...] = ()
    """Labels of progress bars, and the phase each belongs to."""
    ready: tuple[re.Pattern[str], ...] = ()
    """Lines after which requests are served, so far as a log can say."""
    presumptions: tuple[Presumption, ...] = ()
    """Readiness of servers that have no line for it."""
    not_ready: tuple[re.Pattern[str], ...] = ()
    """Lines that take a readiness line back."""
    fatal: tuple[re.Pattern[str], ...] = ()
    """Lines that only a dying server prints; they say that it dies, not why."""
    waiting: tuple[re.Pattern[str], ...] = ()
    """Lines that its processes print while they wait for each other. Usual while one of them
    compiles; a hang where nothing compiles."""
    served: tuple[re.Pattern[str], ...] = ()
    """Lines of requests that were carried out: whoever prints them lives."""
    outlives_workers: bool = False
    """Whether it goes on serving when the process that ran a model has died."""
    routine: re.Pattern[str] | None = None
    """Start of lines that serving prints over and over; they are counted and passed over."""
    advice: tuple[Advice, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    config_paths: tuple[str, ...] = ()
    """HTTP endpoints that tell the effective configuration, newest first."""
    options: tuple[Option, ...] = ()
    processes: tuple[re.Pattern[str], ...] = ()
    """Titles of worker processes, as `ps` shows them."""
    stop: Stop = field(default_factory=lambda: Stop(marks=()))
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Names on the metrics endpoint by what they mean: running, waiting, kv_cache_usage, ..."""
    notes: tuple[str, ...] = ()


def rx(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Compile some patterns."""
    return tuple(re.compile(pattern) for pattern in patterns)


def hints(*pairs: tuple[int, str]) -> tuple[Hint, ...]:
    """Weights and patterns to hints."""
    return tuple(Hint(re.compile(pattern), weight) for weight, pattern in pairs)


def marks(*pairs: tuple[Phase, str]) -> tuple[Mark, ...]:
    """Phases and patterns to marks."""
    return tuple(Mark(phase, re.compile(pattern)) for phase, pattern in pairs)


def ends(*pairs: tuple[Phase, str]) -> tuple[Mark, ...]:
    """Phases and the patterns of their last line to marks."""
    return tuple(Mark(phase, re.compile(pattern), ends=True) for phase, pattern in pairs)


def bars(*pairs: tuple[str, Phase]) -> tuple[tuple[re.Pattern[str], Phase], ...]:
    """Label patterns and phases of progress bars."""
    return tuple((re.compile(pattern), phase) for pattern, phase in pairs)


def presumptions(*pairs: tuple[str, str]) -> tuple[Presumption, ...]:
    """Pairs of patterns to presumptions."""
    return tuple(Presumption(re.compile(after), re.compile(then)) for after, then in pairs)


def advice(*rows: tuple[str, str, str]) -> tuple[Advice, ...]:
    """Ids, patterns and titles to advice that is looked for while the server starts."""
    return tuple(Advice(row[0], re.compile(row[1]), row[2]) for row in rows)


def serving_advice(*rows: tuple[str, str, str]) -> tuple[Advice, ...]:
    """The same for what is printed while requests are served."""
    return tuple(Advice(row[0], re.compile(row[1]), row[2], while_serving=True) for row in rows)


def option(name: str, *spellings: str, default: str | None = None) -> Option:
    """An option; `--name-with-dashes` is always one of its spellings."""
    dashed = "--" + name.replace("_", "-")
    return Option(name, tuple(dict.fromkeys((dashed, *spellings))), default)


UVICORN_STARTUP: Final = r"^Application startup complete\."
UVICORN_RUNNING: Final = r"^Uvicorn running on (?:socket|unix|https?:)"
UVICORN_SHUTDOWN: Final = r"^Shutting down$"
BIND_FAILED: Final = (
    r"(?i)address already in use|error while attempting to bind on address|"
    r"\[Errno (?:13|98|99|48)\][^\n]{0,40}bind|bind\(\): (?:permission|address)|couldn't bind"
)
REQUEST_DONE: Final = r'"(?:POST|PUT) /[^"]{0,200}HTTP/[\d.]+" 2\d\d'

DOWNLOAD_BARS: Final = bars(
    (r"(?i)^fetching|^downloading|\.safetensors$|\.gguf$|\.bin$", Phase.DOWNLOADING),
)
SUPERVISED: Final = r"^exited: \S{1,80} \([^)]{1,80}; not expected\)"
"""What supervisord says of a program that ended by itself, as information or a warning."""
COMMON_FATAL: Final = rx(
    r"^Fatal Python error:",
    r"^(?:Segmentation fault|Bus error|Aborted|Killed|Illegal instruction)\b(?! by)",
    r"\(core dumped\)",
    r"^terminate called (?:after throwing|without an active exception|recursively)",
    r"^(?:\[\d+\]\s*[+-]?\s+)?\d+ (?:killed|abort|segmentation fault|bus error)\b",
    r"^\[\d+\][+-]?\s+(?:Killed|Aborted|Segmentation fault|Bus error|Exit [1-9])",
    r"^\S*sh: (?:line \d+: +\d+ )?(?:[Aa]bort(?:ed)?|[Kk]illed|[Ss]egmentation fault)",
    r"^!!!!!!! Segfault encountered",
    # What systemd, docker compose, Slurm and MPI say of a program that ended badly.
    r"Main process exited, code=(?:exited, status=(?!143)[1-9]|killed(?!, status=15)|dumped)",
    SUPERVISED,
    r"\bexited with code [1-9]\d*\b|Exited with exit code [1-9]",
    r"slurmstepd: error: .*(?:oom_kill|CANCELLED)|DUE TO TIME LIMIT",
)
COMMON_STOP: Final = rx(
    r"^KeyboardInterrupt(?:: terminated)?$",
    r"^\^C",
    r"(?i)^(?:received|caught|got) (?:signal )?\(?(?:sigterm|sigint|signal 15|signal 2|15|2)\b",
    r"(?i)\bSIGTERM received|received SIG(?:TERM|INT)\b|trigger received signal=SIG(?:TERM|INT)",
    r"^Terminated$",
    r"^Stopping [\w@.:\\-]{1,120}\.service\b|Main process exited, code=killed, status=15",
    r"^(?:\[\d+\]\s*[+-]?\s+)?\d+ terminated\b|^\[\d+\][+-]?\s+Terminated\b",
    r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ \*\*\*",
    UVICORN_SHUTDOWN,
)
