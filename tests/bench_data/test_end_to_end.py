"""From a real load to a verdict: a server with a known schedule, and one that is 6 % slower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backends.storage.history import History
from tui.cli.main import main

PROGRAM = Path(__file__).parent.parent / "bench" / "scheduled_server.py"


TRIES = 4


def measure(slower: float) -> str:
    """The id of a run against a server whose every wait is longer by a factor."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(0.05 * slower), str(0.01 * slower)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/plain"
        load = ["--concurrency", "4", "--duration", "5", "--input", "16", "--output", "20"]
        for _ in range(TRIES):  # others may load this machine, and the client not keep up
            status = main(["bench", "--url", url, *load, "--quiet"])
            assert status in (0, 6)
            if status == 0:
                break
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()
    with History.at_home() as history:
        return history.resolve("last")


@pytest.mark.real
@pytest.mark.timeout(240)
def test_a_slower_server_is_found_and_an_equal_one_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [measure(slower) for slower in (1.0, 1.0, 1.06)]
    compare = ["bench", "compare", "--change", "4%", "--fail-if-slower", "4%"]
    capsys.readouterr()
    equal, same = main([*compare, *runs[:2]]), capsys.readouterr().out
    changed, other = main([*compare, *runs[1:]]), capsys.readouterr().out
    assert (equal, changed) == (0, 10), same + other
    assert "B is SLOWER" in other
    assert main(["bench", "list"]) == 0
    assert main(["bench", "export", "last", "--format", "samples"]) == 0
    lines = capsys.readouterr().out
    assert '"gaps_us"' in lines
