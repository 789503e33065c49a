"""Other tools' benchmarks: arguments from plans, and a run on a host with executables of our own.

The stand-in answers as a Python would: `-c` tells a version, `-m MODULE` writes the tool's file.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from backends.bench.endpoint import parse_url
from backends.bench.harness import remote
from backends.bench.harness.commands import HARNESSES, command, wanted
from backends.bench.harness.judge import (
    Beside,
    beside,
    final_word,
    input_miscounted,
    output_miscounted,
    too_fast,
    why_failed,
)
from backends.bench.harness.run import HarnessRun, prepare_harness, program
from backends.bench.identify import Server
from backends.bench.onhost import HostGenerator, through
from backends.bench.plan import Plan
from backends.bench.provenance import python_of
from backends.bench.results import RunStatus, Severity, StepResult, Throughput, TokenLedger
from backends.bench.run_events import Event, ToolSaid
from backends.bench.steps import unroll
from backends.errors import UsageError
from backends.hub import HostSession
from backends.link.base import Channel
from tests.bench.conftest import Scheduled, closed, plan_of
from tests.bench_data import other_tools

STAND_IN = """#!{python}
import os, pathlib, sys, time
words = sys.argv[1:]
if words[0] == "-c":
    print("a line of a Python that greets")
    print('["1.2.3", ' + {module} + ']')
    raise SystemExit
assert words[:2] == ["-m", "the.module"], words
print("Starting the benchmark", flush=True)
if os.environ.get("STAND_IN") == "hang" or {hang}:
    pathlib.Path({folder!r}, "running").write_text(str(os.getpid()))
    time.sleep(600)
if {fail}:
    print("Traceback (most recent call last):")
    print('  File "x.py", line 1, in <module>')
    print("ValueError: no such tokenizer")
    for number in range(40):
        print("leaked instance", number)
    raise SystemExit(1)
text = pathlib.Path({folder!r}, "result.json").read_text()
print(os.environ.get("GUIDELLM__MAX_WORKER_PROCESSES", "as many as it likes"))
out = pathlib.Path({target})
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(text)
"""
TARGETS = {
    "vllm": "words[words.index('--result-dir') + 1], 'result.json'",
    "sglang": "words[words.index('--output-file') + 1]",
    "guidellm": "words[words.index('--output') + 1].partition('path=')[2]",
    "aiperf": "words[words.index('--output-artifact-dir') + 1], 'x', 'profile_export_aiperf.json'",
}
WRITES = {
    "vllm": other_tools.vllm,
    "sglang": other_tools.sglang,
    "guidellm": other_tools.guidellm,
    "aiperf": other_tools.aiperf,
}


def stand_in(
    folder: Path,
    tool: str,
    *,
    hang: bool = False,
    fail: bool = False,
    module: str = '"the.module"',
    result: object = None,
) -> str:
    (folder / "result.json").write_text(json.dumps(result or WRITES[tool]()))
    path = folder / "python"
    path.write_text(
        STAND_IN.format(
            python=sys.executable,
            hang=hang,
            fail=fail,
            module=repr(module),
            folder=str(folder),
            target=TARGETS[tool],
        )
    )
    path.chmod(0o755)
    return str(path)


async def make(
    here: HostSession,
    scheduled: Scheduled,
    tool: str,
    python: str,
    said: list[str],
    plan: Plan | None = None,
) -> HarnessRun:
    async def opener(argv: Sequence[str]) -> Channel:
        return await here.open(argv, asked_by="test", what="run a tool")

    def listen(event: Event) -> None:
        if isinstance(event, ToolSaid):
            said.append(event.text)

    endpoint = scheduled.endpoint("vllm")
    fetch = through(here, endpoint)
    prepared = await prepare_harness(HARNESSES[tool], plan or closed(4, 8), endpoint, fetch)
    generator = HostGenerator(opener, sys.executable, program)
    return HarnessRun(
        HARNESSES[tool], prepared, generator, fetch, python=python, pid=os.getpid(), listener=listen
    )


@pytest.mark.parametrize("tool", list(HARNESSES))
async def test_a_tools_output_becomes_the_same_result(
    here: HostSession, scheduled: Scheduled, tmp_path: Path, tool: str
) -> None:
    said: list[str] = []
    run = await make(here, scheduled, tool, stand_in(tmp_path, tool), said)
    async with asyncio.timeout(60):
        result = await run.execute()
    assert (result.status, result.error) == (RunStatus.COMPLETE, None)
    assert result.client.where == "host"
    assert result.client.generator.endswith("1.2.3")
    assert tool in result.harness
    assert said == ["Starting the benchmark", "as many as it likes"]
    (step,) = result.steps
    assert (step.label, step.concurrency) == ("4 streams", 4)
    assert step.succeeded > 0
    assert step.whole is not None
    assert step.ttft_s is not None
    # It has no stamps of the kernel, and its count stands in the ledger as its own.
    assert (step.client.clock, step.token_source) == (None, None)
    assert step.ledger.asked_output == step.succeeded * 10
    assert step.ledger.seen_output == step.whole.output_tokens


async def test_a_tool_that_fails_is_said_in_its_own_words(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    run = await make(here, scheduled, "vllm", stand_in(tmp_path, "vllm", fail=True), [])
    async with asyncio.timeout(60):
        result = await run.execute()
    assert result.status is RunStatus.BROKEN
    assert (result.error or "").endswith(
        "with status 1 at 4 streams: ValueError: no such tokenizer"
    )


async def test_a_python_without_the_tool_is_said_before_anything_runs(
    here: HostSession, scheduled: Scheduled
) -> None:
    run = await make(here, scheduled, "vllm", "/nowhere/python", [])
    async with asyncio.timeout(60):
        result = await run.execute()
    assert result.status is RunStatus.BROKEN
    assert "--python" in (result.error or "")


async def test_a_version_without_the_module_is_said_before_anything_runs(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    python = stand_in(tmp_path, "sglang", module="null")
    run = await make(here, scheduled, "sglang", python, [])
    async with asyncio.timeout(60):
        result = await run.execute()
    assert result.status is RunStatus.BROKEN
    assert "sglang 1.2.3 has no module sglang.benchmark.serving or sglang" in (result.error or "")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("bench_serving.py",), "sglang.bench_serving"),
        (("bench_serving.py", "benchmark/serving.py"), "sglang.benchmark.serving"),
        (("benchmark/serving/__init__.py",), "sglang.benchmark.serving"),
        (("other.py",), None),
    ],
)
def test_the_module_is_the_one_that_is_there(
    tmp_path: Path, files: tuple[str, ...], found: str | None
) -> None:
    package = tmp_path / "sglang"
    for name in ("__init__.py", *files):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('imported')\n")
    information = tmp_path / "sglang-0.5.0.dist-info" / "METADATA"
    information.parent.mkdir()
    information.write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.0\n")
    done = subprocess.run(
        [sys.executable, "-c", remote.LOOK, "sglang", *HARNESSES["sglang"].modules],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["0.5.0", found]


async def test_stopped_no_process_of_the_tool_stays(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    run = await make(here, scheduled, "vllm", stand_in(tmp_path, "vllm", hang=True), [])
    task = asyncio.create_task(run.execute())
    running = tmp_path / "running"
    async with asyncio.timeout(60):
        while not running.exists() or not running.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    run.stop()
    async with asyncio.timeout(60):
        result = await task
    assert result.status is RunStatus.STOPPED
    assert not Path("/proc", running.read_text()).exists()


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("vllm", "parts = [{ input = 5 }, { input = 6 }]\n[[steps]]\nload = 'closed'\n"
         "concurrency = 1\nrequests = 2\n", "a mix"),
        ("sglang", "[[steps]]\nload = 'closed'\nconcurrency = 1\nduration_s = 2\n", "ends by time"),
        ("guidellm", "[[steps]]\nload = 'open'\nrate_per_s = 1\narrivals = 'gamma'\n"
         "burstiness = 0.5\nrequests = 2\n", "gamma"),
    ],
)  # fmt: skip
def test_what_a_tool_cannot_do_is_refused(tool: str, text: str, words: str) -> None:
    plan = plan_of(text)
    endpoint, server = parse_url("http://127.0.0.1:1"), Server(model="m")
    with pytest.raises(UsageError) as caught:
        wanted(HARNESSES[tool], plan, unroll(plan)[0], endpoint, server, None)
    assert words in str(caught.value)


def test_a_plan_becomes_arguments() -> None:
    plan = closed(4, 8)
    tool = HARNESSES["vllm"]
    server = Server(model="; rm -rf /")
    want = wanted(tool, plan, unroll(plan)[0], parse_url("http://h:1"), server, "/models/x")
    words = command(tool, "/v/bin/python", want, ["--trust-remote-code"])
    assert words[:4] == ["/v/bin/python", "-m", "@MODULE@", "bench"]
    for name, value in (
        ("--model", "; rm -rf /"), ("--tokenizer", "/models/x"), ("--max-concurrency", "4"),
        ("--num-prompts", "8"), ("--random-input-len", "32"), ("--random-output-len", "10"),
    ):  # fmt: skip
        assert words[words.index(name) + 1] == value
    assert words[-1] == "--trust-remote-code"


@pytest.mark.parametrize(("engine", "flushes"), [("sglang", True), ("llamacpp", False)])
def test_sglang_empties_the_cache_of_its_own_engine_alone(engine: str, flushes: bool) -> None:
    plan, tool = msgspec.structs.replace(closed(4, 8), flush_cache=True), HARNESSES["sglang"]
    server = Server(model="m", engine=engine)
    want = wanted(tool, plan, unroll(plan)[0], parse_url("http://h:1"), server, None)
    assert ("--flush-cache" in tool.words(want)) is flushes
    plan = msgspec.structs.replace(plan, flush_cache=False)
    want = wanted(tool, plan, unroll(plan)[0], parse_url("http://h:1"), server, None)
    assert "--flush-cache" not in tool.words(want)


def test_guidellm_sends_poisson_arrivals_from_one_process() -> None:
    tool, server = HARNESSES["guidellm"], Server(model="m")

    def env(steps: str) -> dict[str, str]:
        plan = plan_of(steps)
        return tool.env(wanted(tool, plan, unroll(plan)[0], parse_url("http://h:1"), server, None))

    one = {"GUIDELLM__MAX_WORKER_PROCESSES": "1"}
    assert env("[[steps]]\nload = 'open'\nrate_per_s = 5\nrequests = 10\n") == one
    constant = "arrivals = 'constant'\nrequests = 10\n"
    assert env("[[steps]]\nload = 'open'\nrate_per_s = 5\n" + constant) == {}
    assert env("[[steps]]\nload = 'closed'\nconcurrency = 4\nrequests = 10\n") == {}


def test_the_interpreter_of_a_folder_of_packages() -> None:
    assert python_of("/opt/v/lib/python3.12/site-packages") == "/opt/v/bin/python3.12"
    assert python_of("/usr/local/lib/python3.11/dist-packages") == "/usr/bin/python3.11"
    assert python_of("/srv/code") is None


@pytest.mark.parametrize(
    ("rate_per_s", "ended", "seconds", "fast"),
    [
        (5.0, 10, 0.264, True),
        (5.0, 40, 0.24, True),
        (5.0, 20, 3.81, False),
        (5.0, 10, 1.2, False),  # ten arrivals of chance
        (5.0, 400, 60.0, True),
        (5.0, 40, 90.0, False),  # a late server
        (None, 40, 0.24, False),
    ],
)
def test_an_open_loop_that_came_too_fast_is_noticed(
    rate_per_s: float | None, ended: int, seconds: float, fast: bool
) -> None:
    rates = Throughput(
        start_s=1.0, end_s=1.0 + seconds, requests=ended, input_tokens=1, output_tokens=1,
        requests_per_s=ended / seconds, output_tokens_per_s=1.0, total_tokens_per_s=2.0,
    )  # fmt: skip
    step = StepResult(
        index=0, repetition=0, label="x", load={}, start_s=0.0, end_s=9.0, succeeded=ended,
        rate_per_s=rate_per_s, whole=rates,
    )  # fmt: skip
    assert (too_fast(step) is not None) is fast


async def test_a_tool_that_does_not_keep_its_rate_makes_a_result_that_is_not_to_be_trusted(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    plan = plan_of("[[steps]]\nload = 'open'\nrate_per_s = 0.01\nrequests = 50\n")
    plan = msgspec.structs.replace(plan, warm_up=None)
    said: list[str] = []
    run = await make(here, scheduled, "guidellm", stand_in(tmp_path, "guidellm"), said, plan)
    async with asyncio.timeout(60):
        result = await run.execute()
    (found,) = [one for one in result.findings if one.key == "rate_not_kept"]
    assert found.severity is Severity.ERROR
    assert "0.01/s was asked for" in found.text
    assert said[-1] == "1"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ValueError: no such tokenizer", "ValueError: no such tokenizer"),
        ("requests.exceptions.HTTPError: 404 Client Error", None),
        ("(APIServer pid=12) RuntimeError: out of luck", "RuntimeError: out of luck"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("serving.py: error: unrecognized arguments: --x", None),
        ("  warnings.warn(f'Only CUDA')", ""),
        ("an Error: in a sentence", ""),
        ("100%|####| 8/8 [00:00<00:00]", ""),
        (' - leaked type "PROPAGATE_NAN"', ""),
    ],
)
def test_the_final_word_of_a_tool(line: str, word: str | None) -> None:
    assert (final_word(line) or "") == (line if word is None else word)


def test_why_a_tool_failed() -> None:
    assert why_failed("ValueError: x", ["noise", "more"], "") == "ValueError: x"
    assert why_failed(None, ["a", "b", "c", "d"], "") == "b; c; d"
    assert why_failed(None, [], "no such file") == "no such file"


@pytest.mark.parametrize(
    ("counted", "made", "words"),
    [
        (176, 256, "counted 176 output tokens, the server's own counters 256: it miscounts, or"),
        (256, 256, ""),
        (256, 272, ""),  # its warm-up
        (256, 300, "(and 16 at most beside what it measured)"),
        (256, 200, "the server's own counters 200: it miscounts"),
        (None, 256, ""),
        (256, None, ""),
    ],
)
def test_tokens_that_do_not_add_up_are_told(
    counted: int | None, made: int | None, words: str
) -> None:
    step = StepResult(
        index=0, repetition=0, label="x", load={}, start_s=0.0, end_s=1.0, succeeded=16,
        ledger=TokenLedger(seen_output=counted, server_output=made),
    )  # fmt: skip
    found = output_miscounted(step, Beside(output=0 if counted == 176 else 16)) or ""
    assert words in found
    assert bool(words) is bool(found)


@pytest.mark.parametrize(
    ("read", "told"), [(1024, False), (300, False), (1088, False), (4715, True)]
)
def test_a_prompt_that_is_longer_than_a_tool_says_is_told(read: int, told: bool) -> None:
    whole = Throughput(
        start_s=0.0, end_s=1.0, requests=16, input_tokens=1024, output_tokens=256,
        requests_per_s=16, output_tokens_per_s=256, total_tokens_per_s=1280,
    )  # fmt: skip
    step = StepResult(
        index=0, repetition=0, label="x", load={}, start_s=0.0, end_s=1.0, succeeded=16,
        whole=whole, ledger=TokenLedger(server_input=read),
    )  # fmt: skip
    assert (input_miscounted(step, Beside(input=64)) is not None) is told


def test_requests_that_were_cut_off_may_have_made_tokens() -> None:
    step = StepResult(
        index=0, repetition=0, label="x", load={}, start_s=0.0, end_s=1.0, succeeded=16, failed=1,
        cancelled=1, concurrency=4, ledger=TokenLedger(seen_output=160, server_output=219),
    )  # fmt: skip
    each, warm_up = Beside(100, 10), Beside(7, 3)
    assert beside(step, warm_up, each, by_time=False) == Beside(207, 23)
    assert beside(step, warm_up, each, by_time=True) == Beside(607, 63)
    assert output_miscounted(step, beside(step, warm_up, each, by_time=True)) is None
    assert output_miscounted(step, beside(step, warm_up, each, by_time=False)) is not None


async def test_a_tool_that_miscounts_makes_a_result_that_is_not_to_be_trusted(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    python = stand_in(tmp_path, "sglang")
    run = await make(here, scheduled, "sglang", python, [])
    async with asyncio.timeout(60):
        result = await run.execute()
    # It tells of 8192 tokens, and the server has made none.
    (found,) = [one for one in result.findings if one.key == "token_count"]
    assert (found.severity, found.step) == (Severity.ERROR, 0)
    assert "sglang counted 8192 output tokens, the server's own counters 0" in found.text
