"""A server's whole life on a real GPU host, and its speed beside what the card could do.

    python benchmarks/h200_serve.py            # under 6 minutes; writes h200_serve.json to $OUT

Makes a model of 1.2 billion random parameters in bf16, starts `transformers serve` with it through
the agent's launcher (phases and times are printed), sweeps 1 to 64 streams with the load generator
on the host, stops the server and looks whether its GPU memory came back. Needs torch,
transformers with `serve`, msgspec, tomli-w and nvidia-ml-py; no network. Exit status 1 where a part
failed.

`--small` makes a model for a machine without a GPU, to try the script itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
import tomli_w  # noqa: F401 - the plan is written with it at the end: better missed at once

from backends.bench import planfile
from backends.bench.efficiency import conditions_of, efficiency
from backends.bench.endpoint import Unreachable, parse_url
from backends.bench.models import load_model
from backends.bench.place import beside
from backends.bench.prompts import WORDS
from backends.bench.results import RunResult, StepResult
from backends.bench.roofline import FigureKind
from backends.bench.run_events import Event, Noticed, StepEnded
from backends.bench.runner import Run, prepare_run
from backends.config import Config, HostConfig
from backends.errors import RoomError
from backends.hub import HostSession, RoomHub
from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes
from backends.servers.engines import EngineId

WHOLE_S = 345.0
MAKE_S, READY_S, SWEEP_S, STOP_S, MEMORY_S = 100.0, 90.0, 190.0, 40.0, 20.0
FOLDER = Path("/tmp/gpuroom-h200-serve")
PROFILE = "h200-serve"
INPUT, OUTPUT = 128, 64
ASKED_BY = "h200_serve"
BEGAN_S = time.monotonic()

MAKE = """
import json, sys, time, torch
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder, small, words = Path(sys.argv[1]), sys.argv[2] == "small", json.loads(sys.stdin.read())
size = 32768
vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
for word in words:
    vocabulary.setdefault(word, len(vocabulary))
while len(vocabulary) < size:
    vocabulary[f"w{len(vocabulary)}"] = len(vocabulary)
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
    pad_token="</s>", clean_up_tokenization_spaces=False)
fast.chat_template = (
    "{{ bos_token }} {% for message in messages %}{{ message['content'] }} {% endfor %}")
fast.save_pretrained(folder)
shape = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2) if small else dict(
             hidden_size=2048, intermediate_size=8192, num_hidden_layers=18,
             num_attention_heads=32, num_key_value_heads=8)
config = LlamaConfig(vocab_size=size, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2,
                     pad_token_id=2, tie_word_embeddings=False, dtype="bfloat16", **shape)
torch.manual_seed(1)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = LlamaForCausalLM(config)
with torch.no_grad():
    model.lm_head.weight[:3] = 0  # no answer ends before it is as long as asked
model.generation_config.do_sample = False
model.save_pretrained(folder)
print(sum(p.numel() for p in model.parameters()))
"""


def say(text: str) -> None:
    """A line with the time since the start."""
    print(f"[{time.monotonic() - BEGAN_S:6.1f} s] {text}", flush=True)


@dataclass
class Server:
    """A started server: its record, its port, where its log lies."""

    record: dict[str, Any]
    port: int

    @property
    def log(self) -> bytes:
        """All that it wrote."""
        path = Path(str(self.record["log"]))
        return path.read_bytes() if path.is_file() else b""


class Desk:
    """Asks of the agent what starts, watches and stops a server."""

    def __init__(self, session: HostSession) -> None:
        self.session = session

    async def ask(self, asked: str, wait_s: float = 30.0, /, **params: object) -> Any:
        return await self.session.request(
            asked, params, asked_by=ASKED_BY, what=asked, timeout_s=wait_s
        )

    async def start(self, argv: list[str], port: int) -> Server:
        names = ("PYTHONPATH", "PATH", "HOME", "LD_LIBRARY_PATH", "HF_HOME")
        env = {name: os.environ[name] for name in names if name in os.environ}
        env |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        run_id = f"{PROFILE}-{int(time.time())}"
        for _ in range(20):
            answer = await self.ask(
                "servers.start", 40.0, profile=PROFILE, run_id=run_id, argv=argv, env=env,
                port=port, engine=EngineId.TRANSFORMERS.value, by="h200_serve",
            )  # fmt: skip
            if "busy" not in answer:
                break
            await asyncio.sleep(0.5)  # the supervisor of the last run has yet to write its end
        if "started" not in answer:
            raise RoomError("the server could not be started", json.dumps(answer)[:500])
        return Server(answer["started"], port)

    async def until_ready(self, server: Server, model: str, deadline_s: float) -> dict[str, float]:
        """Seconds from the start to each witness: process, port, HTTP, a real answer."""
        began, seen = time.monotonic(), {}

        def mark(what: str) -> None:
            if what not in seen:
                seen[what] = round(time.monotonic() - began, 2)
                say(f"  {what} after {seen[what]} s")

        while time.monotonic() < deadline_s:
            state = await self.ask("servers.look", dir=server.record["dir"], port=server.port)
            if not state["alive"]:
                raise RoomError("the server ended", json.dumps(state.get("exit"))[:500])
            mark("process")
            if state.get("port", {}).get("owners"):
                mark("port")
                health = await self.ask("http.ask", port=server.port, path="/health")
                if health.get("status") == 200:
                    mark("http")
                    body = {
                        "model": model, "max_tokens": 2,
                        "messages": [{"role": "user", "content": "time"}],
                    }  # fmt: skip
                    answer = await self.ask(
                        "http.ask", 60.0, port=server.port, path="/v1/chat/completions",
                        method="POST", body=body, timeout_s=50.0,
                    )  # fmt: skip
                    if answer.get("status") == 200:
                        mark("first completion")
                        return seen
                    raise RoomError("a completion failed", json.dumps(answer)[:1500])
            await asyncio.sleep(0.25)
        raise RoomError(f"not ready in time; seen: {seen}")

    async def stop(self, server: Server) -> dict[str, Any]:
        began, steps = time.monotonic(), []
        last: dict[str, Any] = {}
        params = {"dir": server.record["dir"], "grace_s": 15.0, "by": "h200_serve",
                  "port": server.port}  # fmt: skip
        pieces = self.session.stream(
            "servers.stop", params, asked_by=ASKED_BY, what="stop the server"
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                assert isinstance(piece, dict)
                last = piece
                if not piece.get("done"):
                    steps.append(piece.get("step"))
                    say(f"  {piece.get('step')} ({len(piece.get('members') or ())} processes)")
        return {
            "took_s": round(time.monotonic() - began, 2),
            "steps": steps,
            "left": last.get("left"),
            "port_free": (last.get("port") or {}).get("free"),
        }

    async def memory_bytes(self) -> dict[str, int]:
        """Used now, by GPU."""
        await self.ask("refresh")
        await asyncio.sleep(0.6)
        return {
            gpu.uuid: gpu.readings.memory_used_bytes
            for gpu in self.session.snapshot.gpus
            if gpu.readings.memory_used_bytes is not None
        }


def make_model(small: bool) -> dict[str, Any]:
    """The model's folder, made by a process of its own: its GPU memory goes with it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MAKE, str(FOLDER), "small" if small else "full"],
        input=json.dumps(list(WORDS)), capture_output=True, text=True, timeout=MAKE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RoomError("the model could not be made", done.stderr[-3000:])
    took = round(time.monotonic() - began, 1)
    parameters = int(done.stdout.split()[-1])
    say(f"model of {parameters / 1e9:.3f} billion parameters made in {took} s")
    return {"parameters": parameters, "made_in_s": took}


def serve_argv(port: int, flags: list[str]) -> list[str]:
    """The server's argument vector."""
    program = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    options = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "info", *flags]
    return [sys.executable, "-c", program, "serve", str(FOLDER), *options]


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def come_up(desk: Desk, found: dict[str, Any]) -> tuple[Server, str]:
    """A server that answers, with continuous batching where that works."""
    attempts = found.setdefault("starts", [])
    names = (f"{FOLDER}", f"{FOLDER}@main")
    for flags in (["--continuous-batching"], []):
        attempt: dict[str, Any] = {"flags": flags}
        attempts.append(attempt)
        say(f"start transformers serve {' '.join(flags)}")
        server = await desk.start(serve_argv(free_port(), flags), 0)
        server.port = int(server.record["argv"][server.record["argv"].index("--port") + 1])
        deadline_s = time.monotonic() + READY_S
        try:
            for name in names:
                try:
                    attempt["seconds"] = await desk.until_ready(server, name, deadline_s)
                except RoomError as error:
                    if "pinned" in str(error) and name == names[0]:
                        continue
                    raise
                attempt["ok"] = True
                read_log(server, attempt)
                return server, name
        except (Exception, asyncio.CancelledError) as error:
            attempt |= {"ok": False, "error": str(error)}
            say(f"  FAILED: {error!r}")
            read_log(server, attempt)
            print(server.log.decode("utf-8", "replace")[-4000:], flush=True)
            with contextlib.suppress(RoomError):
                await desk.stop(server)
            if not isinstance(error, RoomError):
                raise
    raise RoomError("no server came up")


def read_log(server: Server, attempt: dict[str, Any]) -> None:
    """What the log says of the start: phases, version, warnings, causes."""
    verdict = diagnose_bytes(server.log, load_catalogue(), EngineId.TRANSFORMERS)
    attempt["log"] = json.loads(msgspec.json.encode(plain(verdict)))
    say(f"  the log alone says: {verdict.outcome}, phase {verdict.phase}")


def plain(value: Any) -> Any:
    """A verdict as JSON can hold it, shortened."""
    return {name: str(getattr(value, name))[:400] for name in value.__slots__}


async def sweep(
    session: HostSession, server: Server, model: str, counts: list[int], seconds: float
) -> RunResult:
    """The product's generator from the host, each step printed as it ends."""
    text = (
        f"pause_s = 0.5\nroute = 'chat'\ntokenizer = '{FOLDER}/tokenizer.json'\ndrain_s = 15\n"
        f"parts = [{{ input = {INPUT}, output = {OUTPUT} }}]\n"
        "[warm_up]\nsteady = false\nduration_s = 3\nmax_s = 10\n"
        f"[[steps]]\nload = 'closed'\nconcurrency = {counts}\nduration_s = {seconds}\n"
    )
    endpoint = parse_url(f"http://127.0.0.1:{server.port}")
    there = beside(session, endpoint, "bench", sys.executable)
    prepared = await prepare_run(
        planfile.parse(text), endpoint, there.fetch, model=model, room=there.room
    )
    say(f"  prompts by {prepared.requests.source}")

    def listen(event: Event) -> None:
        if isinstance(event, StepEnded):
            say("  " + step_words(event.result))
        elif isinstance(event, Noticed):
            say(f"  {event.finding.severity}: {event.finding.text}")

    run = Run(
        prepared, there.generator, there.fetch, listener=listen, environment=there.environment,
        profile=PROFILE, gpus=there.gpus,
    )  # fmt: skip
    timer = asyncio.get_running_loop().call_later(
        min(SWEEP_S, max(10.0, WHOLE_S - 70 - (time.monotonic() - BEGAN_S))), run.stop
    )
    try:
        return await run.execute()
    finally:
        timer.cancel()


def step_words(step: StepResult) -> str:
    """A step in one line."""
    rates = step.steady or step.whole
    if rates is None:
        return f"{step.label}: nothing succeeded; {step.failed} failed: {step.failures}"
    watts = sum(gpu.power_mean_w or 0.0 for gpu in step.gpus)
    joules = step.joules_per_output_token
    return (
        f"{step.label:>10}: {rates.output_tokens_per_s:8.1f} output, "
        f"{rates.total_tokens_per_s:8.1f} in+out tok/s, "
        f"TTFT {ms(step.ttft_s)}, TPOT {ms(step.tpot_s)}, "
        f"{watts:.0f} W, {'-' if joules is None else f'{joules:.3f}'} J/output tok, "
        f"bound {step.bound or '-'}, {step.succeeded} ok, {step.failed} failed"
        f"{'' if step.client.valid else '  CLIENT-LIMITED'}"
    )


def ms(summary: Any) -> str:
    """Median of seconds, in ms."""
    return "-" if summary is None else f"{summary.p50 * 1e3:.1f} ms"


def ceilings(result: RunResult) -> list[dict[str, Any]]:
    """Each step beside the theoretical maximum."""
    _, weights = load_model(str(FOLDER))
    rows = []
    for step in efficiency(result, weights, conditions_of(result)):
        row: dict[str, Any] = {
            "load": step.label,
            "stream_tokens_per_s": step.stream_tokens_per_s,
            "output_tokens_per_s": step.output_tokens_per_s,
        }
        for kind in (FigureKind.PAPER, FigureKind.LIVE, FigureKind.REALISTIC):
            figure = step.roofline.figure(kind)
            row[kind.value] = {
                "stream_tokens_per_s": figure.stream_tokens_per_s,
                "stream_share": step.stream_share(kind),
                "output_tokens_per_s": figure.output_tokens_per_s,
                "output_share": step.output_share(kind),
            }
        rows.append(row)
        best = row[FigureKind.PAPER.value]
        say(
            f"  {step.label:>10}: {number(step.output_tokens_per_s)} of at most "
            f"{number(best['output_tokens_per_s'])} output tok/s "
            f"({percent(best['output_share'])}); a stream {number(step.stream_tokens_per_s)} of "
            f"{number(best['stream_tokens_per_s'])} ({percent(best['stream_share'])})"
        )
    return rows


def number(value: float | None) -> str:
    """A rate, or a dash."""
    return "-" if value is None else f"{value:,.1f}"


def percent(value: float | None) -> str:
    """A share, or a dash."""
    return "-" if value is None else f"{value:.1%}"


async def work(found: dict[str, Any], small: bool) -> None:
    """All of it; what was found is in `found` even when a part raises."""
    found["model"] = await asyncio.to_thread(make_model, small)
    host = HostConfig(name="here", target="local", python=sys.executable, interval_s=0.5)
    async with RoomHub([host], Config()) as hub:
        session = hub.session("here")
        async with asyncio.timeout(30):
            while session.snapshot.driver is None or session.snapshot.sampled_s is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        desk = Desk(session)
        before = await desk.memory_bytes()
        found["memory_before_bytes"] = before
        gpus = session.snapshot.gpus
        say(f"GPUs: {', '.join(gpu.name for gpu in gpus) or 'none'}")
        server, model = await come_up(desk, found)
        try:
            found["memory_serving_bytes"] = await desk.memory_bytes()
            counts = [1, 2, 4] if small else [1, 2, 4, 8, 16, 32, 64]
            say(f"sweep {counts} streams, {INPUT} tokens in, {OUTPUT} out")
            result = await sweep(session, server, model, counts, 3.0 if small else 12.0)
            found["run"] = json.loads(msgspec.json.encode(result))
            say(f"run {result.status}, client on {result.client.where} {result.error or ''}")
            if gpus:
                say("beside the theoretical maximum (paper figure)")
                found["ceilings"] = ceilings(result)
            attempt: dict[str, Any] = {}
            read_log(server, attempt)
            found["log_at_end"] = attempt["log"]
        except (Exception, asyncio.CancelledError):
            print(server.log.decode("utf-8", "replace")[-4000:], flush=True)
            raise
        finally:
            say("stop the server")
            async with asyncio.timeout(STOP_S):
                found["stop"] = await desk.stop(server)
        say(f"stopped in {found['stop']['took_s']} s, port free: {found['stop']['port_free']}")
        deadline_s = time.monotonic() + MEMORY_S
        began_s = time.monotonic()
        while True:
            after = await desk.memory_bytes()
            held = {uuid: after.get(uuid, 0) - used for uuid, used in before.items()}
            if all(more < 64 << 20 for more in held.values()):
                break
            if time.monotonic() > deadline_s:
                raise RoomError("GPU memory was not given back", json.dumps(held))
        found["memory_back_s"] = round(time.monotonic() - began_s, 2)
        found["memory_after_bytes"] = after
        say(f"GPU memory back within {found['memory_back_s']} s: {held} bytes more than before")


def main() -> int:
    """Do it within its time, and keep what was found whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    found: dict[str, Any] = {}
    status = 0
    try:
        asyncio.run(asyncio.wait_for(work(found, small), WHOLE_S))
        steps = found["run"]["steps"]
        good = len(steps) == (3 if small else 7) and all(step["succeeded"] for step in steps)
        status = 0 if good and not found["stop"]["left"] and found["stop"]["port_free"] else 1
    except (Exception, Unreachable):
        found["error"] = traceback.format_exc()
        traceback.print_exc(file=sys.stdout)
        status = 1
    finally:
        folder = Path(os.environ.get("OUT", "."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "h200_serve.json").write_text(json.dumps(found, indent=1))
        shutil.rmtree(FOLDER, ignore_errors=True)
    say("all parts done" if not status else "SOME PART FAILED")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
