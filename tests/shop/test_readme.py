"""The README says what is true: every command in it parses, and those that need no host run."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from backends.config import Config
from tui.cli import main
from tui.cli.commands import COMMANDS, ROOM

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
FENCES = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
LINES = [
    line.partition("  #")[0].strip() for fence in FENCES for line in fence.splitlines() if line
]
COMMAND_LINES = [line for line in LINES if line.startswith("gpuroom")]
RUNS_ANYWHERE = re.compile(
    r"^gpuroom (top demo|doctor demo|roofline|bench list|config path|completion)"
)


def parse(line: str) -> None:
    """Parse a command line of gpuroom as it would be; an error ends the test."""
    words = shlex.split(line)[1:]
    named = sorted(COMMANDS, key=lambda c: -len(c.name.split()))
    command = next((c for c in named if words[: len(c.name.split())] == c.name.split()), ROOM)
    parser = argparse.ArgumentParser(prog=command.name)
    importlib.import_module(command.module).add_arguments(parser)
    parser.parse_args(words[len(command.name.split()) :] if command is not ROOM else words)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_of_the_readme_parses(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", [line for line in COMMAND_LINES if RUNS_ANYWHERE.match(line)])
def test_a_command_that_needs_no_host_runs(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)[1:]) == 0
    capsys.readouterr()


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in LINES:
        if line.startswith("make "):
            assert re.search(rf"(?m)^{line.split()[1]}:", makefile), line


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_table_of_the_configuration_is_whole() -> None:
    for field in msgspec.structs.fields(Config):
        row = re.search(rf"\| `\[+{field.name}\]+` \| (.*?) \|", README)
        assert row, field.name
        kind = next(
            (k for k in (field.type, *getattr(field.type, "__args__", ()))
             if isinstance(k, type) and issubclass(k, msgspec.Struct)), None,
        )  # fmt: skip
        for inner in msgspec.structs.fields(kind) if kind is not None else ():
            assert f"`{inner.name}`" in row[1], f"{field.name}.{inner.name}"


def test_every_document_is_linked() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        assert f"docs/{path.name}" in README, path.name
