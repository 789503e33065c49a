"""Whole logs of further kinds, each with the verdict that a person would give."""

from __future__ import annotations

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes
from backends.servers.verdict import Verdict

CATALOGUE = load_catalogue()
Told = tuple[str, int | None, str | None, int]
"""Outcome, line of readiness, cause, line of the evidence."""


def judged(text: str) -> Verdict:
    return diagnose_bytes(text.encode(), CATALOGUE)


def told(verdict: Verdict) -> Told:
    assert verdict.evidence is not None
    return (verdict.outcome.value, verdict.ready_line, verdict.cause, verdict.evidence.line)


def gunicorn(worker: str, *rest: str) -> str:
    stamp = "[2025-09-01 08:00:00 +0000]"
    lines = [
        f"{stamp} [7] [INFO] Starting gunicorn 23.0.0",
        f"{stamp} [7] [INFO] Listening at: http://0.0.0.0:8000 (7)",
        f"{stamp} [7] [INFO] Using worker: {worker}",
        f"{stamp} [8] [INFO] Booting worker with pid: 8",
        *(each.replace("<8>", f"{stamp} [8]") for each in rest),
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("worker", "rest", "expected"),
    [
        ("sync", (), ("ready", 4, None, 4)),
        ("gthread", ("Loading model from /models/m",), ("loading", None, None, 5)),
        (
            "gthread",
            ("Loading model from /models/m", "Model loaded in 9.1 s"),
            ("ready", 6, None, 6),
        ),
        ("uvicorn.workers.UvicornWorker", (), ("loading", None, None, 2)),
        (
            "uvicorn.workers.UvicornWorker",
            ("<8> [INFO] Started server process [8]", "<8> [INFO] Application startup complete."),
            ("ready", 6, None, 6),
        ),
        (
            "sync",
            (
                "<8> [ERROR] Exception in worker process",
                "Traceback (most recent call last):",
                '  File "/srv/app.py", line 4, in <module>',
                "ModuleNotFoundError: No module named 'acme'",
                "<8> [ERROR] Reason: Worker failed to boot.",
            ),
            ("crash", None, "import-error", 8),
        ),
    ],
)
def test_gunicorn_says_no_more_when_it_is_ready(
    worker: str, rest: tuple[str, ...], expected: Told
) -> None:
    verdict = judged(gunicorn(worker, *rest))
    assert told(verdict) == expected
    assert verdict.engine == "custom"


UP = ("<8> [INFO] Started server process [8]", "<8> [INFO] Application startup complete.")
LATE = ("<8> [CRITICAL] WORKER TIMEOUT (pid:8)",)
KILLED = (*LATE, "<8> [ERROR] Worker (pid:8) was sent SIGKILL! Perhaps out of memory?")
AGAIN = ("<8> [INFO] Booting worker with pid: 9",)


@pytest.mark.parametrize(
    ("worker", "rest", "expected"),
    [
        ("uvicorn.workers.UvicornWorker", (*UP, *KILLED, *AGAIN, *UP), ("ready", 6, None, 6)),
        ("uvicorn.workers.UvicornWorker", (*UP, *UP, *UP), ("ready", 6, None, 6)),
        ("uvicorn.workers.UvicornWorker", (*UP, *KILLED, *AGAIN), ("ready", 6, None, 6)),
        ("uvicorn.workers.UvicornWorker", (*UP, *KILLED), ("ready", 6, None, 6)),
        ("sync", (*KILLED, *AGAIN), ("ready", 4, None, 4)),
        ("uvicorn_worker.UvicornWorker", KILLED, ("crash", None, "worker-timeout", 5)),
        (
            "uvicorn_worker.UvicornWorker",
            (*KILLED, *AGAIN, *KILLED, *AGAIN),
            ("crash", None, "worker-timeout", 5),
        ),
        ("uvicorn_worker.UvicornWorker", (*KILLED, *AGAIN, *UP), ("ready", 9, None, 9)),
        ("uvicorn_worker.UvicornWorker", KILLED[1:], ("crash", None, "worker-killed", 5)),
    ],
)
def test_a_worker_that_gunicorn_kills_is_not_the_server(
    worker: str, rest: tuple[str, ...], expected: Told
) -> None:
    assert told(judged(gunicorn(worker, *rest))) == expected


def test_what_any_program_prints_of_its_model_is_not_one_engines_word() -> None:
    text = (
        "Loading model from /models/m\n"
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:05<00:00,  1.3s/it]\n"
        " * Serving Flask app 'server'\n"
        " * Running on http://127.0.0.1:5000\n"
    )
    assert (judged(text).engine, told(judged(text))) == ("custom", ("ready", 4, None, 4))


DIED = (
    "[2025-05-07 14:42:42] server_args=ServerArgs(model_path='/m', tp_size=2)",
    "[2025-05-07 14:42:51 TP0] Load weight begin. avail mem=78.50 GB",
    "[2025-05-07 14:43:10] Rank 0 scheduler is dead. Please check if there are relevant logs.",
    "[2025-05-07 14:43:10] Exit code: 1",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 383, in _recv',
)
MISSED = (
    "EOFError",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
)


@pytest.mark.parametrize("missed", MISSED)
def test_who_misses_a_dead_process_is_not_the_cause(missed: str) -> None:
    verdict = judged("\n".join((*DIED, missed)) + "\n")
    assert told(verdict) == ("crash", None, "scheduler-exception", 3)


@pytest.mark.parametrize(
    "prefix",
    [
        "[sglang-0] ",
        "[sglang-7d9f8b6c5-x2x4z sglang] ",
        "sglang-0 server ",
        "sglang-7d9f8b6c5-x2x4z server ",
        "\x1b[92msglang-7d9f8b6c5-x2x4z\x1b[0m \x1b[32mserver\x1b[0m ",
    ],
)
def test_what_stern_and_kubetail_put_before_lines_comes_off(prefix: str) -> None:
    verdict = judged("".join(f"{prefix}{line}\n" for line in (*DIED, MISSED[0])))
    assert told(verdict) == ("crash", None, "scheduler-exception", 3)
    assert verdict.phase == "loading-weights"
