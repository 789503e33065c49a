"""Who measures: our own generator, or another tool with `--harness`."""

from __future__ import annotations

import argparse
from pathlib import Path

from backends.bench.harness.commands import HARNESSES
from backends.bench.harness.run import HarnessRun, prepare_harness, program
from backends.bench.onhost import HostGenerator
from backends.bench.place import HostSession, Place, open_beside
from backends.bench.plan import Plan
from backends.bench.prepared import Prepared
from backends.bench.process import Generator, LocalGenerator
from backends.bench.provenance import Provenance
from backends.bench.run_events import Listener
from backends.bench.runner import Run, prepare_run
from backends.errors import UsageError
from backends.link.base import Channel
from tui.cli.bench_place import Where


def add_tool_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of another tool's benchmark."""
    tool = parser.add_argument_group("another tool's benchmark, on the host")
    tool.add_argument(
        "--harness",
        choices=tuple(HARNESSES),
        help="measure with vllm bench serve, sglang.bench_serving, guidellm or aiperf; its output "
        "becomes the same result",
    )
    tool.add_argument(
        "--python", metavar="PATH", help="the tool's Python (default: that of the server's process)"
    )
    tool.add_argument(
        "--tokenizer",
        metavar="WHAT",
        help="tokenizer for the tool: a folder on the host or a name (default: the server's model)",
    )
    tool.add_argument(
        "--harness-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="one more argument for the tool, as it is: --harness-arg=--trust-remote-code",
    )


async def prepare(plan: Plan, there: Place, arguments: argparse.Namespace) -> Prepared:
    """The checks before the run, for whoever measures. Raises RoomError."""
    model, room = arguments.model, there.room
    if arguments.harness is None:
        if arguments.python or arguments.tokenizer or arguments.harness_arg:
            raise UsageError("--python, --tokenizer and --harness-arg are for --harness")
        return await prepare_run(plan, there.endpoint, there.fetch, model=model, room=room)
    tool = HARNESSES[arguments.harness]
    return await prepare_harness(tool, plan, there.endpoint, there.fetch, model=model, room=room)


def make_run(
    prepared: Prepared,
    there: Place,
    found: Where,
    serves: Provenance,
    arguments: argparse.Namespace,
    listener: Listener,
    folder: Path,
) -> Run | HarnessRun:
    """The run, not yet begun. Raises UsageError where the tool's Python is not known."""
    if arguments.harness is None:
        return Run(
            prepared,
            there.generator,
            there.fetch,
            listener=listener,
            folder=folder,
            environment=serves.environment,
            profile=found.profile,
            gpus=there.gpus,
        )
    on_host = there.generator.where == "host"
    python = arguments.python or (serves.python if on_host else None)
    if python is None:
        raise UsageError(
            f"which Python has {arguments.harness}?",
            "the server's process tells none" if on_host else "the tool runs here",
            "--python /path/to/venv/bin/python",
        )
    return HarnessRun(
        HARNESSES[arguments.harness],
        prepared,
        _runner(there, found),
        there.fetch,
        python=python,
        pid=serves.pid if on_host else None,
        tokenizer=arguments.tokenizer or serves.model,
        more=arguments.harness_arg,
        listener=listener,
        environment=serves.environment,
        profile=found.profile,
        gpus=there.gpus,
        folder=folder,
    )


def _runner(there: Place, found: Where) -> Generator:
    where = there.generator.where
    session = there.session
    if where != "host" or session is None or found.host is None:
        return LocalGenerator(where=where, program=program)
    return _on_host(session, found.host.python)


def _on_host(session: HostSession, python: str) -> HostGenerator:
    async def opener(argv: object) -> Channel:
        assert isinstance(argv, list)
        return await open_beside(session, argv, "start another tool's benchmark")

    return HostGenerator(opener, python, program)
