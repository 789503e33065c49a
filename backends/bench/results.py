"""The result document: what a run measured and everything that produced it.

Typed, frozen and versioned. The runner writes it, storage keeps it, comparison reads it, `--json`
prints it. Every time inside a run is in seconds since the run began; a value that could not be had
is None, never 0. `docs/bench.md` defines each metric in words.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from backends.bench.possible import Possible

SCHEMA: Final = 1
"""Version of this document; raised whenever a field changes its meaning or goes away."""


class RunStatus(StrEnum):
    """How a run ended."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    """Cancelled by the operator; what was measured until then is kept."""
    BROKEN = "broken"
    """The generator died or could not go on; what was measured until then is kept."""


class Failure(StrEnum):
    """Why a request is no success."""

    CONNECT = "connect"
    """No connection: refused, unreachable, or not within the deadline."""
    TLS = "tls"
    RATE_LIMITED = "rate_limited"
    """HTTP 429."""
    OVERLOADED = "overloaded"
    """HTTP 503."""
    HTTP = "http"
    """Any other status that is no 2xx."""
    CUT = "cut"
    """The connection ended before the answer did."""
    SILENCE = "silence"
    """No byte for longer than the plan allows."""
    TIMEOUT = "timeout"
    """The answer took longer in all than the plan allows."""
    OVERRUN = "overrun"
    """The stream went on far beyond the tokens asked for."""
    ERROR_EVENT = "error_event"
    """A 2xx whose stream carried an error."""
    NO_FINISH = "no_finish"
    """The stream ended without a finish reason."""
    WRONG_LENGTH = "wrong_length"
    """EOS was to be ignored, and the answer has another length than was asked for."""
    PROTOCOL = "protocol"
    """The answer is no HTTP, no server-sent events or no JSON."""
    UNKNOWN = "unknown"
    """Another tool's, which did not say."""


class TokenSource(StrEnum):
    """Where a count of output tokens comes from, best first."""

    USAGE = "usage"
    IDS = "ids"
    """Token ids or the engine's own per-event counts."""
    EVENTS = "events"
    """One a token-carrying event: an estimate."""


class PromptSource(StrEnum):
    """How prompts got their length."""

    IDS = "ids"
    """Token ids were sent: exact, no tokenizer."""
    SERVER_TOKENIZER = "server_tokenizer"
    LOCAL_TOKENIZER = "local_tokenizer"
    CALIBRATED = "calibrated"
    """Words, whose number was fitted to the server's own `usage` by probing."""
    DATASET = "dataset"
    """Prompts from a file, as they are."""


class ReceiveClock(StrEnum):
    """Which clock stamped what arrived."""

    KERNEL = "kernel"
    """SO_TIMESTAMPNS: when the packet came, however late the client read it."""
    LOOP = "loop"
    """When the client read it."""
    MIXED = "mixed"


class EnergySource(StrEnum):
    """What a figure of energy rests on."""

    COUNTER = "counter"
    """The driver's own energy counter."""
    POWER = "power"
    """Power readings by time."""


class Severity(StrEnum):
    """How much a finding matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    """The figures are no good."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about a run, before or after it."""

    key: str
    """Stable name, such as `foreign_load`."""
    severity: Severity
    text: str
    """One sentence with its figures."""
    step: int | None = None
    """Position in `RunResult.steps`, or None for the whole run."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution: exact percentiles (linear between neighbours), all of one unit.

    Of another tool's run what that tool has told; what it has not is None.
    """

    n: int | None = None
    """How many values it is of."""
    mean: float | None = None
    stdev: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over one window. Output and total always stand together."""

    start_s: float
    end_s: float
    requests: int
    """Requests that succeeded; in the steady window those that ended inside it."""
    input_tokens: int
    output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Input + output. Never to be read as output."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that met every stated limit; failures are in the denominator."""

    limits_s: dict[str, float]
    """Metric (`ttft`, `tpot`, `e2e`, `gap_max`) to its limit in seconds."""
    good: int
    of: int
    requests_per_s: float


class TimeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of a step's steady window: the unit of statistics inside a step."""

    start_s: float
    end_s: float
    requests: int
    input_tokens: int
    output_tokens: int
    ttft_s: float | None = None
    """Mean over the requests that ended in this block; likewise below."""
    ttft_p99_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What the client says of itself: whether it kept up."""

    valid: bool
    reasons: tuple[str, ...] = ()
    """Why not, in words."""
    workers: int = 1
    cpu_s: float = 0.0
    cpu_share: float = 0.0
    """Of one core, the busiest worker."""
    run_queue_wait_s: float | None = None
    """Time the workers were ready to run and did not."""
    max_rss_bytes: int | None = None
    receive_lag_p50_s: float | None = None
    """From arrival to being read."""
    receive_lag_p99_s: float | None = None
    receive_lag_max_s: float | None = None
    send_late_p50_s: float | None = None
    """From due to sent, connection time excluded."""
    send_late_p99_s: float | None = None
    send_late_max_s: float | None = None
    limited_s: float = 0.0
    """How long the client held the load back."""
    merged_share: float | None = None
    """Token events that arrived in one read with another, of the streams read event by event."""
    clock: ReceiveClock | None = None
    """None of another tool, which does not say."""


class TokenLedger(msgspec.Struct, frozen=True, kw_only=True):
    """Three counts of the same tokens; what doesn't add up is said."""

    asked_input: int | None = None
    asked_output: int | None = None
    usage_input: int | None = None
    usage_output: int | None = None
    usage_cached_input: int | None = None
    seen_output: int | None = None
    """Token ids or events counted by the client; of another tool, what it has counted."""
    server_input: int | None = None
    """By the server's own counters, over the same time."""
    server_output: int | None = None
    foreign_output_share: float | None = None
    """Of the server's output tokens, those that are not this run's."""
    remarks: tuple[str, ...] = ()


class ServerWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own metrics through a step: mean and maximum of each sample."""

    samples: int
    running_mean: float | None = None
    running_max: float | None = None
    waiting_mean: float | None = None
    waiting_max: float | None = None
    kv_cache_used_mean: float | None = None
    """Of 1."""
    kv_cache_used_max: float | None = None
    prefix_cache_hit_share: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    spec_accepted_per_step: float | None = None


class GpuWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU through a step."""

    uuid: str
    name: str = ""
    power_mean_w: float | None = None
    power_max_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    energy_source: EnergySource | None = None
    sm_clock_mean_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    utilization_mean: float | None = None
    """Of 1."""
    memory_used_max_bytes: int | None = None
    temperature_max_c: float | None = None
    throttle_s: dict[str, float] = {}
    """Clock event reason to the seconds it was active."""
    memory_utilization_mean: float | None = None
    """Of 1: time in which the GPU's memory was read or written."""
    memory_clock_mean_mhz: float | None = None


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one repetition."""

    index: int
    """Which step of the plan; the pair (index, repetition) is unique."""
    repetition: int
    label: str
    """The load in words, such as `64 streams` or `12/s poisson`: equal labels are comparable."""
    load: dict[str, str | int | float | bool | None]
    """The load as the plan states it."""
    concurrency: int | None = None
    """Streams at once of a closed loop."""
    rate_per_s: float | None = None
    """Requests due a second, of an open loop."""
    start_s: float
    end_s: float
    warm_up_s: float = 0.0
    warm_up_steady: bool | None = None
    """Whether the warm-up saw the figures come to rest; None when it did not look."""
    sent: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    """Stopped by us: neither success nor failure."""
    failures: dict[str, int] = {}
    """`Failure` to its number."""
    max_in_flight: int = 0
    steady: Throughput | None = None
    """All slots busy, first and last requests excluded; None when there was no such time."""
    whole: Throughput | None = None
    """First send to last byte: what other tools print."""
    goodput: Goodput | None = None
    connect_s: Summary | None = None
    queue_s: Summary | None = None
    """From due to sent; open loop only."""
    ttfb_s: Summary | None = None
    ttft_s: Summary | None = None
    ttfa_s: Summary | None = None
    """To the first answer token, of answers that reasoned first."""
    gap_s: Summary | None = None
    itl_s: Summary | None = None
    tpot_s: Summary | None = None
    e2e_s: Summary | None = None
    e2e_due_s: Summary | None = None
    """From when the request was due; open loop only."""
    input_length: Summary | None = None
    output_length: Summary | None = None
    reasoning_tokens: int | None = None
    token_source: TokenSource | None = None
    """The worst of all requests; None of another tool, which does not say."""
    events: int = 0
    tokens_per_event: float | None = None
    sampled_streams: int | None = None
    """How many streams were read event by event; None when all were."""
    blocks: tuple[TimeBlock, ...] = ()
    ledger: TokenLedger = TokenLedger()
    client: ClientHealth = ClientHealth(valid=True)
    server: ServerWindow | None = None
    gpus: tuple[GpuWindow, ...] = ()
    joules_per_output_token: float | None = None
    bound: str | None = None
    """What held the server back: compute, memory, queue, cap, latency; None when unknown."""
    bound_evidence: str | None = None
    """What shows it, or why it is unknown."""
    joules_per_total_token: float | None = None
    """Energy of the GPUs / (input + output) tokens."""
    energy_source: EnergySource | None = None
    """What both rest on: the counter only where every GPU has it."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    url: str
    """Without user name, password or query."""
    engine: str = "unknown"
    engine_version: str | None = None
    model: str | None = None
    route: str = ""
    streaming: bool = True
    tls: bool = False
    profile: str | None = None
    """Name of the server profile it was started from, if gpuroom did."""


class ClientPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the load came from."""

    where: str
    """`local`, `host` (beside the server) or `tunnel`."""
    hostname: str = ""
    python: str = ""
    generator: str = ""
    """Version of the generator."""
    cpus: int | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that produced the figures. What is unknown is left out."""

    gpuroom: str = ""
    host: str | None = None
    kernel: str | None = None
    driver: str | None = None
    cuda: str | None = None
    boot_id: str | None = None
    gpus: tuple[dict[str, str | int | float | None], ...] = ()
    """Identity and power limits of each: `uuid`, `name`, `power_limit_w`, ..."""
    asked_config: dict[str, str] = {}
    effective_config: dict[str, str] = {}
    effective_source: str | None = None
    """Where that was read: `http` or `log`."""
    versions: dict[str, str] = {}
    """Library to version on the host."""
    changed_files: tuple[str, ...] = ()
    """Files of the server's packages whose hash is not that of their RECORD."""
    tuning: dict[str, str] = {}
    """FAIL and WARN by check of the host's newest checklist, and `summary` (counts), `boot_id` and
    `read_utc` of it."""
    server_argv: tuple[str, ...] = ()
    server_pid: int | None = None
    server_start_ticks: int | None = None
    """Field 22 of its /proc/PID/stat: with boot and pid, that very process."""
    server_started_unix_s: float | None = None
    server_env: dict[str, str] = {}
    """Without secrets."""


class PlanEcho(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that was run."""

    name: str
    toml: str
    """The plan in full, as it was run."""
    digest: str
    """SHA-256 of the plan without name and description: equal digests are the same plan."""
    seed: int
    prompt_source: PromptSource
    workload_digest: str
    """SHA-256 of what the prompts are made from: equal digests are the same prompts."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the whole document."""

    schema: int = SCHEMA
    run_id: str
    """Sortable by time and unique."""
    started_utc: datetime
    ended_utc: datetime | None = None
    epoch_unix_s: float | None = None
    """Second 0 of every time in the run, on the system clock of where the load came from."""
    status: RunStatus
    harness: str = "gpuroom"
    """Which tool measured: `gpuroom`, or the other harness whose output this was made from."""
    plan: PlanEcho
    target: Target
    client: ClientPlace
    environment: Environment = Environment()
    findings: tuple[Finding, ...] = ()
    steps: tuple[StepResult, ...] = ()
    error: str | None = None
    """Why it broke, if it did."""
    possible: Possible | None = None
    """The theoretical maximum beside each load, where the model could be weighed."""
    possible_absent: str | None = None
    """Why that is not known."""


def to_json(result: RunResult) -> bytes:
    """The document as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2)


def from_json(data: bytes | str) -> RunResult:
    """Read a document; raises msgspec.ValidationError with the path of what is wrong."""
    return msgspec.json.decode(data, type=RunResult)
