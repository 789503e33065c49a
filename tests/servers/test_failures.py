"""Failures of loading, of arguments and of what goes before, in the words of many versions."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes
from tests.servers import failing
from tests.servers.failures import ALONE, LOADING, RAISED

CATALOGUE = load_catalogue()


@pytest.mark.parametrize("engine", ["vllm-workers", "sglang", "tgi"])
@pytest.mark.parametrize(("cause", "error"), RAISED)
def test_an_exception_is_named(engine: str, cause: str, error: str) -> None:
    verdict = diagnose_bytes(failing.PYTHON[engine](error).encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("crash", cause), verdict.title
    assert verdict.evidence is not None
    assert error[:40] in verdict.evidence.text


@pytest.mark.parametrize(("cause", "error"), LOADING)
def test_what_llamacpp_cannot_load_is_named(cause: str, error: str) -> None:
    verdict = diagnose_bytes(failing.llamacpp(error).encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("crash", cause), verdict.title


@pytest.mark.parametrize(("cause", "engine", "text"), ALONE)
def test_a_start_that_says_little_is_named(cause: str, engine: str, text: str) -> None:
    verdict = diagnose_bytes(f"{text}\n".encode(), CATALOGUE)
    assert (verdict.engine, verdict.outcome, verdict.cause) == (engine, "crash", cause)


NO_CUDA = "ggml_cuda_init: failed to initialize CUDA: unknown error\n"


def test_a_gpu_that_was_passed_over_explains_why_the_model_does_not_load() -> None:
    failed = failing.llamacpp("llama_model_load: error loading model: no backend for it")
    verdict = diagnose_bytes((NO_CUDA + failed.split("\n", 2)[2]).encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("crash", "cuda-unknown-error")
    assert verdict.evidence is not None
    assert verdict.evidence.line == 1


def test_a_gpu_that_was_passed_over_is_no_failure_once_the_server_is_ready() -> None:
    start = failing.llamacpp("main: model loaded").split("llama_model_load_from_file_impl")[0]
    ready = "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
    verdict = diagnose_bytes((NO_CUDA + start.split("\n", 2)[2] + ready).encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("ready", None)
    assert [warned.id for warned in verdict.warnings] == ["cpu-fallback"]


def test_a_plainer_cause_than_the_gpu_that_was_passed_over_is_kept() -> None:
    broken = failing.llamacpp("gguf_init_from_file_impl: invalid magic characters: 'x'")
    verdict = diagnose_bytes((NO_CUDA + broken.split("\n", 2)[2]).encode(), CATALOGUE)
    assert verdict.cause == "model-file-broken"


@pytest.mark.parametrize(
    "around",
    [
        "2026-05-01T08:00:00.123456789Z stderr F ",
        "2026-05-01T08:00:00.123456+00:00 gpu01 serve[1234]: ",
        "May 01 08:00:00 ",
        "May 01 08:00:00 gpu01 serve[1234]: ",
        "2026-05-01T08:00:00.123456789Z ",
        "serve-1  | ",
    ],
)
def test_what_collectors_put_before_a_line_hides_nothing(around: str) -> None:
    lines = [
        "[2026-05-01 08:00:00] server_args=ServerArgs(model_path='/m')",
        "[2026-05-01 08:00:30] INFO:     Application startup complete.",
        "[2026-05-01 08:00:32] The server is fired up and ready to roll!",
        "Fatal Python error: Segmentation fault",
        "Killed",
    ]
    text = "".join(f"{around}{line}\n" for line in lines)
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert (verdict.engine, verdict.ready_line) == ("sglang", 3)
    assert (verdict.outcome, verdict.cause) == ("crash", "segmentation-fault")


def test_a_template_that_refuses_a_conversation_is_the_clients_affair() -> None:
    text = (
        "(APIServer pid=1) INFO:     Application startup complete.\n"
        "(APIServer pid=1) ERROR:    Exception in ASGI application\n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "/x/serving.py", line 1, in render\n'
        "(APIServer pid=1) jinja2.exceptions.TemplateError: roles must alternate\n"
    )
    assert diagnose_bytes(text.encode(), CATALOGUE).outcome == "ready"


HARMLESS = [
    "The argument `trust_remote_code` is to be used with Auto classes. It has no effect here and is ignored.",
    "libibverbs: Warning: couldn't load driver 'libx.so': libx.so: cannot open shared object file: No such file or directory",
    "[2025-09-01 08:00:10 TP0] Setup Custom allreduce failed with [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'. To silence this warning, specify disable_custom_all_reduce=True explicitly.",
    "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1)')' thrown while requesting HEAD https://huggingface.co/m/resolve/main/config.json",
    "fatal: not a git repository (or any of the parent directories): .git",
    "sh: 1: nvidia-smi: not found",
]  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS)
def test_what_a_good_start_may_print_is_no_failure(line: str) -> None:
    start = failing.sglang("x").split("[2025-09-01 08:00:09 TP1]")[0] + line + "\n"
    verdict = diagnose_bytes(start.encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("loading", None)
    end = 'Traceback (most recent call last):\n  File "/x.py", line 1, in f\nAttributeError: no\n'
    assert diagnose_bytes((start + end).encode(), CATALOGUE).cause == "attribute-error"


def test_a_warm_up_that_got_no_answer_is_no_failed_download() -> None:
    start = failing.sglang("x").split("[2025-09-01 08:00:09 TP1]")[0]
    verdict = diagnose_bytes(
        (
            f"{start}[2025-09-01 08:20:00] Initialization failed. warmup error: "
            'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n'
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=30000): "
            "Read timed out. (read timeout=600)\nKilled\n"
        ).encode(),
        CATALOGUE,
    )
    assert verdict.cause == "warmup-failed"


def test_a_worker_of_gunicorn_that_does_not_boot_is_a_crash() -> None:
    start = (
        "[2025-09-01 08:00:00 +0000] [1] [INFO] Starting gunicorn 21.2.0\n"
        "[2025-09-01 08:00:00 +0000] [1] [INFO] Listening at: http://0.0.0.0:8000 (1)\n"
    )
    failed = (
        "[2025-09-01 08:00:01 +0000] [7] [ERROR] Exception in worker process\n"
        'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n'
        "ModuleNotFoundError: No module named 'x'\n"
        "[2025-09-01 08:00:01 +0000] [1] [ERROR] Reason: Worker failed to boot.\n"
    )
    verdict = diagnose_bytes((start + failed).encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("crash", "import-error")


def test_a_runner_that_was_killed_is_told_from_one_that_failed() -> None:
    text = (
        'time=2026-01-01T20:07:50.1Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:11434 '
        '(version 0.9.6)"\ntime=2026-01-01T20:07:57.6Z level=ERROR source=sched.go:489 msg="error '
        'loading llama server" error="llama runner process has terminated: signal: killed"\n'
    )
    assert diagnose_bytes(text.encode(), CATALOGUE).cause == "killed-no-message"


SERVING = (
    "[2025-09-01 08:00:00] server_args=ServerArgs(model_path='/m')",
    "[2025-09-01 08:00:32] The server is fired up and ready to roll!",
)


def supervised(*said: str) -> tuple[str, str | None]:
    lines = [f"Sep 01 08:00:00 gpu01 sglang[9]: {line}\n" for line in SERVING]
    lines += [f"Sep 01 09:00:00 gpu01 systemd[1]: {line}\n" for line in said]
    verdict = diagnose_bytes("".join(lines).encode(), CATALOGUE)
    return verdict.outcome, verdict.cause


def test_what_systemd_stops_is_stopped_however_it_dies() -> None:
    stopping = "Stopping sglang.service - SGLang..."
    term = "sglang.service: Main process exited, code=killed, status=15/TERM"
    kill = "sglang.service: Main process exited, code=killed, status=9/KILL"
    assert supervised(stopping, term) == ("stopped", "operator-stop")
    assert supervised(stopping, kill) == ("stopped", "operator-stop")
    assert supervised(kill) == ("crash", "killed-no-message")


@pytest.mark.parametrize(
    ("how", "cause"), [("terminated by SIGKILL", "killed-no-message"), ("exit status 1", None)]
)
def test_what_supervisord_says_of_the_end_counts(how: str, cause: str | None) -> None:
    start = failing.vllm("x").split("(EngineCore_DP0 pid=77) ERROR")[0]
    text = f"{start}2025-09-01 08:00:00,123 WARN exited: vllm ({how}; not expected)\n"
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert (verdict.outcome, verdict.cause) == ("crash", cause)
