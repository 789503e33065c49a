"""Logs of many kinds, each with the verdict that a person who reads it would give.

`stories/*.txt` hold them: a line `=== name engine outcome ready-line cause evidence-line`, then the
log (`-`: none).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_bytes

CATALOGUE = load_catalogue()
STORIES = [
    story.partition("\n")[::2]
    for path in sorted(Path(__file__).with_name("stories").glob("*.txt"))
    for story in path.read_text(encoding="utf-8").split("=== ")[1:]
]


@pytest.mark.parametrize(("told", "log"), STORIES, ids=[told.split()[0] for told, _ in STORIES])
def test_a_story_has_its_verdict(told: str, log: str) -> None:
    name, *expected = told.split()
    verdict = diagnose_bytes(log.encode(), CATALOGUE)
    line = verdict.evidence.line if verdict.evidence is not None else None
    found = (verdict.engine, verdict.outcome, verdict.ready_line, verdict.cause, line)
    assert [str(each or "-") for each in found] == expected, name


def test_there_are_stories_of_every_engine() -> None:
    engines = {told.split()[1] for told, _ in STORIES}
    assert engines == {
        "vllm", "sglang", "llamacpp", "trtllm", "tgi", "transformers", "ollama", "custom",
    }  # fmt: skip


@pytest.mark.parametrize(
    "prefix",
    [
        "[pod/srv-0/main] 2026-12-02T09:00:00.123456789Z ",
        "Dec 02 09:00:00 gpu01 python3[77]: ",
        "\x1b[33mserver-1  |\x1b[0m ",
    ],
)
def test_a_collector_changes_no_verdict(prefix: str) -> None:
    for told, log in STORIES:
        name, *expected = told.split()
        lines = log.rstrip("\n").split("\n")
        verdict = diagnose_bytes("".join(f"{prefix}{x}\n" for x in lines).encode(), CATALOGUE)
        line = verdict.evidence.line if verdict.evidence is not None else None
        found = (verdict.engine, verdict.outcome, verdict.ready_line, verdict.cause, line)
        if "systemd[1]" not in log:  # a journal within another
            assert [str(each or "-") for each in found] == expected, name
