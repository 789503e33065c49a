"""Other load generators, measured as ours is: same server, same core, all their processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loadgen_wire import (
    CLIENT_CORE,
    REQUESTS_PER_STREAM,
    TOKENS,
    Measured,
    prefer,
    reference,
    sent,
    wire,
)


class PeerFailed(Exception):
    """A peer did not end, or ended with an error."""


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
            start_new_session=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        if nice:
            prefer(process.pid, nice)
        root = psutil.Process(process.pid)
        deadline = time.monotonic() + timeout_s
        cpu: dict[int, float] = {}
        while process.poll() is None:
            if time.monotonic() > deadline:
                for child in root.children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()
                raise PeerFailed(f"{command[0]} did not end within {timeout_s} s")
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
        raise PeerFailed(f"{command[0]} failed:\n{text[-3000:]}")
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


PEERS: dict[str, Callable[[Path, int, Path, int], Measured]] = {
    "aiohttp": aiohttp_peer,
    "guidellm": guidellm_peer,
    "aiperf": aiperf_peer,
}
