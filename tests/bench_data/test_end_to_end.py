"""From a real load to a verdict: two equal servers with a known schedule, and a slower one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "tests" / "bench" / "scheduled_server.py"
LIMITED = 6
"""Exit status of a run that is not to be trusted: others load this machine."""


@contextlib.contextmanager
def server(slower: float) -> Iterator[str]:
    """The URL of a server whose every wait is longer by a factor."""
    with subprocess.Popen(
        [sys.executable, str(SERVER), str(0.1 * slower), str(0.02 * slower)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/plain"
        assert process.stdin is not None
        process.stdin.close()


def bench(url: str) -> subprocess.Popen[bytes]:
    """Begin a run against a server."""
    load = [
        "--concurrency",
        "2",
        "--duration",
        "3",
        "--input",
        "16",
        "--output",
        "8",
        "--no-warm-up",
    ]
    program = [sys.executable, str(ROOT / "gpuroom.py"), "bench", "--url", url]
    return subprocess.Popen([*program, *load, "--quiet", "--json"], stdout=subprocess.PIPE)


@pytest.mark.real
def test_a_slower_server_is_found_and_an_equal_one_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All at once: what else goes on here slows each of them down alike."""
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(server(slower)) for slower in (1.0, 1.0, 1.3)]
        begun = [stack.enter_context(bench(url)) for url in urls]
        results = [json.loads(process.communicate(timeout=90)[0]) for process in begun]
    assert {process.returncode for process in begun} <= {0, LIMITED}
    trusted = [process.returncode == 0 for process in begun]
    for other, status, words in ((1, 0, "B is NO DIFFERENCE SHOWN"), (2, 10, "B is SLOWER")):
        ids = [results[place]["run_id"] for place in (0, other)]
        exited = main(["bench", "compare", "--change", "20%", "--fail-if-slower", "20%", *ids])
        said = capsys.readouterr().out
        if not (trusted[0] and trusted[other]):
            status, words = 12, "client kept up"
        assert exited == status, said
        assert words in said
    assert main(["bench", "list"]) == 0
    assert main(["bench", "export", "last", "--format", "samples"]) == 0
    assert '"gaps_us"' in capsys.readouterr().out
