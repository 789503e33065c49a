"""`gpuroom start PROFILE`: check what is in the way, then start a server that outlives gpuroom."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.launchers.base import Run
from backends.servers.planned import start_data, start_lines
from backends.servers.profiles import Profile
from backends.servers.report import assessment_data, run_data, stop_data
from tui.cli.server_place import (
    EXIT_BUSY,
    EXIT_REFUSED,
    Place,
    add_place,
    add_yes,
    allow_changes,
    at_profile,
    checked,
    findings_data,
    follow_start,
    now_s,
    print_json,
    say,
    say_plan,
    say_step,
    say_stopped,
    say_what_ends,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The profile, and how much to insist."""
    add_start(parser)
    parser.epilog = (
        "Exit status: 0 started (with --wait: ready), 1 it can't be started, 5 production host and "
        "nobody said yes, 7 it runs already, 8 the check found something critical; "
        "with --wait also 10 crashed, 11 stalled, 12 not ready in time."
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """Options that a start and a restart share."""
    parser.add_argument("profile", metavar="PROFILE", help="name of a [[servers]] table")
    add_place(parser, host_option=True)
    add_yes(parser)
    parser.add_argument("--force", action="store_true", help="start although a check is critical")
    parser.add_argument("--wait", action="store_true", help="wait until it is ready")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS",
        help="with --wait: give up by then (default: the profile's start_timeout_s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Start it."""
    return asyncio.run(_start(arguments))


async def _start(arguments: argparse.Namespace, *, restart: bool = False) -> int:
    answer: dict[str, object] = {"stopped": None, "findings": [], "plan": None, "started": None}
    async with at_profile(arguments, must=True) as place:
        assert place.profile is not None
        allow_changes(arguments, place.session)
        begin = _begin_anew if restart else _begin
        status, run = await begin(arguments, place, place.profile, answer)
        if run is not None and arguments.wait:
            timeout_s = arguments.timeout or place.profile.start_timeout_s
            async with await place.desk.watch(run, place.profile) as watch:
                status, state = await follow_start(place, watch, timeout_s)
                answer["state"] = assessment_data(state, now_s())
        if arguments.json:
            print_json(answer)
        return status


async def _begin_anew(
    arguments: argparse.Namespace, place: Place, profile: Profile, answer: dict[str, object]
) -> tuple[int, Run | None]:
    """Stop the newest run, where there is one, then start; gives the exit status, and the run."""
    # A server that runs is not given up for one that can't be started.
    found, go_on = await checked(place, profile, force=arguments.force, before_stop=True)
    answer["findings"] = findings_data(found)
    if not go_on:
        return EXIT_REFUSED, None
    plan = await place.desk.plan(profile)
    answer["plan"] = start_data(plan, profile)
    run = await place.desk.newest(profile)
    if run is None:
        return await _begin(arguments, place, profile, answer)
    async with place.desk.restarting(run):
        await say_what_ends(place, run)
        result = await place.desk.stop(run, say_step)
        answer["stopped"] = stop_data(result)
        if status := say_stopped(result):
            return status, None
        return await _begin(arguments, place, profile, answer)


async def _begin(
    arguments: argparse.Namespace, place: Place, profile: Profile, answer: dict[str, object]
) -> tuple[int, Run | None]:
    """Check, say what runs, start; gives the exit status, and the run."""
    found, go_on = await checked(place, profile, force=arguments.force)
    answer["findings"] = findings_data(found)
    if not go_on:
        runs = any(finding.id == "earlier-run" for finding in found)
        return EXIT_BUSY if runs else EXIT_REFUSED, None
    plan = await place.desk.plan(profile)
    answer["plan"] = start_data(plan, profile)
    say_plan("what runs:", start_lines(plan, profile.cwd))
    begun = await place.desk.start(profile)
    log = begun.log.words if begun.log is not None else "none"
    say(f"{profile.name} is started on {place.session.name}: pid {begun.pid}, log {log}")
    answer["started"] = run_data(begun)
    return 0, begun


async def restart(arguments: argparse.Namespace) -> int:
    """Stop the newest run of the profile, where there is one, then start it."""
    return await _start(arguments, restart=True)
