"""How exact the load generator is: against a server that writes down what it really sent.

    python benchmarks/loadgen_accuracy.py [--streams 1,64,256,1024] [--runs 3] [--peers aiohttp]

One core for the client, one for the server (core 1 and core 0). Time to first token 100 ms, 20 ms
between tokens, 100 tokens; the last token's neighbour is its usage event. Each figure is the median
of the runs. Peers (aiohttp, guidellm, aiperf) are installed into environments of their own under
--peers-dir and measured in the same way, against the same server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from backends.bench import planfile
from backends.bench.endpoint import direct, parse_url
from backends.bench.process import LocalGenerator
from backends.bench.request_record import RequestRecord
from backends.bench.results import RunResult
from backends.bench.runner import Run, prepare_run
from backends.bench.samples import read_records
from backends.bench.summaries import percentile

TTFT_S, GAP_S, TOKENS = 0.1, 0.02, 100
REQUESTS_PER_STREAM = {1: 4, 64: 3, 256: 3, 1024: 2}
SOURCE = Path(__file__).with_name("reference_server.c")
SERVER_CORE, CLIENT_CORE = 0, 1


@dataclass(frozen=True)
class Sent:
    """What the server wrote down of one request, in ns of the system clock."""

    read_ns: int
    tokens_ns: tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """One run of one client, in ms unless the name says otherwise; None: it doesn't say."""

    ttft_mean: float
    ttft_true: float
    gap_p50: float | None
    gap_p99: float | None
    true_p50: float
    true_p99: float
    schedule_share: float
    cpu_s_per_1000: float
    rss_mb: float
    error_p50: float | None = None
    error_p99: float | None = None
    merged: float | None = None
    valid: bool = True


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="1,64,256,1024")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", default="", help="aiohttp,guidellm,aiperf")
    parser.add_argument("--peers-dir", type=Path, default=Path(tempfile.gettempdir()) / "peers")
    parser.add_argument(
        "--nice",
        type=int,
        default=0,
        help="priority of the client; not 0: the server runs in real time",
    )
    parser.add_argument("--skip-own", action="store_true", help="measure the peers alone")
    arguments = parser.parse_args()
    if shutil.which("cc") is None:
        print("a C compiler is needed for the reference server", file=sys.stderr)
        return 2
    if len(os.sched_getaffinity(0)) < 2:
        print("two cores are needed: one for the server, one for the client", file=sys.stderr)
        return 2
    print(
        f"{'client':<12} {'streams':>7} {'TTFT mean':>10} {'true':>8} {'bias':>7} "
        f"{'gap p50':>8} {'true':>7} {'gap p99':>8} {'true':>7} {'schedule':>8} "
        f"{'CPU s/1k':>8} {'RSS MB':>7} {'err p50':>8} {'err p99':>8} {'merged':>7}"
    )
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "reference_server"
        subprocess.run(["cc", "-O2", "-o", str(binary), str(SOURCE)], check=True)
        for streams in map(int, arguments.streams.split(",")):
            clients: list[tuple[str, object]] = []
            if not arguments.skip_own:
                clients.append(("gpuroom", None))
                if streams > 64:
                    clients.append(("  sampled", 64))
            for name, sample in clients:
                runs = [own(binary, streams, sample, arguments.nice) for _ in range(arguments.runs)]
                print(row(name, streams, runs), flush=True)
            for peer in filter(None, arguments.peers.split(",")):
                runs = [
                    PEERS[peer](binary, streams, arguments.peers_dir, arguments.nice)
                    for _ in range(arguments.runs)
                ]
                print(row(peer, streams, runs), flush=True)
    return 0


def row(name: str, streams: int, runs: list[Measured]) -> str:
    """The medians of some runs as a line."""

    def median(field: str) -> float | None:
        values = [getattr(run, field) for run in runs]
        return None if None in values else statistics.median(values)

    def cell(value: float | None, width: int, form: str) -> str:
        return ("-" if value is None else format(value, form)).rjust(width)

    bias = statistics.median(run.ttft_mean - run.ttft_true for run in runs)
    share = median("schedule_share")
    merged = median("merged")
    return " ".join(
        (
            f"{name:<12} {streams:>7}",
            cell(median("ttft_mean"), 10, ".2f"),
            cell(median("ttft_true"), 8, ".2f"),
            cell(bias, 7, "+.2f"),
            cell(median("gap_p50"), 8, ".2f"),
            cell(median("true_p50"), 7, ".2f"),
            cell(median("gap_p99"), 8, ".2f"),
            cell(median("true_p99"), 7, ".2f"),
            cell(None if share is None else share * 100, 7, ".1f") + "%",
            cell(median("cpu_s_per_1000"), 8, ".4f"),
            cell(median("rss_mb"), 7, ".0f"),
            cell(median("error_p50"), 8, ".4f"),
            cell(median("error_p99"), 8, ".4f"),
            cell(None if merged is None else merged * 100, 6, ".1f") + "%",
            "" if all(run.valid for run in runs) else "client-limited",
        )
    )


@contextlib.contextmanager
def reference(binary: Path, nice: int) -> Iterator[int]:
    """The server on its core; gives its port."""
    process = subprocess.Popen(
        [str(binary), str(TTFT_S * 1e3), str(GAP_S * 1e3)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    os.sched_setaffinity(process.pid, {SERVER_CORE})
    if nice:
        # A server that other work displaces keeps no schedule; nice alone counts only within a
        # session where the kernel groups by session.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def get(port: int, path: str) -> str:
    """Ask the server for what it wrote down."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def sent(port: int) -> dict[int, Sent]:
    """What it sent, by the request's number."""
    found = {}
    for line in get(port, "/sent").splitlines():
        number, read_ns, *tokens = map(int, line.split())
        found[number] = Sent(read_ns, tuple(tokens))
    return found


def own(binary: Path, streams: int, sample: object, nice: int) -> Measured:
    """Gpuroom's generator, on its core."""
    plan = planfile.parse(
        f"route = 'chat'\nflush_cache = false\npause_s = 0.0\nworkers = 1\n"
        f"{f'sample = {sample}' if sample else ''}\n"
        f"parts = [{{ input = 40, output = {TOKENS} }}]\n"
        f"[[steps]]\nload = 'closed'\nconcurrency = {streams}\n"
        f"requests = {streams * REQUESTS_PER_STREAM.get(streams, 2)}\n"
    )
    plan = msgspec.structs.replace(plan, warm_up=None)
    with reference(binary, nice) as port, tempfile.TemporaryDirectory() as folder:
        all_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {CLIENT_CORE})
        try:
            result = asyncio.run(_run(plan, port, Path(folder), nice))
        finally:
            os.sched_setaffinity(0, all_cores)
        records = list(read_records(result.run_id, Path(folder)))
        truth = sent(port)
    return _measured(result, records, truth, streams)


async def _run(plan: planfile.Plan, port: int, folder: Path, nice: int) -> RunResult:
    endpoint = parse_url(f"http://127.0.0.1:{port}")
    fetch = direct(endpoint)
    prepared = await prepare_run(plan, endpoint, fetch)
    generator = LocalGenerator()
    run = Run(prepared, generator, fetch, folder=folder)
    if nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    return await run.execute()


def _measured(
    result: RunResult, records: list[RequestRecord], truth: dict[int, Sent], streams: int
) -> Measured:
    (step,) = result.steps
    assert step.ttft_s is not None
    assert step.gap_s is not None
    assert result.epoch_unix_s is not None
    assert step.client.max_rss_bytes is not None
    if step.failed:
        raise SystemExit(f"{step.failed} requests failed: {step.failures}")
    errors = []
    for record in records:
        if record.drained or record.first_token_s is None or record.input_tokens is None:
            continue
        was = truth[record.input_tokens].tokens_ns
        at = result.epoch_unix_s + record.first_token_s
        counts = record.arrival_tokens or (1,) * (len(record.gaps_us) + 1)
        last = counts[0] - 1
        if counts[0] == 1:
            errors.append((at - was[0] / 1e9) * 1e3)
        for gap, count in zip(record.gaps_us, counts[1:], strict=True):
            at += gap / 1e6
            last += count
            if count == 1:
                errors.append((at - was[last] / 1e9) * 1e3)
    errors = sorted(map(abs, errors))
    return Measured(
        ttft_mean=step.ttft_s.mean * 1e3,
        gap_p50=step.gap_s.p50 * 1e3,
        gap_p99=step.gap_s.p99 * 1e3,
        cpu_s_per_1000=step.client.cpu_s / (len(records) * TOKENS / 1000),
        rss_mb=step.client.max_rss_bytes / 1e6,
        error_p50=percentile(errors, 0.5),
        error_p99=percentile(errors, 0.99),
        merged=step.client.merged_share,
        valid=step.client.valid,
        **wire(truth, streams),
    )


def wire(truth: dict[int, Sent], streams: int) -> dict[str, float]:
    """The true distributions, in ms, and the share of the rate that the schedule permits."""
    requests = [was for was in truth.values() if len(was.tokens_ns) == TOKENS]
    gaps = sorted(
        (later - earlier) / 1e6
        for was in requests
        for earlier, later in zip(was.tokens_ns, was.tokens_ns[1:], strict=False)
    )
    first = min(was.read_ns for was in requests)
    last = max(was.tokens_ns[-1] for was in requests)
    permitted = streams * TOKENS / (TTFT_S + (TOKENS - 1) * GAP_S)
    return {
        "ttft_true": statistics.fmean((was.tokens_ns[0] - was.read_ns) / 1e6 for was in requests),
        "true_p50": percentile(gaps, 0.5),
        "true_p99": percentile(gaps, 0.99),
        "schedule_share": len(requests) * TOKENS / ((last - first) / 1e9) / permitted,
    }


# --- peers ------------------------------------------------------------------------------


def environment(folder: Path, name: str, *packages: str) -> Path:
    """The Python of a virtual environment that holds `packages`; made on first use."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        print(f"installing {' '.join(packages)} into {folder / name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", *packages]
        subprocess.run(install, check=True)
    return python


@dataclass
class Tree:
    """CPU time and memory of a process and all its descendants, sampled until it ends."""

    cpu_s: float = 0.0
    rss_mb: float = 0.0


def watched(command: list[str], nice: int, timeout_s: float, cwd: Path) -> tuple[Tree, str]:
    """Run a client on its core; what it took, and what it printed."""
    import psutil

    tree = Tree()
    log = cwd / "output.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(CLIENT_CORE), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        if nice:
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        root = psutil.Process(process.pid)
        deadline = time.monotonic() + timeout_s
        cpu: dict[int, float] = {}
        while process.poll() is None:
            if time.monotonic() > deadline:
                for child in root.children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()
                raise SystemExit(f"{command[0]} did not end within {timeout_s} s")
            rss = 0
            with contextlib.suppress(psutil.Error):
                for part in (root, *root.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        times = part.cpu_times()
                        cpu[part.pid] = times.user + times.system
                        rss += part.memory_info().rss
            tree.rss_mb = max(tree.rss_mb, rss / 1e6)
            time.sleep(0.1)
        tree.cpu_s = sum(cpu.values())
    text = log.read_text("utf-8", "replace")
    if process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{text[-3000:]}")
    return tree, text


def aiohttp_peer(binary: Path, streams: int, folder: Path, nice: int) -> Measured:
    """The plain alternative: aiohttp, one task a stream, JSON decoded as it comes."""
    python = environment(folder, "aiohttp", "aiohttp")
    requests = streams * REQUESTS_PER_STREAM.get(streams, 2)
    with reference(binary, nice) as port, tempfile.TemporaryDirectory() as work:
        program = Path(__file__).with_name("aiohttp_client.py")
        command = [str(python), str(program), str(port), str(streams), str(requests), str(TOKENS)]
        tree, text = watched(command, nice, 300, Path(work))
        truth = sent(port)
    figures = json.loads(text.strip().splitlines()[-1])
    return Measured(
        ttft_mean=figures["ttft_mean_ms"],
        gap_p50=figures["gap_p50_ms"],
        gap_p99=figures["gap_p99_ms"],
        cpu_s_per_1000=figures["cpu_s"] / (len(truth) * TOKENS / 1000),
        rss_mb=tree.rss_mb,
        **wire(truth, streams),
    )


def tokenizer(folder: Path) -> Path:
    """A word-level tokenizer file, so that no peer has to download one."""
    path = folder / "tokenizer"
    path.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *(f"t{n}" for n in range(1000))])}
    (path / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
            }
        )
    )
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
    )
    return path


def guidellm_peer(binary: Path, streams: int, folder: Path, nice: int) -> Measured:
    """GuideLLM, concurrent profile, synthetic prompts."""
    python = environment(folder, "guidellm", "guidellm")
    requests = streams * REQUESTS_PER_STREAM.get(streams, 2)
    with reference(binary, nice) as port, tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.json"
        command = [
            str(python.with_name("guidellm")), "run", "--disable-progress",
            "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=reference",
            "--tokenizer", f"kind=hf_auto,model={tokenizer(folder)}",
            "--profile", f"kind=concurrent,streams={streams}",
            "--constraint", f"kind=max_requests,count={requests}",
            "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={TOKENS}",
            "--output", f"kind=json,path={report}",
        ]  # fmt: skip
        tree, _ = watched(command, nice, 600, Path(work))
        truth = sent(port)
        metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    return Measured(
        ttft_mean=ttft["mean"],
        gap_p50=None,  # Its inter-token latency is a mean a request.
        gap_p99=None,
        cpu_s_per_1000=tree.cpu_s / (len(truth) * TOKENS / 1000),
        rss_mb=tree.rss_mb,
        **wire(truth, streams),
    )


def aiperf_peer(binary: Path, streams: int, folder: Path, nice: int) -> Measured:
    """AIPerf, chat endpoint, streaming."""
    python = environment(folder, "aiperf", "aiperf")
    requests = streams * REQUESTS_PER_STREAM.get(streams, 2)
    with reference(binary, nice) as port, tempfile.TemporaryDirectory() as work:
        command = [
            str(python.with_name("aiperf")), "profile",
            "--url", f"http://127.0.0.1:{port}",
            "--model", "reference", "--tokenizer", str(tokenizer(folder)),
            "--endpoint-type", "chat", "--streaming",
            "--concurrency", str(streams), "--request-count", str(requests),
            "--isl", "32", "--osl", str(TOKENS),
            "--extra-inputs", "ignore_eos:true", "--ui", "none",
            "--output-artifact-dir", work,
        ]  # fmt: skip
        tree, _ = watched(command, nice, 600, Path(work))
        truth = sent(port)
        (report,) = Path(work).rglob("profile_export_aiperf.json")
        metrics = json.loads(report.read_text())
    return Measured(
        ttft_mean=metrics["time_to_first_token"]["avg"],
        gap_p50=None,  # Its inter-token latency is a mean a request.
        gap_p99=None,
        cpu_s_per_1000=tree.cpu_s / (len(truth) * TOKENS / 1000),
        rss_mb=tree.rss_mb,
        **wire(truth, streams),
    )


PEERS = {"aiohttp": aiohttp_peer, "guidellm": guidellm_peer, "aiperf": aiperf_peer}


if __name__ == "__main__":
    sys.exit(main())
