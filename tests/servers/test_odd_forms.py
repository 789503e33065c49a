"""Logs as people paste them: cut to a few lines, with colours in print, stamped twice."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes
from backends.servers.engines import EngineId
from backends.servers.verdict import Verdict

CATALOGUE = load_catalogue()


def judged(*lines: str) -> Verdict:
    return diagnose_bytes("\n".join((*lines, "")).encode(), CATALOGUE)


@pytest.mark.parametrize("escape", ["#033", "^[", "\\x1b", "\\u001b", "\\033", "\x1b", ""])
def test_colours_in_print_hide_nothing(escape: str) -> None:
    line = "E[2m2026-04-18T22:43:58.111453ZE[0m E[32m INFOE[0m E[2mtext_generation_routerE[0mE[2m:E[0m Connected"
    verdict = judged(
        "2026-04-18T22:43:50.111453Z  INFO text_generation_launcher: Args {",
        line.replace("E[", escape + "["),
    )
    assert (verdict.engine, verdict.ready_line) == (EngineId.TGI, 2)


def test_a_collector_may_leave_several_blanks_behind_its_stamp() -> None:
    verdict = judged(
        "2026-04-18T18:44:13.144-04:00   2026-04-18T22:44:08.150056Z  INFO text_generation_router: router/src/main.rs:368: Connected"
    )
    assert verdict.ready_line == 1


def test_an_end_may_be_said_on_the_line_that_opens_the_traceback() -> None:
    verdict = judged(
        "[2026-06-01 10:06:33] The server is fired up and ready to roll!",
        "[2026-06-01 10:20:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/opt/sglang/srt/layers/sampler.py", line 1, in forward',
        "RuntimeError: CUDA error: device-side assert triggered",
    )
    assert (verdict.outcome, verdict.cause) == ("crash", "gpu-fault")
    assert verdict.evidence is not None
    assert verdict.evidence.line == 4


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (EngineId.VLLM, "ERROR 10-01 07:16:52 [core.py:708] ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (6)."),
        (EngineId.VLLM, "(APIServer pid=1) OSError: You are trying to access a gated repo."),
        (EngineId.SGLANG, "[2026-06-01 10:06:31] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use"),
        (EngineId.LLAMACPP, "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"),
    ],
)  # fmt: skip
def test_one_line_may_be_all_that_tells_the_engine(engine: EngineId, line: str) -> None:
    verdict = judged(line)
    assert (verdict.engine, verdict.outcome) == (engine, "crash")


def test_the_form_of_a_line_decides_only_where_nothing_else_does() -> None:
    verdict = judged(
        *["INFO 10-22 06:31:33 weight_utils.py:243] Using model weights format"] * 50,
        "[gpu=0] Load weight end. type=LlamaForCausalLM",
    )
    assert verdict.engine is EngineId.SGLANG


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        (
            "start-timeout",
            (
                "2026-05-01T01:17:02.618817Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=1",
                "2026-05-01T01:27:12.629043Z ERROR text_generation_launcher: Shard 1 timed out",
            ),
        ),
        (
            "aborted",
            (
                "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
                "/usr/include/c++/15/bits/stl_vector.h:1253: reference operator[](size_type): Assertion '__n < this->size()' failed.",
            ),
        ),
        (
            "compiler-killed",
            (
                "(EngineCore_DP0 pid=2) ERROR 10-01 07:16:52 [core.py:708] RuntimeError: Ninja build failed. Ninja output:",
                "(EngineCore_DP0 pid=2) ERROR 10-01 07:16:52 [core.py:708] c++: fatal error: Killed signal terminated program cc1plus",
            ),
        ),
        (
            "unsupported-arch",
            (
                "2026-04-14T15:52:41.134585Z ERROR shard-manager: text_generation_launcher: Shard complete standard error output:",
                "RuntimeError: FlashAttention only supports Ampere GPUs or newer. rank=0",
                "2026-04-14T15:52:41.134585Z ERROR text_generation_launcher: Shard 0 failed to start",
            ),
        ),
        (
            "unsupported-arch",
            (
                "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 11",
                "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1012",
                "Aborted (core dumped)",
            ),
        ),
        (
            "host-oom-killed",
            (
                "INFO 03-11 22:00:00 [api_server.py:981] vLLM API server version 0.8.0",
                "ERROR 03-11 22:05:02 [core.py:340] EngineCore hit an exception: Traceback (most recent call last):",
                "ERROR 03-11 22:05:02 [core.py:340] ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            ),
        ),
        (
            "shm-too-small",
            (
                "(VllmWorker rank=1 pid=80) ERROR 05-05 10:00:25 [multiproc_executor.py:470] WorkerProc failed to start.",
                "(VllmWorker rank=1 pid=80) ERROR 05-05 10:00:25 [multiproc_executor.py:470] RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
                "a1b2c3:80:80 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-UbW to 33030532 bytes, error: No space left on device (28)",
            ),
        ),
        (
            "gpu-lost",
            (
                "[2026-01-08 10:02:00] The server is fired up and ready to roll!",
                "[2026-01-08 13:22:10 TP2] Scheduler hit an exception: Traceback (most recent call last):",
                "torch.AcceleratorError: CUDA error: unspecified launch failure",
                "[120391.101] NVRM: Xid (PCI:0000:41:00): 79, pid=9911, name=python3, GPU has fallen off the bus.",
                "[2026-01-08 13:22:11] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            ),
        ),
        (
            "quantization-unsupported",
            (
                "INFO 04-04 10:00:00 [api_server.py:1034] vLLM API server version 0.8.3",
                "Traceback (most recent call last):",
                '  File "/usr/local/bin/vllm", line 10, in <module>',
                "ValueError: bitsandbytes quantization is currently not supported in rocm.",
            ),
        ),
    ],
)  # fmt: skip
def test_what_says_more_is_named(cause: str, lines: tuple[str, ...]) -> None:
    assert judged(*lines).cause == cause
