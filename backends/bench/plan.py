"""Plans: what load to offer. `planfile` reads them from TOML, `steps` unrolls them.

A plan says nothing about which server it is for, so that the same plan can be compared across
servers. `docs/bench.md` describes every key.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what a plan consists of: an unknown key is an error, since it is a typing error."""


class Uniform(_Part, frozen=True, kw_only=True, tag_field="kind", tag="uniform"):
    """Every length from `low` to `high` is as likely."""

    low: Count
    high: Count


class Normal(_Part, frozen=True, kw_only=True, tag_field="kind", tag="normal"):
    """Normal, cut at `low` and `high`."""

    mean: Positive
    stdev: Annotated[float, msgspec.Meta(ge=0)]
    low: Count = 1
    high: Count | None = None


class LogNormal(_Part, frozen=True, kw_only=True, tag_field="kind", tag="lognormal"):
    """Log-normal with this mean and standard deviation of the lengths themselves."""

    mean: Positive
    stdev: Annotated[float, msgspec.Meta(ge=0)]
    low: Count = 1
    high: Count | None = None


class Choice(_Part, frozen=True, kw_only=True, tag_field="kind", tag="choice"):
    """One of `values`, weighted."""

    values: tuple[Count, ...]
    weights: tuple[float, ...] | None = None


Length = Count | Uniform | Normal | LogNormal | Choice


class Prefix(_Part, frozen=True, kw_only=True):
    """The first `tokens` of a prompt are one of `groups` common beginnings."""

    tokens: Count
    groups: Count = 1


class Part(_Part, frozen=True, kw_only=True):
    """One kind of request in the mix."""

    name: str = ""
    weight: Positive = 1.0
    input: Length = 512
    output: Length = 128
    prefix: Prefix | None = None


class Closed(_Part, frozen=True, kw_only=True, tag_field="load", tag="closed"):
    """So many streams, each sending its next request when the last has ended.

    `ramp_s` spreads the starts. The end is given by one of `requests`, `requests_per_stream` and
    `duration_s`.
    """

    concurrency: Count | tuple[Count, ...]
    ramp_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    requests: Count | None = None
    requests_per_stream: Count | None = None
    duration_s: Positive | None = None


class Open(_Part, frozen=True, kw_only=True, tag_field="load", tag="open"):
    """So many requests due each second, whether or not earlier ones have been answered."""

    rate_per_s: Positive | tuple[Positive, ...]
    arrivals: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: Positive = 1.0
    """Shape of the gamma distribution: 1 is Poisson, below 1 is burstier."""
    rate_end_per_s: Positive | None = None
    ramp_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The rate moves from `rate_per_s` to `rate_end_per_s` in this time."""
    requests: Count | None = None
    duration_s: Positive | None = None


class Trace(_Part, frozen=True, kw_only=True, tag_field="load", tag="trace"):
    """Replay of a trace: a JSONL file of times and lengths."""

    file: str
    speed: Positive = 1.0
    """2 replays twice as fast."""
    requests: Count | None = None
    duration_s: Positive | None = None


Step = Closed | Open | Trace


class WarmUp(_Part, frozen=True, kw_only=True):
    """Load that is not measured, before each step; all conditions given must hold."""

    steady: bool = True
    """Until block medians of TTFT and TPOT agree."""
    requests: Annotated[int, msgspec.Meta(ge=0)] = 0
    duration_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    max_s: Positive = 120.0


class Limits(_Part, frozen=True, kw_only=True):
    """When a request is given up."""

    connect_s: Positive = 10.0
    silence_s: Positive = 120.0
    request_s: Positive = 1800.0


class Goodness(_Part, frozen=True, kw_only=True):
    """Limits a request must meet to count in goodput."""

    ttft_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None
    gap_max_s: Positive | None = None

    def limits(self) -> dict[str, float]:
        """Metric to limit, those that are set."""
        return {
            name.removesuffix("_s"): value
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None
        }


class Plan(_Part, frozen=True, kw_only=True):
    """A plan."""

    name: str = "custom"
    description: str = ""
    seed: int = 1
    route: Literal["auto", "chat", "completions", "native"] = "auto"
    """`auto`: the one that takes token ids, else chat."""
    streaming: bool = True
    prompts: Literal["auto", "ids", "text", "dataset"] = "auto"
    dataset: str | None = None
    """JSONL file of prompts."""
    tokenizer: str | None = None
    """A local `tokenizer.json`, for when the server has no tokenizer route."""
    ignore_eos: bool = True
    """Make every answer as long as asked, where the engine can."""
    continuous_usage: Literal["auto", "on", "off"] = "auto"
    flush_cache: bool = True
    """Empty the server's prefix cache before each step, where it can be."""
    repetitions: Count = 1
    """Interleaved: all steps once, then all again."""
    pause_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    cool_down: Literal["drain", "hold"] = "drain"
    """`hold` keeps the load up until the last measured request has ended."""
    drain_s: Positive = 120.0
    workers: Count | None = None
    sample: Count | None = None
    """Read only so many streams event by event; counts stay exact."""
    parts: tuple[Part, ...] = (Part(),)
    steps: tuple[Step, ...] = (Closed(concurrency=(1, 4, 16)),)
    warm_up: WarmUp | None = WarmUp()
    limits: Limits = Limits()
    goodput: Goodness | None = None
    body: dict[str, str | int | float | bool | list[str] | dict[str, str | int | float] | None] = {}
    """Further fields of the request's body, as they are."""
