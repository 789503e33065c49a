"""What a start or a stop will run, told before it is done, with secrets masked. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from backends.agent.remote import mask
from backends.servers.host import MemberFacts
from backends.servers.launchers.base import Run, StartPlan
from backends.servers.profiles import Profile

MOST_CHARS: Final = 1200
"""Of one process in a list of those that a stop ends."""


def start_lines(plan: StartPlan, cwd: str | None = None) -> list[str]:
    """Exactly what will run, and how."""
    lines = [f"{name}={value}" for name, value in mask.environment(dict(plan.env)).items()]
    if cwd:
        lines.append(f"in {cwd}")
    lines += [shlex.join(mask.argv(list(argv))) for argv in plan.commands]
    return [_escaped(line) for line in (*lines, plan.words)]


def start_data(plan: StartPlan, profile: Profile) -> dict[str, object]:
    """The same for JSON."""
    return {
        "commands": [mask.argv(list(argv)) for argv in plan.commands],
        "env": mask.environment(dict(plan.env)),
        "cwd": profile.cwd,
        "kept": plan.words,
    }


def end_lines(
    run: Run,
    members: Sequence[MemberFacts],
    commands: Sequence[Sequence[str]],
    grace_s: float,
) -> list[str]:
    """What a stop does, and to whom.

    Args:
        run: What is to be stopped.
        members: Its processes.
        commands: What its launcher runs for it; none where signals are sent.
        grace_s: How long it gets to end by itself.
    """
    lines = [_escaped(shlex.join(argv)) for argv in commands]
    lines = lines or [f"SIGTERM to pid {run.pid}, {grace_s:g} s to end by itself"]
    lines.append(
        f"which gives it {grace_s:g} s; what is left of it then is ended by SIGKILL:"
        if commands
        else "then SIGTERM and SIGKILL to all of it that is left:"
    )
    return [*lines, *(f"  pid {m.pid} {m.command}"[:MOST_CHARS] for m in members)]


def _escaped(line: str) -> str:
    """With line feeds and whatever a terminal would obey as escapes, so that nothing is left out.

    What Python calls printable is left as it is.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
