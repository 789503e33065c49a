"""The same log in every form in which operators have it: packed, encoded, collected, pasted."""

# ruff: noqa: E501 - lines of logs

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import UnreadableLog, diagnose_bytes, diagnose_file
from backends.servers.lines import LogReader

CATALOGUE = load_catalogue()
LINES = (
    "INFO 08-02 11:06:19 [api_server.py:981] vLLM API server version 0.9.1",
    "INFO 08-02 11:06:25 [core.py:69] Initializing a V1 LLM engine (v0.9.1) with config: model='é'",
    "INFO 08-02 11:06:29 [gpu_model_runner.py:1] Starting to load model m...",
    "ERROR 08-02 11:07:19 [core.py:708] EngineCore failed to start.",
    "ERROR 08-02 11:07:19 [core.py:708] Traceback (most recent call last):",
    'ERROR 08-02 11:07:19 [core.py:708]   File "/x/vllm/v1/engine/core.py", line 6, in run',
    "ERROR 08-02 11:07:19 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
)
PLAIN = "\n".join((*LINES, ""))


def check(data: bytes, line: int = 7) -> None:
    verdict = diagnose_bytes(data, CATALOGUE)
    assert (verdict.engine, verdict.version) == ("vllm", "0.9.1")
    assert (verdict.outcome, verdict.cause) == ("crash", "cuda-oom-weights")
    assert verdict.evidence is not None
    assert verdict.evidence.line == line


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text.encode().rstrip(b"\n"),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("latin-1"),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-32"),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text[:99].encode()) + gzip.compress(text[99:].encode()),
        lambda text: gzip.compress(text.encode("utf-16")),
        lambda text: lzma.compress(text.encode()),
        lambda text: bz2.compress(text.encode()),
        lambda text: gzip.compress((text + "\nINFO 08-02 11:07:20 [x.py:1] b" * 9999).encode())[:-9],
    ],
)  # fmt: skip
def test_however_it_is_packed_and_encoded(form: Callable[[str], bytes]) -> None:
    check(form(PLAIN))


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "\x1b[1;36m(EngineCore_0 pid=5)\x1b[0;0m \x1b[31m{}\x1b[0m",
        "> {}",
        "    {}",
        "     7\t{}",
        "2026-12-02T09:00:00.123456789Z {}",
        "2026-12-02T09:00:00.123456789Z stderr F {}",
        "2026-12-02T09:00:00 {}",
        "Dec 02 09:00:00 gpu01 python3[77]: {}",
        "Dec 02 09:00:00.123456 gpu01 python3[77]: {}",
        "Wed 2026-12-02 09:00:00 UTC gpu01 python3[77]: {}",
        "1796205600.123456 gpu01 python3[77]: {}",
        "[ 1234.567890] gpu01 python3[77]: {}",
        "<14>1 2026-12-02T09:00:00.000Z gpu01 vllm 77 - - {}",
        "<14>Dec 02 09:00:00 gpu01 vllm[77]: {}",
        "(RayWorkerWrapper pid=1, ip=10.0.0.1) {}",
        "0: {}",
        "[1,0]<stderr>:{}",
        "vllm-1  | {}",
        "[pod/vllm-0/vllm] {}",
        "vllm-7d9f8b6c5-x2x4z vllm {}",
    ],
)
def test_whoever_collected_it(form: str) -> None:
    check("".join(form.replace("{}", line) + "\n" for line in LINES).encode())


@pytest.mark.parametrize(
    "record",
    [
        lambda line: {"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00.1Z"},
        lambda line: {"ts": 1.5, "level": "info", "message": line},
        lambda line: {"MESSAGE": line, "_PID": "5", "PRIORITY": "6"},
        lambda line: {"MESSAGE": list(f"\x1b[31m{line}\x1b[0m".encode()), "_PID": "5"},
        lambda line: {"textPayload": line, "severity": "ERROR"},
        lambda line: {"line": line, "labels": {"pod": "x"}},
    ],
)
def test_a_record_a_line(record: Callable[[str], dict[str, object]]) -> None:
    check("".join(json.dumps(record(line)) + "\n" for line in LINES).encode())


def test_a_stamp_before_the_engines_own_leaves_it_whole() -> None:
    text = b"2026-12-02T09:00:00.123456789Z INFO 08-02 11:06:19 [core.py:69] Starting\n"
    (line,) = LogReader().feed(text)
    assert getattr(line, "message", None) == "Starting"


@pytest.mark.parametrize(
    ("data", "title"),
    [
        (b"", "the log is empty"),
        (b"\n\n", "nothing is written in the log yet"),
        (b"\0" * 5000, "nothing is written in the log yet"),
        (bytes(range(128, 256)) * 9 + b"\n" + b"\xff\xfa\xfb\xfc\n" * 99, "no log, it seems: 100 of its 100 lines are no text"),
        (gzip.compress(b""), "the log is empty"),
        (b"\x1f\x8bnothing of the kind", "the log is empty"),
    ],
)  # fmt: skip
def test_what_tells_nothing_is_said_to(data: bytes, title: str) -> None:
    verdict = diagnose_bytes(data, CATALOGUE)
    assert (verdict.outcome, verdict.cause, verdict.title) == ("loading", None, title)


def test_what_is_packed_otherwise_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    for magic, program in ((b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"PK\x03\x04", "unzip -p")):
        path = tmp_path / "log"
        path.write_bytes(magic + b"1234567")
        with pytest.raises(UnreadableLog, match="cannot read") as caught:
            diagnose_file(path, CATALOGUE)
        assert caught.value.hint == f"unpack it: {program} FILE | gpuroom diagnose -"


@pytest.mark.parametrize(
    "form", ["2026-12-02T09:00:00.123456789Z {}", "[pod/a-0/b] 2026-12-02T09:00:00.123456789Z {}"]
)
def test_a_stamp_before_the_lines_of_2024_leaves_them_whole(form: str) -> None:
    lines = (
        "llm_load_tensors: offloaded 33/33 layers to GPU",
        'INFO [                    main] model loaded | tid="139" timestamp=1717171722',
        'INFO [            update_slots] all slots are idle | tid="139" timestamp=1717171722',
    )
    text = "".join(form.replace("{}", line) + "\n" for line in lines)
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert (verdict.engine, verdict.ready_line) == ("llamacpp", 3)


@pytest.mark.parametrize(
    "form",
    [
        "2025-11-28 15:28:09.929 | {level:<8} | app.server:load:12 - {}",
        "09:00:00 server.1  | {}",
    ],
)
def test_programs_that_run_others_and_loggers_of_their_own(form: str) -> None:
    text = form.replace("{}", "Loading model /m").format(level="INFO") + "\n"
    text += form.replace("{}", "Uvicorn running on http://0.0.0.0:80").format(level="INFO") + "\n"
    verdict = diagnose_bytes(text.encode(), CATALOGUE)
    assert (verdict.outcome, verdict.ready_line) == ("ready", 2)
