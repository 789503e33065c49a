"""The table of commands: name, module that carries it out, one line of help.

Each module offers `add_arguments(parser)` and `run(arguments) -> int` and is imported only when
its command is called, so `--help` stays instant.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One entry of the table."""

    name: str
    module: str
    help: str


COMMANDS: tuple[Command, ...] = (
    Command("top", "tui.cli.top", "the readings of a host without a screen"),
    Command("hosts", "tui.cli.hosts", "every configured host: reachable, or why not"),
    Command("doctor", "tui.cli.doctor", "why can't I connect to a host, or see its GPUs?"),
    Command("config", "tui.cli.config", "check, write or find the configuration"),
    Command("keys", "tui.cli.keys", "list every key and what it does"),
    Command("completion", "tui.cli.completion", "print a completion script for bash, zsh or fish"),
    Command("roofline", "tui.cli.roofline", "what a model could do on given cards; no host"),
    Command("bench", "tui.cli.bench", "measure how fast a server serves"),
    Command("bench list", "tui.cli.bench_list", "earlier runs, newest first"),
    Command("bench show", "tui.cli.bench_show", "one run, and all that produced it"),
    Command("bench compare", "tui.cli.bench_compare", "is a run faster, slower, or neither?"),
    Command("bench export", "tui.cli.bench_export", "a run as JSON, CSV, Markdown, samples"),
    Command("bench import", "tui.cli.bench_import", "results of other tools into the history"),
    Command("bench tag", "tui.cli.bench_tag", "tags and notes of a run"),
    Command("bench baseline", "tui.cli.bench_baseline", "pin the run that others must match"),
    Command("bench delete", "tui.cli.bench_delete", "forget a run"),
    Command("servers", "tui.cli.servers", "every server of a host, its state, and who says so"),
    Command("servers import", "tui.cli.servers_import", "write a profile from a running process"),
    Command("start", "tui.cli.start", "start a configured server"),
    Command("stop", "tui.cli.stop", "stop a server, wholly"),
    Command("restart", "tui.cli.restart", "stop a server, then start it"),
    Command("wait-ready", "tui.cli.wait_ready", "wait until a server is ready, or say why not"),
    Command("adopt", "tui.cli.adopt", "watch a server that gpuroom did not start"),
    Command("logs", "tui.cli.logs", "read, filter and follow the log of a server"),
    Command("diagnose", "tui.cli.diagnose", "say what a server's log shows: ready, failed and why"),
    Command("facts", "tui.cli.facts", "what a host says of itself, for the tuning checks"),
    Command("tuning", "tui.cli.tuning", "what a host gets wrong, and what would put it right"),
)

ROOM = Command("room", "tui.cli.room", "open the control room of one host or more")
"""What runs when the first word is no command; `gpuroom room HOST` says it in full."""


def find(name: str) -> Command | None:
    """The command of that name, or None."""
    return next((command for command in (*COMMANDS, ROOM) if command.name == name), None)
