"""`gpuroom start PROFILE`: check what is in the way, then start a server that outlives gpuroom."""

from __future__ import annotations

import argparse
import asyncio

from backends.servers.report import assessment_data, run_data
from tui.cli.server_place import (
    EXIT_BUSY,
    EXIT_REFUSED,
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
    async with at_profile(arguments, must=True) as place:
        profile = place.profile
        assert profile is not None
        allow_changes(arguments, place.session)
        answer: dict[str, object] = {"stopped": None}
        if restart:
            from backends.servers.report import stop_data
            from tui.cli.server_place import say_step, say_stopped

            # A server that runs is not given up for one that can't be started.
            found, go_on = await checked(place, profile, force=arguments.force, before_stop=True)
            if not go_on:
                answer.update(findings=findings_data(found), started=None)
                if arguments.json:
                    print_json(answer)
                return EXIT_REFUSED
            result = await place.desk.stop_newest(profile, say_step)
            if result is not None:
                answer["stopped"] = stop_data(result)
                status = say_stopped(result)
                if status:
                    if arguments.json:
                        print_json(answer)
                    return status
        found, go_on = await checked(place, profile, force=arguments.force)
        answer["findings"] = findings_data(found)
        answer["started"] = None
        if not go_on:
            if arguments.json:
                print_json(answer)
            runs = any(finding.id == "earlier-run" for finding in found)
            return EXIT_BUSY if runs else EXIT_REFUSED
        begun = await place.desk.start(profile)
        log = begun.log.path or " ".join(begun.log.argv) if begun.log is not None else "none"
        say(f"{profile.name} is started on {place.session.name}: pid {begun.pid}, log {log}")
        answer["started"] = run_data(begun)
        status = 0
        if arguments.wait:
            timeout_s = arguments.timeout or profile.start_timeout_s
            async with await place.desk.watch(begun, profile) as watch:
                status, state = await follow_start(place, watch, timeout_s)
                answer["state"] = assessment_data(state, now_s())
        if arguments.json:
            print_json(answer)
        return status


async def restart(arguments: argparse.Namespace) -> int:
    """Stop the newest run of the profile, where there is one, then start it."""
    return await _start(arguments, restart=True)
