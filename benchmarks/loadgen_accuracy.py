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
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
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
from benchmarks.loadgen_peers import PEERS, PeerFailed
from benchmarks.loadgen_wire import (
    CLIENT_CORE,
    REQUESTS_PER_STREAM,
    SOURCE,
    TOKENS,
    Measured,
    Sent,
    prefer,
    reference,
    sent,
    wire,
)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="1,64,256,1024")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", default="", help="aiohttp,guidellm,aiperf")
    parser.add_argument("--peers-dir", type=Path, default=Path(tempfile.gettempdir()) / "peers")
    parser.add_argument("--peer-runs", type=int, help="if not as many as of our own")
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
                runs = []
                for _ in range(arguments.peer_runs or arguments.runs):
                    try:
                        measure = PEERS[peer]
                        runs.append(measure(binary, streams, arguments.peers_dir, arguments.nice))
                    except PeerFailed as failure:
                        print(f"{peer} at {streams}: {failure}", file=sys.stderr)
                if runs:
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


class Preferred(LocalGenerator):
    """The generator, with a priority."""

    def __init__(self, nice: int) -> None:
        super().__init__()
        self._nice = nice

    async def start(self, job: bytes) -> None:
        await super().start(job)
        if self._nice and self.pid is not None:
            prefer(self.pid, self._nice)


async def _run(plan: planfile.Plan, port: int, folder: Path, nice: int) -> RunResult:
    endpoint = parse_url(f"http://127.0.0.1:{port}")
    fetch = direct(endpoint)
    prepared = await prepare_run(plan, endpoint, fetch)
    run = Run(prepared, Preferred(nice), fetch, folder=folder)
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
        **wire(truth, streams, {r.input_tokens for r in records if not r.drained}),
    )


if __name__ == "__main__":
    sys.exit(main())
