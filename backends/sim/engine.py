#!/usr/bin/env python3
"""The simulated engine of the demo host: SGLang's command line, log, endpoints and end.

A program of its own, which the demo host has on its PATH as `sglang`: `sglang serve --model-path M
--tp-size N --port P ...`. It is started, watched and stopped by the same agent as any server; what
is made up is its model. While it loads and serves it says so in a file that the simulated cards
read (`GPUROOM_DEMO` names its folder), so that they fill, work and are given back. With
`--mem-fraction-static` above 0.95 it runs out of memory, as the real one would.

Standard library, Python 3.8.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

STATE_FILE = "engine.json"
SHARDS, BATCHES = 83, 23
WEIGHTS_GB, CARD_GB = 52.4, 94.9
TOO_MUCH = 0.95
TOKENS_PER_S = 62.0
MAX_RUNNING, POOL_TOKENS = 2048, 612352
VERSION = "0.5.10"


class Engine:
    """One run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.pace = 0.0 if os.environ.get("GPUROOM_DEMO_AT_ONCE") else 1.0
        self.ready = False
        self.requests = 0
        self.prompt_tokens = self.made_tokens = 0
        self._rank = threading.Lock()

    def wait(self, seconds: float) -> None:
        """Work, as it were."""
        time.sleep(seconds * self.pace)

    def say(self, text: str, rank: str = "") -> None:
        """A line of the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with self._rank:
            sys.stderr.write("[%s%s] %s\n" % (stamp, rank and " " + rank, text))
            sys.stderr.flush()

    def bar(self, label: str, count: int, seconds: float, begin: float, end: float) -> None:
        """A progress bar that is rewritten in place, while memory fills from `begin` to `end`."""
        for done in range(count + 1):
            took = seconds * done / count
            left = seconds - took
            rate = count / seconds
            text = "%s: %3d%% Completed | %d/%d [%s<%s, %.2fit/s]" % (
                label, 100 * done // count, done, count, _clock(took), _clock(left), rate,
            )  # fmt: skip
            with self._rank:
                sys.stderr.write("\r" + text if done else text)
                sys.stderr.flush()
            self.hold(begin + (end - begin) * done / count)
            sum(range(150_000))  # a process that loads takes CPU time
            # As with real shards, the first take longest.
            self.wait(seconds / count * (1.6 if done < count // 8 else 0.92))
        with self._rank:
            sys.stderr.write("\n")

    def hold(self, share: float, ready: bool = False) -> None:
        """Tell the cards what this server holds of them."""
        folder = os.environ.get("GPUROOM_DEMO")
        if folder:
            state = {"pid": os.getpid(), "memory": round(share, 4), "ready": ready}
            path = os.path.join(folder, STATE_FILE)
            with open(path + ".new", "w") as file:
                json.dump(state, file)
            os.replace(path + ".new", path)

    def configuration(self) -> dict[str, Any]:
        """What it runs with; expert parallelism comes with the quantisation, unasked."""
        given = self.arguments
        return {
            "model_path": given.model_path, "served_model_name": self.model, "host": given.host,
            "port": given.port, "tp_size": given.tp_size, "ep_size": given.tp_size, "dp_size": 1,
            "mem_fraction_static": given.mem_fraction_static,
            "context_length": given.context_length or 202752, "quantization": "modelopt_fp4",
            "max_running_requests": min(given.max_running_requests or 4096, 2048),
            "attention_backend": "trtllm_mla", "moe_runner_backend": "flashinfer_cutlass",
            "chunked_prefill_size": 8192, "disable_cuda_graph": False, "version": VERSION,
        }  # fmt: skip

    def count(self, prompt_tokens: int, made_tokens: int) -> None:
        """Add to the counters."""
        with self._rank:
            self.prompt_tokens += prompt_tokens
            self.made_tokens += made_tokens

    def metrics(self) -> str:
        """What a scrape of it gives: gauges, and counters since its start."""
        running = min(self.requests, MAX_RUNNING)
        labels = '{model_name="%s",tp_rank="0"}' % self.model.replace('"', "")
        values = (
            ("num_running_reqs", "gauge", running),
            ("num_queue_reqs", "gauge", self.requests - running),
            ("token_usage", "gauge", round(min(1.0, self.requests * 640 / POOL_TOKENS), 4)),
            ("prompt_tokens_total", "counter", self.prompt_tokens),
            ("generation_tokens_total", "counter", self.made_tokens),
        )
        return "".join(
            "# TYPE sglang:%s %s\nsglang:%s%s %s\n" % (name, kind, name, labels, value)
            for name, kind, value in values
        )

    @property
    def model(self) -> str:
        """As it is served."""
        return str(self.arguments.served_model_name or self.arguments.model_path)

    def start(self) -> None:
        """Come up, or fail."""
        given = self.arguments
        fields = ", ".join("%s=%r" % pair for pair in self.configuration().items())
        self.say("server_args=ServerArgs(%s)" % fields)
        self.say("sglang version: %s" % VERSION)
        self.say("The expert parallel size is adjusted to be the same as the tensor parallel size")
        self.hold(0.006)
        self.wait(1.2)
        self.say("Init torch distributed begin.", "TP0")
        self.wait(1.0)
        self.say("Init torch distributed ends. elapsed=1.02 s, mem usage=0.61 GB", "TP0")
        self.say("Load weight begin. avail mem=%.2f GB" % (CARD_GB - 0.6), "TP0")
        weights = WEIGHTS_GB / CARD_GB
        self.bar("Loading safetensors checkpoint shards", SHARDS, 9.0, 0.01, weights)
        self.say(
            "Load weight end. elapsed=9.31 s, type=GlmMoeDsaForCausalLM, quant=modelopt_fp4, "
            "avail mem=%.2f GB, mem usage=%.2f GB." % (CARD_GB - WEIGHTS_GB, WEIGHTS_GB), "TP0",
        )  # fmt: skip
        self.say(
            "Using default MoE kernel config. Performance might be sub-optimal! Config file not "
            "found at fused_moe_triton/configs/E=256,N=256,device_name=NVIDIA_RTX_PRO_6000.json",
            "TP0",
        )
        share = min(0.985, given.mem_fraction_static)
        self.wait(0.8)
        self.hold(share)
        free = CARD_GB * (1 - share)
        self.say("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 612352, "
                 "K size: 14.60 GB, V size: 14.60 GB", "TP0")  # fmt: skip
        self.say("Memory pool end. avail mem=%.2f GB" % free, "TP0")
        self.say("Capture cuda graph begin. This can take up to several minutes. avail mem=%.2f GB"
                 % free, "TP0")  # fmt: skip
        if given.mem_fraction_static > TOO_MUCH:
            self.run_out_of_memory()
        self.bar("Capturing batches (avail_mem=%.2f GB)" % free, BATCHES, 4.0, share, share)
        self.say("Capture cuda graph end. Time elapsed: 4.08 s. mem usage=1.21 GB.", "TP0")
        self.say("max_total_num_tokens=612352, chunked_prefill_size=8192, max_prefill_tokens=16384,"
                 " max_running_requests=2048, context_len=202752, available_gpu_mem=%.2f GB"
                 % free, "TP0")  # fmt: skip
        self.listen()
        self.wait(2.0)
        self.say('127.0.0.1:40210 - "POST /generate HTTP/1.1" 200 OK')
        self.ready = True
        self.hold(share, ready=True)
        self.say("The server is fired up and ready to roll!")

    def listen(self) -> None:
        """Answer on the port."""
        self.say("INFO:     Started server process [%d]" % os.getpid())
        try:
            server = _Server((self.arguments.host, self.arguments.port), _handler(self))
        except OSError as error:
            self.say("ERROR:    [Errno %s] error while attempting to bind on address ('%s', %d): "
                     "address already in use"
                     % (error.errno, self.arguments.host, self.arguments.port))  # fmt: skip
            self.leave(1)
        self.say("INFO:     Application startup complete.")
        self.say("INFO:     Uvicorn running on http://%s:%d (Press CTRL+C to quit)"
                 % (self.arguments.host, self.arguments.port))  # fmt: skip
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def run_out_of_memory(self) -> None:
        """As the real one dies: the scheduler by an exception, then all by a signal."""
        self.bar("Capturing batches (avail_mem=0.31 GB)", BATCHES // 6, 1.0, 0.985, 0.985)
        self.say("Scheduler hit an exception: Traceback (most recent call last):", "TP3")
        sys.stderr.write(
            '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 2884, in '
            "run_scheduler_process\n    scheduler = Scheduler(server_args, port_args, gpu_id)\n"
            '  File "/opt/sglang/python/sglang/srt/model_executor/cuda_graph_runner.py", line 512, '
            "in capture\n    graph, output_buffers = self.capture_one_batch_size(bs, forward)\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 3 has a "
            "total capacity of 94.97 GiB of which 318.06 MiB is free. Including non-PyTorch memory,"
            " this process has 94.62 GiB memory in use.\n\n"
        )
        self.say("Received sigquit from a child process. It usually means the child failed.")
        self.hold(0.0)
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self, code: int) -> None:
        """End, the memory given back."""
        self.hold(0.0)
        sys.stderr.flush()
        os._exit(code)

    def drain(self, *_: Any) -> None:
        """SIGTERM: finish what is being served, then go."""
        threading.Thread(target=self._drain).start()

    def _drain(self) -> None:
        self.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        time.sleep(0.6)
        self.say("Gracefully exiting... Remaining number of requests %d. Remaining requests []."
                 % self.requests)  # fmt: skip
        self.leave(0)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def _handler(engine: Engine) -> Any:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path in ("/health", "/health_generate"):
                self.answer(200 if engine.ready else 503)
            elif self.path in ("/server_info", "/get_server_info"):
                self.answer(200, engine.configuration())
            elif self.path in ("/v1/models", "/model_info"):
                model = {"id": engine.model, "object": "model", "max_model_len": 202752}
                self.answer(200, {"object": "list", "data": [model]})
            elif self.path == "/metrics":
                self.answer(200, engine.metrics())
            else:
                self.answer(404)

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            try:
                asked = json.loads(self.rfile.read(min(size, 1 << 24)))
            except ValueError:
                asked = None
            if self.path == "/flush_cache":
                self.answer(200, "Cache flushed.")
                return
            if not isinstance(asked, dict) or not self.path.startswith(("/v1/", "/generate")):
                self.answer(400)
                return
            engine.requests += 1
            try:
                if self.path == "/generate":
                    self.generate(asked)
                else:
                    self.complete(asked, chat=self.path.endswith("/chat/completions"))
            except OSError:
                self.close_connection = True  # the client has gone: so has its request
            finally:
                engine.requests -= 1

        def complete(self, asked: dict[str, Any], chat: bool) -> None:
            wanted = asked.get("max_completion_tokens") or asked.get("max_tokens") or 16
            tokens = min(4096, max(1, int(wanted)))
            prompt = asked.get("prompt") or asked.get("messages") or ""
            length = _length(prompt)
            usage = {"prompt_tokens": length, "completion_tokens": tokens,
                     "total_tokens": length + tokens}  # fmt: skip
            if not asked.get("stream"):
                for _ in self.tokens(length, tokens):
                    pass
                self.answer(200, {"choices": [_choice(" ok" * tokens, chat, "length")],
                                  "model": engine.model, "usage": usage})  # fmt: skip
                return
            self.begin_stream()
            for number in self.tokens(length, tokens):
                last = "length" if number == tokens else None
                self.event({"choices": [_choice(" ok", chat, last)], "model": engine.model})
            if (asked.get("stream_options") or {}).get("include_usage"):
                self.event({"choices": [], "model": engine.model, "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def generate(self, asked: dict[str, Any]) -> None:
            """SGLang's own route: ids or text in, a running count out."""
            wanted = (asked.get("sampling_params") or {}).get("max_new_tokens") or 16
            tokens = min(4096, max(1, int(wanted)))
            length = _length(asked.get("input_ids") or asked.get("text") or "")
            streamed = bool(asked.get("stream"))
            if streamed:
                self.begin_stream()
            for number in self.tokens(length, tokens):
                finish = {"type": "length", "length": tokens} if number == tokens else None
                meta = {"prompt_tokens": length, "completion_tokens": number, "cached_tokens": 0,
                        "finish_reason": finish}  # fmt: skip
                if streamed:
                    self.event({"text": " ok", "meta_info": meta})
            if streamed:
                self.wfile.write(b"data: [DONE]\n\n")
            else:
                self.answer(200, {"text": " ok" * tokens, "meta_info": meta})

        def tokens(self, length: int, count: int) -> Iterator[int]:
            """Numbers of the tokens of an answer, each when it is made."""
            time.sleep(0.03 + length / 60_000.0)
            engine.count(length, 1)
            yield 1
            for number in range(2, count + 1):
                # The more there are, the slower each.
                speed = TOKENS_PER_S / (1.0 + max(0, engine.requests - 1) / 24.0)
                time.sleep(1.0 / speed)
                engine.count(0, 1)
                yield number

        def begin_stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True

        def event(self, value: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
            self.wfile.flush()

        def answer(self, status: int, value: Any = None) -> None:
            kind = "text/plain" if isinstance(value, str) else "application/json"
            text = value if isinstance(value, str) else json.dumps(value)
            body = b"" if value is None else text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _length(prompt: Any) -> int:
    """Tokens of a prompt: its ids are counted, its text is estimated."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return max(1, len(text) // 4)


def _choice(text: str, chat: bool, finish: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
    return dict(part, index=0, finish_reason=finish)


def _clock(seconds: float) -> str:
    return "%02d:%02d" % divmod(int(seconds), 60)


def parse(words: list[str]) -> argparse.Namespace:
    """The arguments that matter here; others are taken and echoed by nobody."""
    parser = argparse.ArgumentParser(prog="sglang serve", allow_abbrev=False)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--mem-fraction-static", type=float, default=0.88)
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--max-running-requests", type=int)
    return parser.parse_known_args(words)[0]


def main() -> int:
    """Serve until stopped, or until the demo host is no more."""
    if sys.argv[1:2] != ["serve"]:
        sys.stderr.write("usage: sglang serve --model-path MODEL [--port PORT] ...\n")
        return 2
    engine = Engine(parse(sys.argv[2:]))
    signal.signal(signal.SIGTERM, engine.drain)
    host = int(os.environ.get("GPUROOM_DEMO_PID") or 0)
    threading.Thread(target=engine.start, daemon=True).start()
    while True:
        time.sleep(0.5)
        if host and not os.path.exists("/proc/%d" % host):
            os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
