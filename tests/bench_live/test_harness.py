"""Other tools' benchmarks: arguments from plans, and a run on a host with executables of our own.

The stand-in answers as a Python would: `-c` tells a version, `-m MODULE` writes the tool's file.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from backends.bench.endpoint import parse_url
from backends.bench.harness.commands import HARNESSES, command, wanted
from backends.bench.harness.run import HarnessRun, prepare_harness, program, too_fast
from backends.bench.identify import Server
from backends.bench.onhost import HostGenerator, through
from backends.bench.plan import Plan
from backends.bench.provenance import python_of
from backends.bench.results import RunStatus, Severity, StepResult, Throughput
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
    print("1.2.3")
    raise SystemExit
print("Starting the benchmark", flush=True)
if os.environ.get("STAND_IN") == "hang" or {hang}:
    pathlib.Path({folder!r}, "running").write_text(str(os.getpid()))
    time.sleep(600)
if {fail}:
    print("ValueError: no such tokenizer")
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


def stand_in(folder: Path, tool: str, *, hang: bool = False, fail: bool = False) -> str:
    (folder / "result.json").write_text(json.dumps(WRITES[tool]()))
    path = folder / "python"
    path.write_text(
        STAND_IN.format(
            python=sys.executable, hang=hang, fail=fail, folder=str(folder), target=TARGETS[tool]
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


async def test_a_tool_that_fails_is_said_in_its_own_words(
    here: HostSession, scheduled: Scheduled, tmp_path: Path
) -> None:
    run = await make(here, scheduled, "vllm", stand_in(tmp_path, "vllm", fail=True), [])
    async with asyncio.timeout(60):
        result = await run.execute()
    assert result.status is RunStatus.BROKEN
    assert "no such tokenizer" in (result.error or "")


async def test_a_python_without_the_tool_is_said_before_anything_runs(
    here: HostSession, scheduled: Scheduled
) -> None:
    run = await make(here, scheduled, "vllm", "/nowhere/python", [])
    async with asyncio.timeout(60):
        result = await run.execute()
    assert result.status is RunStatus.BROKEN
    assert "--python" in (result.error or "")


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
    assert words[:4] == ["/v/bin/python", "-m", "vllm.entrypoints.cli.main", "bench"]
    for name, value in (
        ("--model", "; rm -rf /"), ("--tokenizer", "/models/x"), ("--max-concurrency", "4"),
        ("--num-prompts", "8"), ("--random-input-len", "32"), ("--random-output-len", "10"),
    ):  # fmt: skip
        assert words[words.index(name) + 1] == value
    assert words[-1] == "--trust-remote-code"


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
