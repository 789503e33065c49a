"""What produced a run, asked of a real agent on this machine."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from backends.bench.provenance import what_serves
from backends.bench.results import Environment, from_json
from backends.hub import HostSession
from tests.bench.conftest import Scheduled

PROGRAM = """
import http.server, sys, msgspec._core
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
print(server.server_port, flush=True)
sys.stdin.read()
"""


async def test_the_process_on_the_port_tells_its_arguments(here: HostSession) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, "serve", "vllm serve", "--model", "/models/tiny",
        "--tp-size", "4", "--api-key", "very-secret",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_verysecret"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        found = await what_serves(here, port, "vllm", Environment(host="here"))
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]
    environment = found.environment
    assert environment.host == "here"
    assert found.model == environment.asked_config["model"] == "/models/tiny"
    assert "4" in environment.asked_config.values()
    assert environment.server_env["NCCL_DEBUG"] == "INFO"
    assert "secret" not in str((environment.server_argv, environment.server_env))
    assert "secret" not in str(environment.asked_config)


async def test_nobody_on_the_port_is_a_finding_and_no_error(here: HostSession) -> None:
    found = await what_serves(here, 9, "unknown", Environment())
    assert found.model is None
    assert "port 9" in found.findings[0].text


def test_the_command_takes_a_port_and_says_what_produced_the_run(
    scheduled: Scheduled, capsys: pytest.CaptureFixture[str]
) -> None:
    from tui.cli import main

    load = ["--plan", "smoke", "--requests", "4", "--no-warm-up", "--concurrency", "2"]
    # The server answers on a path of its own; a bare port asks for the root.
    url = scheduled.url("plain")
    code = main(["bench", "local", url, *load, "--json", "--quiet"])
    result = from_json(capsys.readouterr().out)
    assert code in (0, 6)
    assert result.client.where == "host"
    assert "scheduled_server.py" in " ".join(result.environment.server_argv)
    assert result.steps[0].bound_evidence
    main(["bench", "local", url, *load, "--quiet", "--baseline", result.run_id])
    out = capsys.readouterr().out
    assert "what was possible is not known" in out
    assert "no difference shown" in out or "not comparable" in out


def test_a_port_is_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    from tui.cli import main

    assert main(["bench", "local", "9", "--plan", "smoke"]) == 3
    assert "127.0.0.1:9" in capsys.readouterr().err
