"""What the commands about servers share: profile, host, desk, questions, words on stderr."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backends import config as configuration
from backends.clock import SYSTEM_CLOCK
from backends.config import Config, HostConfig
from backends.errors import ReadOnlyError, RoomError, UsageError
from backends.hub import RoomHub
from backends.servers.catalogue import load_catalogue
from backends.servers.desk import ServerDesk
from backends.servers.launchers.base import Run, StartFinding, StopResult, StopStep
from backends.servers.lifecycle import ANSWERING, OVER, Assessment
from backends.servers.planned import end_lines
from backends.servers.precheck import GONE_AFTER_STOP, RUNS_ALREADY
from backends.servers.profiles import Profile, resolve_profiles
from backends.servers.report import cause_lines, finding_data, progress_words, stop_lines
from backends.servers.watch import ServerWatch
from backends.session import HostSession
from backends.storage.starts import StartHistory
from backends.tuning.gather import reached
from tui.cli.prompts import terminal_prompter

EXIT_BUSY: Final = 7
EXIT_REFUSED: Final = 8
EXIT_INCOMPLETE: Final = 9
EXIT_CRASHED: Final = 10
EXIT_STALLED: Final = 11
EXIT_TIMED_OUT: Final = 12


@dataclass(frozen=True)
class Place:
    """A host that is reached, its desk, and the profile that was named."""

    session: HostSession
    desk: ServerDesk
    profile: Profile | None = None


def add_place(parser: argparse.ArgumentParser, *, host_option: bool = False) -> None:
    """How a host is found and reached."""
    if host_option:
        parser.add_argument("--host", metavar="HOST", help="another host than the profile names")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file to use")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--connect-timeout", type=float, default=30.0, metavar="SECONDS",
        help="give up when the host is not reached by then (default %(default)s)",
    )  # fmt: skip


@contextlib.asynccontextmanager
async def at_host(arguments: argparse.Namespace, name: str) -> AsyncIterator[Place]:
    """The host of that name, reached."""
    config = configuration.load(arguments.config)
    (host,) = configuration.resolve_hosts(config, [name])
    async with _reach(arguments, config, host) as place:
        yield place


@contextlib.asynccontextmanager
async def at_profile(arguments: argparse.Namespace, *, must: bool) -> AsyncIterator[Place]:
    """The host of a profile, reached.

    Raises:
        UsageError: No profile is called so. With `must` false, `--host` is enough: servers are
            also known by what they serve, and by pid.
    """
    config = configuration.load(arguments.config)
    profiles = {each.name: each for each in resolve_profiles(config.servers)}
    profile = profiles.get(arguments.profile)
    if profile is None and (must or arguments.host is None):
        known = (
            configuration.nearest(arguments.profile, profiles)
            if profiles
            else "the configuration has no [[servers]]"
        )
        found = "" if must else "--host HOST names one that was found there"
        hint = "; ".join(filter(None, (known, found))) or "docs/servers.md: [[servers]]"
        raise UsageError(f"no server {arguments.profile!r} is configured", hint=hint)
    name = arguments.host or (profile.host if profile is not None else "")
    if profile is not None:
        profile = replace(profile, host=name)
    (host,) = configuration.resolve_hosts(config, [name])
    async with _reach(arguments, config, host, profile) as place:
        yield place


@contextlib.asynccontextmanager
async def _reach(
    arguments: argparse.Namespace, config: Config, host: HostConfig, profile: Profile | None = None
) -> AsyncIterator[Place]:
    mine = [each for each in resolve_profiles(config.servers) if each.host == host.name]
    if profile is not None:
        mine = [each for each in mine if each.name != profile.name] + [profile]
    catalogue = await asyncio.to_thread(load_catalogue)
    async with RoomHub([host], config, terminal_prompter()) as hub:
        session = hub.sessions[0]
        await reached(session, arguments.connect_timeout)
        starts = _earlier_starts()
        try:
            yield Place(session, ServerDesk(session, mine, catalogue, starts), profile)
        finally:
            if starts is not None:
                starts.close()


def _earlier_starts() -> StartHistory | None:
    """The history of starts; without one there is no time left, but all else."""
    try:
        return StartHistory.at_home()
    except RoomError as error:
        say(f"note: without earlier starts: {error}")
        return None


def allow_changes(arguments: argparse.Namespace, session: HostSession) -> None:
    """A production host is changed only when `--yes` or its typed name says so.

    Raises:
        ReadOnlyError: Neither did.
    """
    if not session.read_only:
        return
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise ReadOnlyError(
                f"{session.name} is a production host", "nothing was done", "say --yes"
            )
        say(f"{session.name} is a production host. Type its name to go on: ", end="")
        if sys.stdin.readline().strip() != session.name:
            raise ReadOnlyError(f"{session.name} is a production host", "nothing was done")
    session.unlock()


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The option that spares typing a production host's name."""
    parser.add_argument(
        "--yes", action="store_true", help="do it on a production host without asking"
    )


async def checked(
    place: Place, profile: Profile, *, force: bool, before_stop: bool = False
) -> tuple[list[StartFinding], bool]:
    """What the check before a start finds, said on stderr, and whether the start may go on.

    Args:
        place: Where.
        profile: What is to be started.
        force: Go on all the same, unless it runs already.
        before_stop: The run before still lives and will be stopped: only what would still be in
            the way afterwards counts.
    """
    found = await place.desk.check(profile)
    if before_stop:
        found = [finding for finding in found if finding.id not in GONE_AFTER_STOP]
    for finding in found:
        say(f"{finding.severity.value}: {finding.title}")
        if finding.way_out:
            say(f"  -> {finding.way_out}")
    blocked = any(finding.severity.value == "critical" for finding in found)
    # What runs already is replaced by a restart; no insisting starts a second one.
    runs = any(finding.id in RUNS_ALREADY for finding in found)
    if runs:
        say("not started")
    elif blocked and not force:
        say("not started; --force starts it all the same")
    return found, not runs and (force or not blocked)


async def follow_start(
    place: Place, watch: ServerWatch, timeout_s: float, *, through_stalls: bool = False
) -> tuple[int, Assessment]:
    """Say how a start goes until it is ready, over, stalled or late; gives the exit status."""
    said = ""

    def test(found: Assessment) -> bool:
        nonlocal said
        words = progress_words(found)
        if words != said:
            said = words
            say(words)
        stalled = found.stall is not None and not through_stalls
        return found.state in ANSWERING or found.state in OVER or stalled

    try:
        found = await watch.until(test, timeout_s)
    except TimeoutError:
        say(f"not ready after {timeout_s:g} s: {watch.assessment.why}")
        return EXIT_TIMED_OUT, watch.assessment
    try:
        await place.desk.record(watch, found)
    except RoomError as error:  # a full disk here says nothing of the server
        say(f"note: this start is not in the history: {error}")
    if found.state in ANSWERING:
        return 0, found
    if found.state in OVER:
        found = await _last_words(watch)
        for line in cause_lines(found, watch.verdict):
            say(line)
        return EXIT_CRASHED, found
    say(f"stalled: {found.why}")
    return EXIT_STALLED, found


async def _last_words(watch: ServerWatch) -> Assessment:
    """The end of the log comes a moment after the end of the process."""
    with contextlib.suppress(TimeoutError):
        await watch.until(lambda found: found.cause is not None, 1.5)
    return watch.assessment


def say_plan(title: str, lines: Sequence[str]) -> None:
    """Exactly what will be done, on stderr."""
    say("\n".join([title, *(f"  {line}" for line in lines)]))


async def say_what_ends(place: Place, run: Run, grace_s: float | None = None) -> None:
    """What a stop of a run will do, and to whom, on stderr."""
    desk = place.desk
    members = await desk.members(run)
    if members:
        commands = await desk.stop_commands(run)
        if grace_s is None:
            grace_s = desk.grace_s(run)
        say_plan("what ends:", end_lines(run, members, commands, grace_s))


def say_step(step: StopStep) -> None:
    """A step of a stop, on stderr."""
    say(step.full_words)


def say_stopped(result: StopResult) -> int:
    """How a stop ended, on stderr; gives the exit status."""
    for line in stop_lines(result):
        say(line)
    return 0 if result.complete else EXIT_INCOMPLETE


def say(text: str, end: str = "\n") -> None:
    """Something for the person, not for the pipe."""
    print(text, end=end, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """The answer for a script."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def now_s() -> float:
    """The clock that witnesses' times are on."""
    return SYSTEM_CLOCK.monotonic_s()


def findings_data(found: Sequence[StartFinding]) -> list[dict[str, object]]:
    """Findings for JSON."""
    return [finding_data(each) for each in found]
