"""The demo's engine under the real load generator: exact lengths, counters that add up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.bench.results import PromptSource, from_json
from tui.cli import main

ENGINE = Path(__file__).resolve().parents[2] / "backends" / "sim" / "engine.py"
DEADLINE_S = 60.0


@pytest.fixture
def url() -> Iterator[str]:
    """A ready engine, without the waiting of a real start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(ENGINE), "serve", "--model-path", "/models/GLM-5-NVFP4",
         "--tp-size", "8", "--port", str(port)],
        env={**os.environ, "GPUROOM_DEMO_AT_ONCE": "1"}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not answers(address):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize("route", ["auto", "chat", "completions"])
def test_it_can_be_measured(url: str, route: str, capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--plan", "smoke", "--concurrency", "3", "--requests", "9", "--no-warm-up"]
    code = main(["bench", "--url", url, *load, "--route", route, "--json", "--quiet"])
    result = from_json(capsys.readouterr().out)
    assert code == 0, result.findings
    (step,) = result.steps
    assert (result.target.engine, step.succeeded, step.failed) == ("sglang", 9, 0)
    if route == "auto":
        assert result.plan.prompt_source is PromptSource.IDS
        assert step.ledger.asked_input == step.ledger.usage_input
    ledger = step.ledger
    assert ledger.asked_output == ledger.usage_output == ledger.seen_output == ledger.server_output
    assert not ledger.foreign_output_share
    assert step.server is not None


def test_the_demo_s_own_server_is_measured_at_once(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server starts with its host, so it does not listen yet when the host is reached."""
    load = ["--plan", "smoke", "--requests", "2", "--no-warm-up", "--force"]
    code = main(["bench", "demo", "glm-5", *load, "--json", "--quiet"])
    captured = capsys.readouterr()
    assert code in (0, 6), captured.err
    assert from_json(captured.out).steps[0].sent > 0


def test_a_configured_server_that_does_not_run_is_named_with_the_ways_to_it(
    own_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.cli.bench_place.LISTEN_S", 0.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        config = own_home / "config.toml"
        config.write_text(
            '[[servers]]\nname = "glm"\nhost = "local"\nengine = "sglang"\n'
            f'command = ["sglang", "serve", "--port", "{port}"]\n'
        )
        code = main(["bench", "local", "glm", "--config", str(config), "--quiet"])
    said = capsys.readouterr().err
    assert code == 3, said
    assert "`gpuroom start glm --wait` starts it, `gpuroom wait-ready glm` waits for it" in said
