"""From a plan to the argument vectors of other tools. Pure.

What a tool cannot be told to do as the plan wants it is refused, not approximated. Options as of
vLLM 0.34 (`vllm bench serve --help`), SGLang 0.5 (`python -m sglang.benchmark.serving --help`),
GuideLLM 0.8 (`guidellm run --help`) and AIPerf 0.13 (`aiperf profile --help`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.endpoint import Endpoint
from backends.bench.harness.judge import Beside
from backends.bench.identify import Server
from backends.bench.plan import Plan
from backends.bench.steps import StepSpec
from backends.errors import UsageError

ENOUGH: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """One step, as every tool is told it.

    Attributes:
        url: The server.
        model: Its name there.
        tokenizer: Of the model: a folder on the host, or a name.
        chat: Whether the chat route is measured; else completions.
        native: Whether the engine's own route is.
        input_tokens: Of each prompt.
        output_tokens: Of each answer.
        streams: At once, of a closed loop.
        rate_per_s: Of an open loop.
        burstiness: 1 is Poisson; None stands for constant.
        requests: In all; None where `duration_s` ends it.
        duration_s: How long it lasts.
        ignore_eos: Whether answers are as long as asked.
        flush: Whether the tool is to empty the server's prefix cache after its warm-up; where it
            knows no way that this engine has, it is emptied before the step alone.
        seed: For prompts and arrivals.
    """

    url: str
    model: str
    tokenizer: str
    chat: bool
    native: bool
    input_tokens: int
    output_tokens: int
    streams: int | None
    rate_per_s: float | None
    burstiness: float | None
    requests: int | None
    duration_s: float | None
    ignore_eos: bool
    flush: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Harness:
    """One tool.

    Attributes:
        name: On the command line.
        distribution: Its package, for the version.
        modules: What `python -m` runs: the first of these that is there.
        result: Pattern of the file it writes, in its folder.
        words: Its arguments, after the module.
        counts: It ends by a number of requests alone.
        key_env: The variable that it takes the server's key from; None where it takes none that
            other users of the host could not read.
        env: Variables that it needs for a step.
        warm_up: What it asks for before it measures.
    """

    name: str
    distribution: str
    modules: tuple[str, ...]
    result: str
    words: Callable[[Wanted], list[str]]
    counts: bool
    key_env: str | None
    env: Callable[[Wanted], dict[str, str]] = lambda want: {}
    warm_up: Callable[[Wanted], Beside] = lambda want: Beside()


def _vllm(want: Wanted) -> list[str]:
    words = [
        "bench", "serve",
        "--backend", "openai-chat" if want.chat else "openai",
        "--endpoint", "/v1/chat/completions" if want.chat else "/v1/completions",
        "--base-url", want.url, "--model", want.model, "--tokenizer", want.tokenizer,
        "--dataset-name", "random",
        "--random-input-len", str(want.input_tokens),
        "--random-output-len", str(want.output_tokens),
        "--num-prompts", str(want.requests), "--seed", str(want.seed),
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
        "--save-result", "--save-detailed", "--result-dir", "@OUT@",
        "--result-filename", "result.json",
    ]  # fmt: skip
    if want.ignore_eos:
        words.append("--ignore-eos")
    if want.streams is not None:
        words += ["--max-concurrency", str(want.streams)]
    if want.rate_per_s is not None:
        words += ["--request-rate", f"{want.rate_per_s:g}"]
        # Its gamma arrivals become constant ones as burstiness grows.
        burstiness = ENOUGH if want.burstiness is None else want.burstiness
        words += ["--burstiness", f"{burstiness:g}"]
    return words


def _sglang(want: Wanted) -> list[str]:
    backend = "sglang-oai-chat" if want.chat else "sglang-oai"
    words = [
        "--backend", "sglang" if want.native else backend,
        "--base-url", want.url, "--model", want.model, "--tokenizer", want.tokenizer,
        "--dataset-name", "random-ids", "--random-range-ratio", "1",
        "--random-input-len", str(want.input_tokens),
        "--random-output-len", str(want.output_tokens),
        "--num-prompts", str(want.requests), "--seed", str(want.seed),
        "--output-file", "@OUT@/result.jsonl",
    ]  # fmt: skip
    if want.native:
        words.append("--tokenize-prompt")
    if not want.ignore_eos:
        words.append("--disable-ignore-eos")
    if want.flush:
        words.append("--flush-cache")
    if want.streams is not None:
        words += ["--max-concurrency", str(want.streams)]
    if want.rate_per_s is not None:
        words += ["--request-rate", f"{want.rate_per_s:g}"]
    return words


def _sglang_warm_up(want: Wanted) -> Beside:
    """One request, with an answer of 32 tokens at most."""
    return Beside(want.input_tokens, min(want.output_tokens, 32))


def _guidellm(want: Wanted) -> list[str]:
    route = "/v1/chat/completions" if want.chat else "/v1/completions"
    if want.streams is not None:
        profile = f"kind=concurrent,streams={want.streams}"
    else:
        kind = "constant" if want.burstiness is None else "poisson"
        profile = f"kind={kind},rate={want.rate_per_s:g}"
    end = (
        f"kind=max_requests,count={want.requests}"
        if want.requests is not None
        else f"kind=max_duration,seconds={want.duration_s:g}"
    )
    return [
        "run", "--disable-progress",
        "--backend",
        f"kind=openai_http,target={want.url},model={want.model},request_format={route}",
        "--tokenizer", f"kind=hf_auto,model={want.tokenizer}",
        "--profile", profile, "--constraint", end,
        "--data",
        f"kind=synthetic_text,prompt_tokens={want.input_tokens},output_tokens={want.output_tokens}",
        "--seed", f"kind=static,value={want.seed}",
        "--output", "kind=json,path=@OUT@/report.json",
    ]  # fmt: skip


def _guidellm_env(want: Wanted) -> dict[str, str]:
    """Poisson arrivals by one process.

    Each of its worker processes draws the gaps from the same seed, so ten of them send ten
    requests a gap; and they may begin before the time of the first is set, and send all at once.
    """
    poisson = want.rate_per_s is not None and want.burstiness is not None
    return {"GUIDELLM__MAX_WORKER_PROCESSES": "1"} if poisson else {}


def _aiperf(want: Wanted) -> list[str]:
    words = [
        "profile", "--url", want.url, "--model", want.model, "--tokenizer", want.tokenizer,
        "--endpoint-type", "chat" if want.chat else "completions", "--streaming",
        "--isl", str(want.input_tokens), "--osl", str(want.output_tokens),
        "--random-seed", str(want.seed), "--use-server-token-count",
        "--use-legacy-max-tokens", "--ui", "none",
        "--output-artifact-dir", "@OUT@",
    ]  # fmt: skip
    if want.ignore_eos:
        words += ["--extra-inputs", "ignore_eos:true"]
    if want.streams is not None:
        words += ["--concurrency", str(want.streams)]
    if want.rate_per_s is not None:
        words += ["--request-rate", f"{want.rate_per_s:g}", "--arrival-pattern"]
        if want.burstiness is None:
            words.append("constant")
        elif want.burstiness == 1.0:
            words.append("poisson")
        else:
            words += ["gamma", "--arrival-smoothness", f"{want.burstiness:g}"]
    if want.requests is not None:
        words += ["--request-count", str(want.requests)]
    elif want.duration_s is not None:
        words += ["--benchmark-duration", f"{want.duration_s:g}"]
    return words


HARNESSES: Final = {
    tool.name: tool
    for tool in (
        Harness(
            "vllm", "vllm", ("vllm.entrypoints.cli.main",), "result.json", _vllm, True,
            "OPENAI_API_KEY",
        ),
        Harness(
            "sglang", "sglang", ("sglang.benchmark.serving", "sglang.bench_serving"),
            "result.jsonl", _sglang, True, "OPENAI_API_KEY", warm_up=_sglang_warm_up,
        ),
        Harness(
            "guidellm", "guidellm", ("guidellm",), "report.json", _guidellm, False, None,
            _guidellm_env,
        ),
        Harness(
            "aiperf", "aiperf", ("aiperf",), "**/profile_export_aiperf.json", _aiperf, False, None
        ),
    )
}  # fmt: skip


def command(tool: Harness, python: str, want: Wanted, more: Sequence[str] = ()) -> list[str]:
    """The argument vector; `@MODULE@` and `@OUT@` stand for the module and the folder to write to.

    Both are known on the host alone.
    """
    return [python, "-m", "@MODULE@", *tool.words(want), *more]


def wanted(
    tool: Harness,
    plan: Plan,
    step: StepSpec,
    endpoint: Endpoint,
    server: Server,
    tokenizer: str | None,
) -> Wanted:
    """What a step asks of a tool.

    Args:
        tool: The tool.
        plan: The plan.
        step: One of its steps, unrolled.
        endpoint: The server as seen from where the tool runs.
        server: What is known of it.
        tokenizer: Of its model; None takes the model's name for one.

    Raises:
        UsageError: The tool cannot offer what the plan wants, or the model has no name.
    """
    if server.model is None:
        raise UsageError("the server does not name its model", hint="give --model NAME")
    part = plan.parts[0]
    against = _refused(tool, plan, step)
    if against or not isinstance(part.input, int) or not isinstance(part.output, int):
        against = against or "lengths by a distribution"
        raise UsageError(
            f"{tool.name} cannot be given this plan: {against}",
            hint="closed or open loops of one part with fixed lengths can be had, such as "
            "--concurrency 1,16 --requests 200 --input 512 --output 128",
        )
    requests = step.total_requests
    return Wanted(
        url=endpoint.url,
        model=server.model,
        tokenizer=tokenizer or server.model,
        chat=plan.route == "chat" or (plan.route == "auto" and server.engine == "unknown"),
        native=plan.route in ("auto", "native") and server.engine == "sglang",
        input_tokens=part.input,
        output_tokens=part.output,
        streams=step.concurrency,
        rate_per_s=step.rate_per_s,
        burstiness=_burstiness(step),
        requests=requests,
        duration_s=step.duration_s if requests is None else None,
        ignore_eos=plan.ignore_eos,
        flush=plan.flush_cache and server.engine == "sglang",
        seed=plan.seed,
    )


def _refused(tool: Harness, plan: Plan, step: StepSpec) -> str:
    """What of the plan the tool cannot do; empty where it can do all."""
    kind = step.load["kind"]
    if kind == "trace":
        return "replay of a trace"
    if step.load.get("ramp_s"):
        return "a ramp"
    if len(plan.parts) != 1:
        return "a mix"
    if plan.parts[0].prefix is not None:
        return "shared prefixes"
    if plan.prompts == "dataset":
        return "a data set"
    if not plan.streaming:
        return "answers in one piece"
    if plan.body:
        return "further fields of the request's body"
    if kind == "gamma" and tool.name not in ("vllm", "aiperf"):
        return "gamma arrivals"
    if kind == "constant" and tool.name == "sglang":
        return "constant arrivals"
    if tool.counts and step.total_requests is None:
        return "a step that ends by time; it ends by a number of requests"
    return ""


def _burstiness(step: StepSpec) -> float | None:
    shape = step.load.get("burstiness", 1.0)
    if step.load["kind"] == "constant" or not isinstance(shape, int | float):
        return None
    return float(shape)
