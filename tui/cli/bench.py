"""`gpuroom bench`: offer a plan's load to a server and say how fast it serves."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
from pathlib import Path

import msgspec

from backends import paths
from backends.bench import planfile
from backends.bench.against import Reference, against_baseline, equal_runs, reference_for
from backends.bench.harness.run import HarnessRun
from backends.bench.host_look import look_at_host, still_served
from backends.bench.live_words import LiveWords
from backends.bench.plan import Closed, Open, Plan, Trace
from backends.bench.preflight import refuses
from backends.bench.provenance import Provenance
from backends.bench.results import RunResult, RunStatus, Severity, to_json
from backends.bench.run_events import Event, StepEnded
from backends.bench.runner import Run, record_file
from backends.bench.weigh_run import weighed
from backends.errors import RoomError, UsageError
from backends.storage.atomic import write_bytes
from backends.storage.history import History
from backends.storage.keep import keep_run
from tui.cli.bench_compare import step_lines
from tui.cli.bench_console import Console, Form
from tui.cli.bench_history import find_run
from tui.cli.bench_place import Where, place, where
from tui.cli.bench_possible import possible_table
from tui.cli.bench_tool import add_tool_arguments, make_run, prepare
from tui.cli.fit import width_of

EXIT_BROKEN = 1
EXIT_UNTRUSTED = 6
EXIT_INTERRUPTED = 130

EPILOG = """\
exit status: 0 measured; 1 the run broke, or no request succeeded; 2 wrong use or plan; 3 no answer
from the server; 4 the load generator failed; 6 refused by the check before the run (--force runs
all the same), or measured but not to be trusted; 130 stopped, what was measured is kept.
Progress goes to stderr, results to stdout as they come. docs/bench.md defines every figure.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `gpuroom bench`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "host", nargs="?", metavar="HOST", help="send the load from this host, beside the server"
    )
    what.add_argument(
        "server",
        nargs="?",
        metavar="SERVER",
        help="on HOST: a server of the configuration, a port, or a URL as seen from there",
    )
    what.add_argument(
        "--url",
        metavar="URL",
        help="the server, such as http://127.0.0.1:8000; with HOST, as seen from there",
    )
    what.add_argument(
        "--from",
        dest="origin",
        choices=("host", "jumpbox", "tunnel"),
        help="send the load from HOST (default), from here over the network, or from here through "
        "the SSH connection",
    )
    what.add_argument("--model", metavar="NAME", help="model to ask for; else the server's first")
    what.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="environment variable that holds the server's key "
        "(default: what the profile of SERVER says)",
    )
    what.add_argument(
        "--insecure", action="store_true", help="take any certificate of an https server"
    )
    what.add_argument("--config", type=Path, help="configuration file to use")
    plan = parser.add_argument_group("the load")
    plan.add_argument(
        "--plan", default="quick", metavar="NAME", help="plan by name or file (default: quick)"
    )
    plan.add_argument("--plans", action="store_true", help="list the plans and exit")
    plan.add_argument(
        "--concurrency", type=_counts, metavar="N[,N...]", help="streams at once, in steps"
    )
    plan.add_argument("--rate", type=_rates, metavar="R[,R...]", help="Poisson arrivals a second")
    end = plan.add_mutually_exclusive_group()
    end.add_argument("--requests", type=_count, metavar="N", help="requests a step")
    end.add_argument("--duration", type=_positive, metavar="S", help="seconds a step")
    plan.add_argument("--input", type=_count, metavar="N", help="tokens of each prompt")
    plan.add_argument("--output", type=_count, metavar="N", help="tokens of each answer")
    plan.add_argument("--repetitions", type=_count, metavar="N", help="how often, interleaved")
    plan.add_argument("--seed", type=_seed, metavar="N", help="for lengths, arrivals and prompts")
    plan.add_argument("--route", choices=("auto", "chat", "completions", "native"))
    plan.add_argument("--prompts", choices=("auto", "ids", "text"))
    plan.add_argument("--no-stream", action="store_true", help="ask for answers in one piece")
    plan.add_argument("--no-warm-up", action="store_true", help="measure from the first request")
    plan.add_argument(
        "--sample", type=_count, metavar="N", help="read only N streams event by event"
    )
    add_tool_arguments(parser)
    out = parser.add_argument_group("results")
    form = out.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the result document, when it is over")
    form.add_argument(
        "--json-lines",
        action="store_true",
        help="one JSON object a line as things come: finding, step, word; at last the result",
    )
    out.add_argument("--quiet", action="store_true", help="no progress on stderr")
    out.add_argument(
        "--baseline",
        nargs="?",
        const="",
        metavar="RUN",
        help="compare with this run, step by step and when done; without RUN, with the pinned one "
        "of server and plan",
    )
    out.add_argument("--force", action="store_true", help="run whatever the check before it finds")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out."""
    if arguments.plans:
        return _list_plans(arguments.json)
    plan = _plan(arguments)
    if arguments.baseline:
        with History.at_home() as history:
            find_run(history, arguments.baseline)  # a name that means nothing is told now
    return asyncio.run(_bench(arguments, plan, where(arguments)))


async def _bench(arguments: argparse.Namespace, plan: Plan, found: Where) -> int:
    form = Form.JSON if arguments.json else Form.LINES if arguments.json_lines else Form.TABLE
    console = Console(quiet=arguments.quiet, form=form)
    folder = paths.data_dir() / "runs"
    async with place(found) as there:
        prepared = await prepare(plan, there, arguments)
        prepared.findings.extend(there.findings)
        console.labels = {place: step.label for place, step in enumerate(prepared.steps)}
        for finding in prepared.findings:
            console.found(finding)
        if refuses(prepared.findings) and not arguments.force:
            console.say("not run; --force runs it all the same")
            return EXIT_UNTRUSTED
        serves = Provenance(there.environment, None)
        if there.session is not None:
            serves = await look_at_host(
                there.session, found.server.port, prepared.server, there.environment
            )
            prepared.findings.extend(serves.findings)
            for finding in serves.findings:
                console.found(finding)
        words = LiveWords(lambda so_far: _reference(so_far, arguments.baseline), console.words)

        def heard(event: Event) -> None:
            console.event(event)
            if isinstance(event, StepEnded):
                words.step_ended()

        run = make_run(prepared, there, found, serves, arguments, heard, folder)
        async with words.following(run):
            result = await _until_interrupted(run)
        if there.session is not None:
            result = await still_served(there.session, found.server.port, result)
        _keep(result, folder)
        if there.session is not None and result.steps:
            result = await weighed(there.session, result, serves.model)
            _keep(result, folder)
    console.end(result)
    if form is Form.TABLE:
        if result.possible is not None:
            print(f"\n{possible_table(result.possible, width_of(sys.stdout))}")
        elif result.possible_absent:
            console.print()
            console.print(f"what was possible is not known: {result.possible_absent}")
        if arguments.baseline is not None:
            _compare(result, arguments.baseline)
        else:
            _against_pinned(result, console)
    return exit_status(result)


def _reference(so_far: RunResult, baseline: str | None) -> Reference | None:
    """What the run is compared with: the run that was named, else the pinned one."""
    with History.at_home() as history:
        if baseline:
            named = find_run(history, baseline)
            return Reference(named, tuple(equal_runs(history, named)))
        return reference_for(history, so_far)


def _against_pinned(result: RunResult, console: Console) -> None:
    """One word a step, where a baseline is pinned for this profile and plan."""
    try:
        with History.at_home() as history:
            compared = against_baseline(history, result)
    except (OSError, RoomError) as error:
        console.print(f"not compared: {error}")
        return
    if compared is not None:
        console.print()
        console.print(f"against the baseline {compared.a.run_id}: {compared.word.value}")
        for line in step_lines(compared):
            console.print(line)


def _compare(result: RunResult, baseline: str) -> None:
    """Print the comparison with a baseline; a run that has none says so."""
    from tui.cli import bench_compare

    names = [baseline, result.run_id] if baseline else [result.run_id]
    parser = argparse.ArgumentParser()
    bench_compare.add_arguments(parser)
    print()
    try:
        bench_compare.run(parser.parse_args(names))
    except RoomError as error:
        print(f"not compared: {error}")


async def _until_interrupted(run: Run | HarnessRun) -> RunResult:
    """Carry it out; an interrupt stops it, and what was measured is kept."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.stop)
    try:
        return await run.execute()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def exit_status(result: RunResult) -> int:
    """The exit status that a result means."""
    if result.status is RunStatus.STOPPED:
        return EXIT_INTERRUPTED
    if result.status is RunStatus.BROKEN or not any(step.succeeded for step in result.steps):
        return EXIT_BROKEN
    if any(finding.severity is Severity.ERROR for finding in result.findings):
        return EXIT_UNTRUSTED
    return 0


def _plan(arguments: argparse.Namespace) -> Plan:
    """The plan, with what the command line changes."""
    plan = planfile.load(arguments.plan)
    changes: dict[str, object] = {}
    for name in ("seed", "route", "prompts", "repetitions", "sample"):
        value = getattr(arguments, name)
        if value is not None:
            changes[name] = value
    if arguments.no_stream:
        changes["streaming"] = False
    if arguments.no_warm_up:
        changes["warm_up"] = None
    if arguments.input or arguments.output:
        changes["parts"] = tuple(
            msgspec.structs.replace(
                part, input=arguments.input or part.input, output=arguments.output or part.output
            )
            for part in plan.parts
        )
    if arguments.concurrency and arguments.rate:
        raise UsageError("--concurrency and --rate exclude each other")
    end = {}
    if arguments.requests:
        end = {"requests": arguments.requests, "duration_s": None}
    elif arguments.duration:
        end = {"requests": None, "duration_s": arguments.duration}
    steps: tuple[Closed | Open | Trace, ...] = plan.steps
    if arguments.concurrency:
        steps = (Closed(concurrency=arguments.concurrency, duration_s=_length_of(plan)),)
    elif arguments.rate:
        steps = (Open(rate_per_s=arguments.rate, duration_s=_length_of(plan)),)
    if end:
        steps = tuple(
            msgspec.structs.replace(
                step, **end, **({"requests_per_stream": None} if isinstance(step, Closed) else {})
            )
            for step in steps
        )
    changes["steps"] = steps
    if len(changes) > 1 or steps != plan.steps:
        plan = msgspec.structs.replace(plan, **changes)
    planfile.check(plan)
    return plan


def _length_of(plan: Plan) -> float | None:
    first = plan.steps[0]
    return first.duration_s


def _list_plans(as_json: bool) -> int:
    """Every plan with what it is for; one that cannot be read says why, and the status is 2."""
    told: dict[str, str] = {}
    broken: list[RoomError] = []
    for name in planfile.available():
        try:
            told[name] = planfile.load(name).description
        except RoomError as error:
            broken.append(error)
    if as_json:
        print(msgspec.json.encode(told).decode())
    else:
        width = max(map(len, told))
        for name, description in told.items():
            print(f"{name:<{width}}  {description}")
    for why in broken:
        print(f"warning: {why}", file=sys.stderr)
    return 2 if broken else 0


def _keep(result: RunResult, folder: Path) -> None:
    """Into the history; beside it as a file where that cannot be written."""
    try:
        with History.at_home() as history:
            keep_run(history, result, record_file(folder, result.run_id))
        return
    except (OSError, RoomError) as error:
        print(f"warning: the history cannot be written: {error}", file=sys.stderr)
    try:
        write_bytes(folder / f"{result.run_id}.json", to_json(result))
    except (OSError, RoomError) as error:
        print(f"warning: the result cannot be kept: {error}", file=sys.stderr)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, such as 16") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, such as 1") from None
    if abs(value) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is too large for a seed")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 2.5") from None
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is no finite number above 0")
    return value


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in _several(text, "1,4,16"))


def _rates(text: str) -> tuple[float, ...]:
    return tuple(_positive(part) for part in _several(text, "0.5,2"))


def _several(text: str, such_as: str) -> list[str]:
    parts = text.split(",")
    if not all(part.strip() for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r}: one number, or several with commas, such as {such_as}"
        )
    return parts
