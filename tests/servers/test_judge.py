# ruff: noqa: E501 - lines of logs
"""What is concluded from the order of things in a log."""

from __future__ import annotations

import random

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes, diagnose_file, guess_engine
from backends.servers.engines import ENGINES, EngineId, Phase
from backends.servers.judge import LogJudge
from backends.servers.lines import LogLine, LogReader
from backends.servers.verdict import Outcome, Verdict, judge_run
from tests.conftest import SHARED
from tests.servers import failing

CATALOGUE = load_catalogue()
VLLM_START = """INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.1
INFO 05-01 10:00:01 [core.py:1] Initializing a V1 LLM engine (v0.9.1) with config: model='/m'
INFO 05-01 10:00:02 [gpu_model_runner.py:1] Starting to load model /m...
INFO 05-01 10:00:09 [default_loader.py:1] Loading weights took 3.20 seconds
INFO:     Started server process [1]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
"""
SERVED = 'INFO:     10.0.0.2:5555 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
REQUEST_ERROR = """ERROR 05-01 10:01:00 [serving_chat.py:1] Error in preprocessing prompt inputs
ERROR 05-01 10:01:00 [serving_chat.py:1] Traceback (most recent call last):
ERROR 05-01 10:01:00 [serving_chat.py:1]   File "/x/serving.py", line 3, in f
ERROR 05-01 10:01:00 [serving_chat.py:1] ValueError: This model's maximum context length is 4096
INFO:     10.0.0.2:5555 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request
"""
SGLANG_START = """[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m')
[2025-09-01 08:00:06 TP0] Load weight begin. avail mem=78.50 GB
[2025-09-01 08:00:09 TP0] Load weight end. type=L, avail mem=60.1 GB
[2025-09-01 08:00:20] INFO:     Application startup complete.
[2025-09-01 08:00:20] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2025-09-01 08:00:22] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK
[2025-09-01 08:00:22] The server is fired up and ready to roll!
"""


def judged(text: str) -> Verdict:
    return diagnose_bytes(text.encode(), CATALOGUE)


def test_errors_of_requests_are_the_clients_affair() -> None:
    verdict = judged(VLLM_START + REQUEST_ERROR)
    assert verdict.outcome == "ready"
    assert verdict.cause is None
    assert judged(VLLM_START + REQUEST_ERROR + SERVED).outcome == "ready"


def test_a_death_after_readiness_is_a_crash_that_was_ready() -> None:
    text = VLLM_START + SERVED + failing.vllm("RuntimeError: boom").split("Loading weights took")[1]
    verdict = judged(text)
    assert verdict.outcome == "crash"
    assert verdict.ready_line == 7
    assert verdict.phase is Phase.READY


def test_an_out_of_memory_that_a_request_survives_is_past() -> None:
    oom = "ERROR 05-01 10:01:00 [a.py:1] torch.OutOfMemoryError: CUDA out of memory.\n"
    assert judged(VLLM_START + oom + SERVED).outcome == "ready"
    dead = "ERROR 05-01 10:01:01 [core.py:1] EngineCore encountered a fatal error.\n"
    verdict = judged(VLLM_START + oom + dead)
    assert verdict.cause == "cuda-oom-late"
    assert verdict.evidence is not None
    assert verdict.evidence.line == 8


def test_what_went_wrong_on_the_way_is_forgiven_by_readiness() -> None:
    noise = (
        "ERROR 05-01 10:00:03 [fa_utils.py:57] Cannot use FA version 2\n"
        "ERROR 05-01 10:00:03 [x.py:1] ImportError: libfoo.so: cannot open shared object file\n"
    )
    lines = VLLM_START.split("\n")
    text = "\n".join(lines[:3]) + "\n" + noise + "\n".join(lines[3:])
    assert judged(text).outcome == "ready"


def test_the_web_servers_first_words_are_not_readiness() -> None:
    before = SGLANG_START.rsplit("\n", 2)[0] + "\n"
    verdict = judged(before)
    assert verdict.outcome == "loading"
    assert verdict.phase is Phase.WARMING
    assert judged(SGLANG_START).ready_line == 7
    listening = failing.llamacpp("").split("llama_model_load_from")[0]
    assert judged(listening).outcome == "loading"


def test_a_bind_error_takes_readiness_back() -> None:
    taken = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n"
    verdict = judged(VLLM_START + taken)
    assert (verdict.outcome, verdict.cause, verdict.ready_line) == ("crash", "port-in-use", None)


def test_a_stop_that_comes_first_makes_the_rest_part_of_it() -> None:
    stop = "[2025-09-01 09:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    after = (
        "[2025-09-01 09:00:02] Subprocess detokenizer (pid=7) crashed with exit code -15.\nKilled\n"
    )
    verdict = judged(SGLANG_START + stop + after)
    assert (verdict.outcome, verdict.cause) == ("stopped", "operator-stop")
    assert verdict.evidence is not None
    assert verdict.evidence.line == 8
    assert judged(failing.sglang("RuntimeError: boom") + stop).outcome == "crash"


@pytest.mark.parametrize(
    "end",
    [
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Finished server process [1]\n",
        "^CINFO:     Shutting down\n",
        "KeyboardInterrupt\n",
        "Terminated\n",
        "(APIServer pid=1) INFO 08-02 11:46:06 [launcher.py:1] [shutdown] API server: shutdown triggered\n",
    ],
)
def test_ways_of_stopping(end: str) -> None:
    assert judged(VLLM_START + SERVED + end).outcome == "stopped"


def test_stopping_while_it_loads() -> None:
    loading = "\n".join(VLLM_START.split("\n")[:3]) + "\n"
    trace = 'Traceback (most recent call last):\n  File "/x/a.py", line 1, in f\nKeyboardInterrupt: terminated\n'
    assert judged(loading + trace).outcome == "stopped"


def test_an_engine_that_stops_quicker_than_its_web_server() -> None:
    dead = "ERROR 05-01 10:01:00 [async_llm.py:1] AsyncLLM output_handler failed.\nERROR 05-01 10:01:00 [async_llm.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    stop = "INFO 05-01 10:01:00 [launcher.py:1] [shutdown] API server: shutdown triggered\n"
    assert judged(VLLM_START + SERVED + dead + stop).outcome == "stopped"
    why = "ERROR 05-01 10:00:59 [core.py:1] EngineCore encountered a fatal error.\n"
    assert judged(VLLM_START + SERVED + why + dead + stop).outcome == "crash"
    assert judged(VLLM_START + SERVED + dead + "INFO:     Shutting down\n").outcome == "crash"


def test_interrupting_an_engine_while_it_starts() -> None:
    loading = "\n".join(VLLM_START.split("\n")[:3]) + "\n"
    trace = '^CProcess EngineCore_0:\nTraceback (most recent call last):\n  File "/x/a.py", line 1, in f\nKeyboardInterrupt\n'
    assert judged(loading + trace).outcome == "stopped"
    assert judged(loading + trace.removeprefix("^C")).outcome == "stopped"


def test_workers_that_wait_are_a_stall_only_where_nothing_compiles() -> None:
    start = VLLM_START.split("\n")
    wait = "INFO 05-01 10:05:00 [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation).\n"
    early = "\n".join(start[:2]) + "\n"
    assert (judged(early + wait * 5).outcome, judged(early + wait * 5).cause) == (
        "stalled",
        "workers-wait",
    )
    assert judged(early + wait * 4).outcome == "loading"
    compiling = (
        "\n".join(start[:4])
        + "\nINFO 05-01 10:00:10 [backends.py:1] Dynamo bytecode transform time: 8.64 s\n"
    )
    assert judged(compiling + wait * 30).outcome == "loading"
    assert judged(VLLM_START + SERVED + wait * 9).outcome == "stalled"
    assert judged(VLLM_START + wait * 9 + SERVED).outcome == "ready"


def test_relatives_of_the_engines_become_ready_too() -> None:
    python = "llama_model_loader: loaded meta data with 24 key-value pairs\nllama_context: n_ctx = 512\nINFO:     Started server process [1]\nINFO:     Application startup complete.\nINFO:     Uvicorn running on http://localhost:8000 (Press CTRL+C to quit)\n"
    assert (judged(python).engine, judged(python).ready_line) == ("llamacpp", 5)
    triton = '[TensorRT-LLM][INFO] Engine version 0.15.0 found\nI0223 12:03:30.795466 120 http_server.cc:4755] "Started HTTPService at 0.0.0.0:8000"\n'
    assert (judged(triton).engine, judged(triton).ready_line) == ("trtllm", 2)


def test_the_last_run_of_a_log_counts() -> None:
    crashed = failing.vllm("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    again = VLLM_START.replace("0.9.1", "0.11.2")
    verdict = judged(crashed + again)
    assert verdict.outcome == "ready"
    assert verdict.version == "0.11.2"
    assert verdict.ready_line == crashed.count("\n") + 7
    assert judged(again + crashed).outcome == "crash"
    assert judged(again + crashed).ready_line is None


def test_the_first_failing_rank_is_believed_and_not_those_it_took_along() -> None:
    text = (
        "[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m')\n"
        "[2025-09-01 08:00:06 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/a.py", line 1, in f\n'
        "ZeroDivisionError: division by zero\n\n"
        "[2025-09-01 08:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/b.py", line 1, in f\n'
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n\n"
        "[rank2]:[E901 08:10:00.1 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout\n"
    )
    verdict = judged(text)
    assert verdict.cause == "scheduler-exception"
    assert "ZeroDivisionError: division by zero (a.py:1 in f)" in verdict.title
    assert verdict.outcome == "crash"


def test_an_unknown_failure_speaks_in_its_own_words() -> None:
    text = (
        "INFO:     Started server process [1]\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/app.py", line 12, in load\n'
        "    weights = open_all()\n"
        "acme.errors.PlanError: the plan has 3 holes\n"
    )
    verdict = judged(text)
    assert (verdict.outcome, verdict.cause) == ("crash", None)
    assert verdict.title == "PlanError: the plan has 3 holes (app.py:12 in load)"
    assert verdict.evidence is not None
    assert verdict.evidence.line == 5


def test_a_chain_of_exceptions_begins_with_its_cause() -> None:
    text = failing.sglang(
        "KeyError: 'odd'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/x/o.py", line 5, in outer\n'
        "RuntimeError: cannot go on"
    )
    assert "KeyError: 'odd'" in judged(text).title


def test_tracebacks_of_two_processes_may_interleave() -> None:
    left = "(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [m.py:1] "
    right = "(Worker_TP1 pid=2) ERROR 01-01 00:00:00 [m.py:1] "
    text = "\n".join(
        [
            "(APIServer pid=9) INFO 10-02 09:15:01 [a.py:1] vLLM API server version 0.11.0",
            left + "Traceback (most recent call last):",
            right + "Traceback (most recent call last):",
            left + '  File "/x/a.py", line 1, in f',
            right + '  File "/x/b.py", line 2, in g',
            right + "PlanError: second rank",
            left + "PlanError: first rank",
            left + "WorkerProc failed to start.",
        ]
    )
    judge = LogJudge(CATALOGUE, EngineId.VLLM)
    judge.take_all(LogReader().feed(text.encode() + b"\n"))
    found = [(each.words, each.file) for each in judge.run.exceptions]
    assert found == [("second rank", "/x/b.py"), ("first rank", "/x/a.py")]


def test_killed_without_a_word() -> None:
    loading = "\n".join(SGLANG_START.split("\n")[:2]) + "\n"
    leak = "/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '\n"
    for end in (
        leak,
        "Killed\n",
        "zsh: killed     sglang serve\n",
        "vllm-1 exited with code 137\n",
    ):
        verdict = judged(loading + end)
        assert (verdict.outcome, verdict.cause) == ("crash", "killed-no-message"), end
        assert verdict.evidence is not None
        assert verdict.evidence.line == 3
    assert judged(loading).outcome == "loading"
    assert (
        judged(loading + leak + "[2025-09-01 08:00:09 TP0] Load weight end.\n" * 4).outcome
        == "loading"
    )


def test_a_server_that_kills_itself_is_not_taken_for_killed() -> None:
    verdict = judged(failing.vllm_early("ZeroDivisionError: division by zero"))
    assert verdict.cause == "engine-crash"
    assert "ZeroDivisionError" in verdict.title


def test_the_exit_code_of_the_process_is_a_witness_too() -> None:
    judge = LogJudge(CATALOGUE, EngineId.SGLANG)
    judge.take_all(LogReader().feed(SGLANG_START.encode()))
    assert judge_run(judge).outcome is Outcome.READY
    killed = judge_run(judge, exit_code=-9)
    assert killed.cause == "killed-no-message"


def test_a_shell_that_came_back_means_that_the_program_ended() -> None:
    text = failing.llamacpp("").split("llama_model_load_from")[0] + "user@gpu01:~/llama.cpp$ \n"
    verdict = judged(text)
    assert (verdict.outcome, verdict.cause) == ("crash", None)


def test_a_log_that_begins_while_it_serves() -> None:
    verdict = judged(SERVED * 30)
    assert (verdict.outcome, verdict.ready_line) == ("ready", None)
    died = SERVED * 30 + "ERROR 05-01 10:01:01 [core.py:1] EngineCore encountered a fatal error.\n"
    assert judged(died).outcome == "crash"
    assert judged(SERVED * 30 + REQUEST_ERROR).outcome == "ready"


def test_a_log_of_which_only_the_quiet_end_is_left() -> None:
    health = 'INFO:     10.0.0.2:5555 - "GET /health HTTP/1.1" 200 OK\n'
    idle = "INFO 04-12 18:37:13 [loggers.py:87] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs\n"
    assert judged(idle * 3 + health * 3).outcome == "ready"
    assert (
        judged(
            "[2025-03-08 12:29:32] "
            + health
            + "[2025-03-08 12:29:30 TP0] Decode batch. #running-req: 1\n"
        ).outcome
        == "ready"
    )


def test_models_that_a_router_loads_are_not_new_runs() -> None:
    router = "build: 8173 (2e7e63852) with Clang\nmain: starting router server\nmain: router server is listening on http://0.0.0.0:8080\n"
    child = "".join(f"[41234] {line}\n" for line in failing.llamacpp("").split("\n")[:8])
    verdict = judged(router + child)
    assert (verdict.outcome, verdict.ready_line) == ("ready", 3)


def test_a_runner_that_died_does_not_end_ollama() -> None:
    text = (
        'time=2025-07-16T20:07:50.1+02:00 level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:11434 (version 0.9.6)"\n'
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        'time=2025-07-16T20:07:57.6+02:00 level=ERROR source=sched.go:489 msg="error loading llama server" error="llama runner process has terminated: exit status 2"\n'
    )
    assert judged(text).cause == "cuda-oom-buffers"
    served = '[GIN] 2025/07/16 - 20:09:57 | 200 |  720.9988ms |  127.0.0.1 | POST     "/api/chat"\n'
    assert judged(text + served).outcome == "ready"


def test_words_that_reassure_are_believed() -> None:
    lines = SGLANG_START.split("\n")
    for noise in (
        "[2025-09-01 08:00:06 TP0] The following error message 'out of memory' can be ignored.",
        "[2025-09-01 08:00:06 TP0] flash_attn: undefined symbol x, falling back to triton",
        "[2025-09-01 08:00:06 TP0] Ignore import error when loading m: No module named 'torchaudio'",
        "WARNING 02-28 20:57:36 _ext.py:180] Failed to import with ImportError('libx.so: cannot open shared object file')",
    ):
        assert judged("\n".join([*lines[:2], noise, ""])).outcome == "loading", noise


def test_a_warning_can_explain_a_failure_but_is_none() -> None:
    start = "\n".join(VLLM_START.split("\n")[:1]) + "\n"
    warning = "/opt/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). (Triggered internally at /x.cpp:108.)\n"
    error = "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`\n"
    trace = 'Traceback (most recent call last):\n  File "/x/a.py", line 1, in f\n'
    assert judged(start + warning).outcome == "loading"
    assert judged(start + trace + error).cause == "no-gpu"
    explained = judged(start + warning + trace + error)
    assert explained.cause == "driver-too-old"
    assert explained.evidence is not None
    assert explained.evidence.line == 2
    port = "INFO 05-01 10:00:00 [a.py:1] Port 8000 is already in use, trying port 8001\n"
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    assert judged(start + port).outcome == "loading"
    assert (judged(start + port + trace + oom).cause or "").startswith("cuda-oom")
    mlock = "warning: failed to mlock 107347968-byte buffer (after previously locking 0 bytes): Cannot allocate memory\n"
    assert (
        judged(failing.llamacpp("").split("llama_model_load_from")[0] + mlock).outcome == "loading"
    )


def test_warnings_that_cost_performance_are_pinned_and_counted() -> None:
    lines = SGLANG_START.split("\n")
    warning = "[2025-09-01 08:00:07 TP{}] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at /x.json"
    adjusted = "[2025-09-01 08:00:07 TP0] DeepEP MoE is enabled. The expert parallel size is adjusted to be the same as the tensor parallel size[8]."
    text = "\n".join([*lines[:2], warning.format(0), warning.format(1), adjusted, *lines[2:]])
    found = {warned.id: warned for warned in judged(text).warnings}
    assert found["moe-kernel-default"].line == 3
    assert found["moe-kernel-default"].count == 2
    assert "expert-parallel-implied" in found


def test_progress_of_the_start_is_told() -> None:
    judge = LogJudge(CATALOGUE, EngineId.SGLANG)
    reader = LogReader()
    judge.take_all(reader.feed("\n".join(SGLANG_START.split("\n")[:2]).encode() + b"\n"))
    judge.take_all(
        reader.feed(
            b"\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01, 1.0s/it]\r"
        )
    )
    assert judge.run.phase is Phase.LOADING
    assert judge.run.progress is not None
    assert judge.run.progress.fraction == 0.5
    assert "50%" in judge_run(judge).title


def test_the_engine_may_be_guessed_while_lines_come() -> None:
    judge = LogJudge(CATALOGUE)
    judge.take_all(LogReader().feed(SGLANG_START.encode()))
    assert judge_run(judge).outcome is Outcome.READY
    assert judge.engine.id is EngineId.SGLANG


# --- any bytes ---------------------------------------------------------------------------------


def test_binary_garbage_is_no_verdict_and_no_error() -> None:
    noise = random.Random(7).randbytes(400_000)
    verdict = diagnose_bytes(noise, CATALOGUE)
    assert verdict.outcome == "loading"
    assert verdict.cause is None
    garbled = failing.sglang("torch.OutOfMemoryError: CUDA out of memory.").encode()
    verdict = diagnose_bytes(noise + b"\n" + garbled, CATALOGUE)
    assert verdict.cause == "cuda-oom-late"


def test_an_empty_log_is_a_start_that_has_said_nothing() -> None:
    verdict = diagnose_bytes(b"", CATALOGUE)
    assert (verdict.outcome, verdict.evidence, verdict.engine) == ("loading", None, "custom")


@pytest.mark.parametrize("engine", failing.PYTHON)
def test_a_torn_beginning_does_not_hide_the_cause(engine: str) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    data = failing.PYTHON[engine](error).encode()
    first = data.index(error.encode())
    for cut in range(0, first, max(1, first // 9)):
        verdict = diagnose_bytes(data[cut:], CATALOGUE)
        assert verdict.outcome == "crash", cut
        assert (verdict.cause or "").startswith("cuda-oom"), cut


def test_collectors_prefixes_change_nothing() -> None:
    plain = failing.vllm("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    wanted = judged(plain)
    for prefix in (
        "vllm-1  | ",
        "2025-12-28T13:17:07.318695558Z ",
        "Dec 02 09:00:00 gpu01 vllm[123]: ",
        "[pod/vllm-0/vllm] ",
    ):
        text = "".join(prefix + line + "\n" for line in plain.rstrip("\n").split("\n"))
        found = judged(text)
        assert (found.engine, found.version, found.cause) == (
            wanted.engine,
            wanted.version,
            wanted.cause,
        )
        assert found.evidence is not None
        assert wanted.evidence is not None
        assert found.evidence.line == wanted.evidence.line


def test_every_engine_has_what_the_rest_needs() -> None:
    assert set(ENGINES) == set(EngineId)
    for engine in ENGINES.values():
        assert engine.title
        assert engine.ready
        assert engine.fatal
        assert engine.stop.marks
        assert engine.endpoints
        assert any(option.name == "host" or option.name == "hostname" for option in engine.options)
        if engine.id is not EngineId.CUSTOM:
            assert engine.default_port is not None
            assert engine.hints


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        (VLLM_START, "vllm"),
        (SGLANG_START, "sglang"),
        (failing.llamacpp("x"), "llamacpp"),
        (failing.tgi("x"), "tgi"),
        (failing.trtllm("x"), "trtllm"),
        (
            "$ transformers serve --port 8000\nINFO:     Started server process [1]\n",
            "transformers",
        ),
        ("INFO:     Started server process [1]\n", "custom"),
    ],
)
def test_the_engine_is_recognised(text: str, engine: str) -> None:
    assert guess_engine(text.encode()) == engine


SGLANG_LINES = (
    "[2025-05-07 14:42:51 TP0] Load weight begin. avail mem=78.50 GB",
    "[2025-05-07 14:44:51] INFO:     Application startup complete.",
    "[2025-05-07 14:44:52] The server is fired up and ready to roll!",
)


@pytest.mark.parametrize(
    "prefix",
    [
        "[pod/vllm-glm-7d9f8b6c5-x2x4z/vllm] ",
        "vllm-openai-1  | ",
        "Dec 02 09:00:00 host vllm-serve[123]: ",
        "2026-12-02T09:00:00+0000 host llama-server-glm[123]: ",
        "vllm-glm-7d9f8b6c5-x2x4z vllm ",
        "[vllm-0 vllm] ",
        "0|vllm-serve  | ",
    ],
)
@pytest.mark.parametrize("lines", [SGLANG_LINES, SGLANG_LINES[1:2]], ids=["start", "one line"])
def test_what_a_pod_or_unit_is_called_makes_no_engine(prefix: str, lines: tuple[str, ...]) -> None:
    assert guess_engine("".join(f"{prefix}{line}\n" for line in lines).encode()) == "sglang"


def test_what_systemd_and_paths_are_called_makes_no_engine() -> None:
    head = "Dec 02 09:00:00 host systemd[1]: Started vllm-glm.service - vLLM for GLM.\n"
    tail = "Dec 02 09:01:00 host systemd[1]: vllm-glm.service: Main process exited, code=killed\n"
    frame = '  File "/opt/vllm-env/lib/python3.12/site-packages/sglang/srt/x.py", line 5, in x\n'
    lines = "".join(f"{line}\n" for line in SGLANG_LINES)
    assert guess_engine((head + lines + tail * 10).encode()) == "sglang"
    assert guess_engine((frame * 9).encode()) == "sglang"


def test_a_name_decides_where_nothing_else_does() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory.\n"
    assert guess_engine(("[pod/vllm-glm-7d9f8b6c5-x2x4z/vllm] " + line).encode()) == "vllm"
    assert guess_engine(b"Dec 02 09:00:00 h ollama[5]: main: model loaded\n") == "ollama"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the checkout")
@pytest.mark.parametrize("name", ["sg-04", "vl-07", "vl-09", "sg-16", "lc-02"])
def test_skimming_changes_no_verdict(name: str) -> None:
    path = SHARED / "logs" / f"{name}.log"
    fast = diagnose_file(path, CATALOGUE)
    judge = LogJudge(CATALOGUE, fast.engine)
    reader = LogReader(updates=True)
    for byte in path.read_bytes():
        for event in reader.feed(bytes([byte])):
            judge.take_all([event])
    for event in reader.finish():
        assert isinstance(event, LogLine)
        judge.take(event)
    slow = judge_run(judge)
    assert (slow.outcome, slow.cause, slow.ready_line) == (
        fast.outcome,
        fast.cause,
        fast.ready_line,
    )
    assert slow.evidence is not None
    assert fast.evidence is not None
    assert slow.evidence.line == fast.evidence.line
