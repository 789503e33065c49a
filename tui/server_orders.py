"""What an operator has done to servers: checked, shown exactly as it will run, then carried out.

Runs in workers of the controller, which shows every failure. What is started outlives gpuroom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import App

from backends.errors import ReadOnlyError, RoomError, UsageError
from backends.servers.planned import end_lines, start_lines
from tui.intents import ImportServer, RestartServer, ServerIntent, StartServer, StopServer
from tui.shell import Shell

if TYPE_CHECKING:
    from backends.servers.launchers.base import StartFinding
    from backends.servers.profiles import Profile
    from backends.servers.roster import Roster
    from backends.servers.view import ServerView

ALIKE = 2
"""So many findings of a kind (a GPU each, say) are shown."""


class ServerOrders:
    """Carries out what screens ask of servers."""

    def __init__(self, app: App[int], shell: Shell) -> None:
        self._app = app
        self._shell = shell

    async def carry_out(self, intent: ServerIntent) -> None:
        """Do it.

        Raises:
            RoomError: It can't be done.
        """
        roster = self._roster(intent.host)
        view = roster.view(intent.server)
        if view is None:
            raise UsageError(f"no such server on {intent.host} any more")
        match intent:
            case StartServer():
                await self._start(roster, view, intent.asked_by)
            case StopServer():
                await self._stop(roster, view, intent.asked_by)
            case RestartServer():
                await self._restart(roster, view, intent.asked_by)
            case ImportServer():
                await self._import(roster, view)
            case _:
                raise TypeError(f"nobody carries out {type(intent).__name__}")

    def _roster(self, host: str) -> Roster:
        board = self._shell.servers
        if board is None:
            raise RoomError(f"{host} is not there yet", hint="wait until it is connected")
        return board.roster(host)

    async def _start(self, roster: Roster, view: ServerView, asked_by: str) -> None:
        profile = self._startable(view)
        findings = await roster.check(view.key)
        yes = await self._confirm(
            view.host,
            f"Start {view.name} on {view.host}",
            how_many(findings),
            [*finding_lines(findings), *await planned_lines(roster, view.key, profile)],
            insist=view.name if blocked(findings) else "",
        )
        if yes:
            await roster.start(view.key, asked_by=asked_by)

    async def _stop(self, roster: Roster, view: ServerView, asked_by: str) -> None:
        self._check_allowed(view.host)
        text = "" if view.profile is not None else "gpuroom did not start it."
        title = f"Stop {view.name} on {view.host}"
        if await self._confirm(view.host, title, text, await ended_lines(roster, view)):
            await self._stopped(roster, view, asked_by)

    async def _restart(self, roster: Roster, view: ServerView, asked_by: str) -> None:
        profile = self._startable(view)
        # A server that runs is not given up for one that can't be started.
        findings = await roster.check(view.key, before_stop=True)
        yes = await self._confirm(
            view.host,
            f"Restart {view.name} on {view.host}",
            how_many(findings),
            [
                *finding_lines(findings),
                *await ended_lines(roster, view),
                "then, once nothing of it is left:",
                *await planned_lines(roster, view.key, profile),
            ],
            insist=view.name if blocked(findings) else "",
        )
        if not yes:
            return
        async with roster.restarting(view.key, asked_by=asked_by):
            await self._stopped(roster, view, asked_by)
            findings = await roster.check(view.key)
            if blocked(findings):
                raise RoomError(
                    f"{view.name} was not started again", "\n".join(finding_lines(findings))
                )
            await roster.start(view.key, asked_by=asked_by)

    async def _stopped(self, roster: Roster, view: ServerView, asked_by: str) -> None:
        from backends.servers.report import stop_lines as left_lines

        result = await roster.stop(view.key, asked_by=asked_by)
        if not result.complete:
            lines = "\n".join(left_lines(result))
            raise RoomError(f"{view.name} is not wholly stopped", lines, "what remains is named")
        self._app.notify(
            "nothing of it is left", title=f"{view.name} is stopped", timeout=4, markup=False
        )

    async def _import(self, roster: Roster, view: ServerView) -> None:
        import tomli_w

        from backends.paths import config_file
        from backends.servers.report import plain_name, profile_table

        if view.run is None:
            raise UsageError(f"{view.name} does not run on {view.host}")
        table = dict(profile_table(plain_name(view.name), view.host, view.engine, view.run))
        text = tomli_w.dumps(table, multiline_strings=False)
        yes = await self._ask(
            f"Profile of {view.name}",
            f"Copy it to the clipboard, and put it into {config_file()}. Secrets are not in it: "
            "fill in what says ***.",
            text.strip().splitlines(),
            "",
        )
        if yes:
            self._app.copy_to_clipboard(text)
            self._app.notify("in the clipboard", title=f"profile of {view.name}", timeout=4)

    # --- questions -------------------------------------------------------------------------------

    def _startable(self, view: ServerView) -> Profile:
        self._check_allowed(view.host)
        if view.profile is None:
            raise UsageError(
                f"{view.name} was found, not configured", hint="a makes a profile of it"
            )
        return view.profile

    def _check_allowed(self, host: str) -> None:
        if self._shell.host_read_only(host):
            raise ReadOnlyError(
                f"{host} is read-only", "nothing was done", "Unlock the host first."
            )

    async def _confirm(
        self, host: str, title: str, text: str, runs: Sequence[str], *, insist: str = ""
    ) -> bool:
        """Ask; on a production host, and where the check found something grave, for a name."""
        production = self._shell.host_config(host).production
        if production:
            text = f"{host} is a production host.\n{text}".strip()
        return await self._ask(title, text, runs, host if production else insist)

    async def _ask(self, title: str, text: str, runs: Sequence[str], type_this: str) -> bool:
        from screens.confirm import ConfirmScreen

        dialog = ConfirmScreen(
            self._shell.look, title=title, text=text, runs=runs, type_this=type_this
        )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(yes: bool | None) -> None:
            if not answer.done():
                answer.set_result(bool(yes))

        await self._app.push_screen(dialog, answered)
        return await answer


def blocked(findings: Sequence[StartFinding]) -> bool:
    """Whether a start would fail, as far as one can see."""
    return any(finding.severity.value == "critical" for finding in findings)


def how_many(findings: Sequence[StartFinding]) -> str:
    """What the check before a start came to, in a sentence."""
    if not findings:
        return "Nothing is in the way: port, GPUs, program, model and disk were looked at."
    if blocked(findings):
        return "It would fail, as far as one can see. In the way, each with a way out:"
    return "May be in the way, each with a way out:"


def finding_lines(findings: Sequence[StartFinding]) -> list[str]:
    """What is in the way, each kind with its way out."""
    kinds: dict[str, list[StartFinding]] = {}
    for finding in findings:
        kinds.setdefault(finding.id, []).append(finding)
    lines = []
    for alike in kinds.values():
        lines += [f"{finding.severity.value}: {finding.title}" for finding in alike[:ALIKE]]
        if len(alike) > ALIKE:
            lines.append(f"  and {len(alike) - ALIKE} more like this")
        if alike[0].way_out:
            lines.append(f"  -> {alike[0].way_out}")
    return [*lines, "", "What runs:"] if lines else lines


async def planned_lines(roster: Roster, key: str, profile: Profile) -> list[str]:
    """What a start would run; where nothing could, why."""
    try:
        plan = await roster.plan(key)
    except RoomError as error:
        return [f"nothing would run: {error}"]
    return start_lines(plan, profile.cwd)


async def ended_lines(roster: Roster, view: ServerView) -> list[str]:
    """What a stop of it would do, and to whom."""
    if view.run is None:
        return []
    commands = await roster.desk.stop_commands(view.run)
    return end_lines(view.run, view.members, commands, roster.desk.grace_s(view.run))
