"""The arguments of `gpuroom tuning`: sub-commands, and options in groups by what they are for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backends.tuning.profiles import NAMES
from tui.cli.reading import add_reading

HOST: Final = "host"
EPILOG: Final = (
    "exit status: 0 nothing wrong, 10 warnings, 20 failures, 30 critical failures, "
    "2 a file cannot be used"
)
USAGE: Final = "gpuroom tuning HOST [THEN] [WHAT] [options]"
ACTIONS: Final = {
    "judge": "read and judge: the checklist (what is done when nothing is named)",
    "apply": "put findings right: shown, confirmed, done, read again (--only)",
    "rollback": "take a change back: the snapshot WHAT, the newest when left out",
    "files": "what gpuroom made lasting there; take some of it away (--remove)",
    "reboot-preview": "what a reboot will change: kernel, module, device majors, settings",
    "waive": "accept the finding WHAT, with a reason and an end (--reason, --until)",
    "unwaive": "take that back",
    "history": "runs, changes, measurements and experiments of before",
    "report": "a document for colleagues: what remains, what was changed",
    "measure": "measure, and judge with what was measured (--only for some parts)",
    "experiment": "try the fix of WHAT: measure, apply, measure again, take it back",
}
"""What can be done with a host, in the order of the help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    parser.epilog = EPILOG
    parser.usage = f"{USAGE}\n       gpuroom tuning ACTION ..."
    commands = parser.add_subparsers(
        dest="action", required=True, metavar="HOST | ACTION", action=_HostOrAction,
        prog="gpuroom tuning", parser_class=_AnyOrder,
    )  # fmt: skip
    # Any first word that is no action is a host, or a file of saved facts.
    commands.choices = None  # type: ignore[assignment]
    _host(
        commands.add_parser(
            HOST,
            help="judge a host as it is now, change it, take changes back; `HOST --help` has more",
            prog="gpuroom tuning",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            description="What THEN may be:\n\n"
            + "\n".join(f"  {name:<16}{what}" for name, what in ACTIONS.items()),
            epilog=EPILOG,
            usage=USAGE,
        )
    )
    read = commands.add_parser(
        "read",
        help="judge saved facts or printed output (nvidia-smi, lspci, dmesg, lscpu, ...)",
        epilog=EPILOG,
    )
    read.add_argument("files", nargs="+", metavar="FILE", help="files of one host; - is stdin")
    _judging(read)
    _forms(read)
    read.add_argument("--config", type=Path, help="configuration file to use")
    audit = commands.add_parser(
        "audit", help="judge many hosts at once, a line each", epilog=EPILOG
    )
    audit.add_argument("hosts", nargs="*", metavar="HOST", help="all configured when left out")
    _judging(audit)
    audit.add_argument("--json", action="store_true", help="print a JSON list of hosts")
    add_reading(audit)
    diff = commands.add_parser("diff", help="what differs between two hosts, or two times")
    diff.add_argument(
        "a",
        metavar="A",
        help="a file (facts.json, printed output), a host as it is now, or a run of its history: "
        "HOST@NUMBER, HOST@last, HOST@-1",
    )
    diff.add_argument("b", metavar="B")
    add_reading(diff)
    _judging(diff)
    diff.add_argument("--json", action="store_true", help="print JSON")
    reboot = commands.add_parser("reboot", help="what a reboot will change, from files of a host")
    reboot.add_argument("files", nargs="+", metavar="FILE", help="files of one host; - is stdin")
    reboot.add_argument("--json", action="store_true", help="print JSON")
    waivers = commands.add_parser("waivers", help="the findings that were accepted, and until when")
    waivers.add_argument("--json", action="store_true", help="print JSON")
    explain = commands.add_parser("explain", help="what a check reads, wants, and why")
    explain.add_argument("id", metavar="ID")
    explain.add_argument("--json", action="store_true", help="print JSON")
    listing = commands.add_parser("list", help="all checks")
    listing.add_argument("--thresholds", action="store_true", help="the thresholds of a profile")
    listing.add_argument("--profile", choices=NAMES, default="default")
    listing.add_argument("--json", action="store_true", help="print JSON")


class _HostOrAction(argparse._SubParsersAction):  # type: ignore[type-arg]
    """`gpuroom tuning gpu01 ...` means `gpuroom tuning host gpu01 ...`."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        if values[0] not in self._name_parser_map:
            values = [HOST, *values]
        super().__call__(parser, namespace, values, option_string)


class _AnyOrder(argparse.ArgumentParser):
    """Words and options in any order: `HOST --root X apply` as well as `HOST apply --root X`."""

    _inner = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._inner:
            return super().parse_known_args(args, namespace)
        self._inner = True
        try:
            found, extras = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inner = False
        if "then" in found:
            _give_back(found)
        return found, extras


def _give_back(found: argparse.Namespace) -> None:
    """`--only ID apply`: the word after a list of ids is no id, but what is to be done."""
    for name in ("only", "remove"):
        words: Sequence[str] = getattr(found, name) or ()
        place = next((n for n, word in enumerate(words) if n and word in ACTIONS), None)
        if place is not None and found.then == "judge":
            setattr(found, name, list(words[:place]))
            found.then, *rest = words[place:]
            if rest:
                found.what = rest[0]


def _host(host: argparse.ArgumentParser) -> None:
    host.add_argument("host", metavar="HOST", help="a host, or a file of `gpuroom facts`")
    host.add_argument(
        "then", nargs="?", metavar="THEN", default="judge", choices=tuple(ACTIONS),
        help="what to do with it, see above",
    )  # fmt: skip
    host.add_argument(
        "what", nargs="?", metavar="WHAT",
        help="rollback: a snapshot; waive, unwaive, experiment: a check",
    )  # fmt: skip
    _judging(host)
    _forms(host)
    add_reading(host)

    changing = host.add_argument_group("changing (apply, rollback, files, experiment)")
    changing.add_argument("--dry-run", action="store_true", help="show what would be done, no more")
    changing.add_argument("--yes", action="store_true", help="do it without asking")
    changing.add_argument(
        "--host-name", default="", metavar="NAME", help="must be given where production serves"
    )

    apply = host.add_argument_group("apply")
    apply.add_argument(
        "--only", nargs="+", metavar="ID",
        help="the findings to put right; with measure and experiment: what to measure",
    )  # fmt: skip
    form = apply.add_mutually_exclusive_group()
    form.add_argument(
        "--form", choices=("runtime", "persistent", "both"), default="runtime",
        help="what acts at once (the default), what lasts, or both",
    )  # fmt: skip
    form.add_argument("--persistent", action="store_true", help="the same as --form both")

    host.add_argument_group("rollback").add_argument(
        "--force", action="store_true", help="also what others have changed since"
    )
    host.add_argument_group("files").add_argument(
        "--remove", nargs="+", metavar="ID", help="settings or paths to go"
    )

    waiving = host.add_argument_group("waive")
    waiving.add_argument("--reason", default="", metavar="TEXT", help="why it is accepted")
    waiving.add_argument("--until", default="", metavar="DAY", help="2027-03-31, or 90d from today")

    measuring = host.add_argument_group("measure, experiment")
    measuring.add_argument("--path", default="", help="a model there, whose file is read")
    measuring.add_argument("--python", default="", help="the python there that has torch")
    measuring.add_argument("--history", action="store_true", help="list earlier measurements")
    measuring.add_argument(
        "--compare", nargs=2, type=int, metavar=("A", "B"),
        help="two of the history, figure by figure",
    )  # fmt: skip
    measuring.add_argument(
        "--seconds", type=float, default=12.0, help="of the load for links (default 12)"
    )
    measuring.add_argument("--runs", type=int, default=3, help="experiment: runs on each side")
    measuring.add_argument("--keep", action="store_true", help="experiment: leave the fix in place")


def _judging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is judged")
    group.add_argument(
        "--profile", choices=NAMES, default="",
        help="thresholds to use (default: as [tuning] of the configuration says)",
    )  # fmt: skip
    group.add_argument(
        "--checks", type=Path, metavar="TOML",
        help="your checks and waivers, besides those of the configuration",
    )  # fmt: skip
    group.add_argument("--all", action="store_true", help="also checks of which nothing was read")


def _forms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is printed")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list of findings")
    form.add_argument("--markdown", action="store_true", help="print a document")
    form.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0")
    form.add_argument("--facts", action="store_true", help="print the facts that were read")
