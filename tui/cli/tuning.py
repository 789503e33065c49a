"""`gpuroom tuning`: judge what was read on a host, or what a colleague pasted."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from backends.errors import UsageError
from backends.tuning import readers, report
from backends.tuning.catalogue import GROUPS, Entry, entries
from backends.tuning.compare import compare
from backends.tuning.custom import Custom, parse
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import FactsDocument, decode, merge
from backends.tuning.findings import Finding
from backends.tuning.profiles import NAMES, load
from backends.tuning.reboot import preview
from tui.cli.reading import add_reading

MAX_FILE_BYTES = 64 << 20
HOST = "host"
EPILOG = (
    "exit status: 0 nothing wrong, 10 warnings, 20 failures, 30 critical failures, "
    "2 a file cannot be used"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    parser.epilog = EPILOG
    commands = parser.add_subparsers(
        dest="action", required=True, metavar="HOST | ACTION", action=_HostOrAction
    )
    # Any first word that is no action is a host, or a file of saved facts.
    commands.choices = None  # type: ignore[assignment]
    host = commands.add_parser(HOST, help="judge a host as it is now", epilog=EPILOG)
    host.add_argument("host", metavar="HOST", help="a host, or a file of `gpuroom facts`")
    _judging(host)
    _forms(host)
    add_reading(host)
    host.add_argument(
        "then",
        nargs="?",
        default="judge",
        choices=(
            "judge",
            "apply",
            "rollback",
            "history",
            "report",
            "files",
            "measure",
            "experiment",
        ),
        help="judge (the default), apply fixes, roll a snapshot back, list the history, a "
        "document for colleagues, what gpuroom made lasting, measure, or try a fix and "
        "measure before and after",
    )
    host.add_argument(
        "snapshot",
        nargs="?",
        metavar="WHAT",
        help="rollback: the snapshot, the newest when left out; experiment: the check",
    )
    host.add_argument(
        "--only",
        nargs="+",
        metavar="ID",
        help="apply: the findings to put right; measure, experiment: what to measure",
    )
    form = host.add_mutually_exclusive_group()
    form.add_argument(
        "--form",
        choices=("runtime", "persistent", "both"),
        default="runtime",
        help="apply: what acts at once (the default), what lasts, or both",
    )
    form.add_argument("--persistent", action="store_true", help="apply: the same as --form both")
    host.add_argument("--remove", nargs="+", metavar="ID", help="files: settings or paths to go")
    host.add_argument("--dry-run", action="store_true", help="apply: show what would be done")
    host.add_argument("--yes", action="store_true", help="do it without asking")
    host.add_argument(
        "--host-name", default="", metavar="NAME", help="must be given where production serves"
    )
    host.add_argument("--path", default="", help="measure: a model there, whose file is read")
    host.add_argument("--python", default="", help="measure: the python there that has torch")
    host.add_argument("--history", action="store_true", help="measure: list earlier ones")
    host.add_argument(
        "--compare",
        nargs=2,
        type=int,
        metavar=("A", "B"),
        help="measure: two of the history, figure by figure",
    )
    host.add_argument(
        "--seconds", type=float, default=12.0, help="measure: of the load for links (default 12)"
    )
    host.add_argument("--runs", type=int, default=3, help="experiment: runs on each side")
    host.add_argument("--keep", action="store_true", help="experiment: leave the fix in place")
    host.add_argument("--force", action="store_true", help="rollback: also what others changed")
    read = commands.add_parser(
        "read",
        help="judge saved facts or printed output (nvidia-smi, lspci, dmesg, lscpu, ...)",
        epilog=EPILOG,
    )
    read.add_argument("files", nargs="+", metavar="FILE", help="files of one host; - is stdin")
    _judging(read)
    _forms(read)
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
    reboot = commands.add_parser("reboot", help="what a reboot will change, before it happens")
    reboot.add_argument("files", nargs="+", metavar="FILE", help="files of one host; - is stdin")
    reboot.add_argument("--json", action="store_true", help="print JSON")
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


def _judging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=NAMES, default="default", help="thresholds to use")
    parser.add_argument("--checks", type=Path, metavar="TOML", help="your checks and waivers")
    parser.add_argument("--all", action="store_true", help="also checks of which nothing was read")


def _forms(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list of findings")
    form.add_argument("--markdown", action="store_true", help="print a document")
    form.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0")
    form.add_argument("--facts", action="store_true", help="print the facts that were read")


def run(arguments: argparse.Namespace) -> int:
    """Carry out one sub-command."""
    actions = {
        HOST: _host,
        "read": _read,
        "audit": _audit,
        "diff": _diff,
        "reboot": _reboot,
        "explain": _explain,
        "list": _list,
    }
    return actions[arguments.action](arguments)


def _read(arguments: argparse.Namespace) -> int:
    from backends.tuning.facts import encode

    document = load_files(arguments.files)
    if arguments.facts:
        _write(encode(document))
        return 0
    return show(arguments, evaluate(document, _options(arguments)), document)


def _host(arguments: argparse.Namespace) -> int:
    if arguments.then == "judge" and Path(arguments.host).is_file():
        arguments.files = [arguments.host]
        return _read(arguments)
    from tui.cli import tuning_live

    return tuning_live.run(arguments, _options(arguments))


def _audit(arguments: argparse.Namespace) -> int:
    from tui.cli import tuning_audit

    return tuning_audit.run(arguments, _options(arguments))


def show(arguments: argparse.Namespace, findings: list[Finding], document: FactsDocument) -> int:
    """Print findings in the form that was asked for; gives the exit status."""
    if arguments.facts:
        from backends.tuning.facts import encode

        _write(encode(document))
        return 0
    if arguments.json:
        _write(report.to_json(findings))
    elif arguments.markdown:
        _write(report.to_markdown(findings, document.host or "Tuning").encode())
    elif arguments.sarif:
        _write(report.to_sarif(findings, document.host))
    else:
        _write(report.to_text(findings, every=arguments.all).encode())
    return report.exit_code(findings)


def _diff(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    first, second = _sides(arguments)
    found: tuple[list[Finding], list[Finding]] = (
        evaluate(first, options),
        evaluate(second, options),
    )
    result = compare(first, second, *found)
    text = result.to_text(arguments.a, arguments.b)
    _write(result.to_json() if arguments.json else text.encode())
    return 1 if result.differs else 0


def _sides(arguments: argparse.Namespace) -> tuple[FactsDocument, FactsDocument]:
    """What is compared; hosts that are to be read now are read at the same time."""
    from backends.tuning.sides import is_stored, stored

    found: dict[str, FactsDocument] = {}
    live: list[str] = []
    for name in (arguments.a, arguments.b):
        if name == "-" or Path(name).is_file():
            found[name] = load_files([name])
        elif is_stored(name):
            found[name] = stored(name).document
        else:
            live.append(name)
    if live:
        from tui.cli.tuning_live import gather_hosts

        found |= gather_hosts(arguments, live)
    return found[arguments.a], found[arguments.b]


def _reboot(arguments: argparse.Namespace) -> int:
    changes = preview(load_files(arguments.files))
    if arguments.json:
        import msgspec

        _write(msgspec.json.format(msgspec.json.encode(changes), indent=2) + b"\n")
        return 0
    lines = []
    for change in changes:
        may = "" if change.certain else " (may)"
        note = f"  [{change.note}]" if change.note else ""
        lines.append(f"{change.what}: {change.now} -> {change.after}{may}{note}")
    _write(("\n".join(lines) or "nothing that these facts know of").encode() + b"\n")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    entry = entries().get(arguments.id)
    if entry is None:
        import difflib

        near = difflib.get_close_matches(arguments.id, entries(), n=3)
        raise UsageError(
            f"no check {arguments.id!r}",
            hint=f"near: {', '.join(near)}" if near else "`gpuroom tuning list` names all",
        )
    if arguments.json:
        import msgspec

        _write(msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n")
    else:
        _write(explanation(entry).encode())
    return 0


def explanation(entry: Entry) -> str:
    """A check in words."""
    rows = [
        ("reads", entry.reads),
        ("verdict", entry.expects),
        ("not applicable", entry.not_applicable),
        ("why", entry.why),
        ("fix", entry.fix),
        ("to last", entry.persist),
        ("undo", entry.undo),
        ("reboot", entry.reboot),
        ("risk", entry.risk),
        ("needs", entry.needs),
        ("where", entry.where),
        ("severity", entry.severity.value),
    ]
    lines = [f"{entry.id}: {entry.title}", ""]
    lines += [f"{name + ':':<16}{text}" for name, text in rows if text]
    lines += [f"{'source:':<16}{url}" for url in entry.sources]
    return "\n".join(lines) + "\n"


def _list(arguments: argparse.Namespace) -> int:
    import msgspec

    if arguments.thresholds:
        thresholds = load(arguments.profile).thresholds
        if arguments.json:
            _write(msgspec.json.format(msgspec.json.encode(thresholds), indent=2) + b"\n")
        else:
            _write("".join(f"{k:<34}{v:g}\n" for k, v in thresholds.items()).encode())
        return 0
    if arguments.json:
        rows = [
            {"id": e.id, "title": e.title, "group": e.group, "severity": e.severity.value}
            for e in entries().values()
        ]
        _write(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
        return 0
    lines = []
    for group, heading in GROUPS.items():
        lines.append(heading)
        lines += [
            f"  {e.id:<30}{e.severity.value:<10}{e.title}"
            for e in entries().values()
            if e.group == group
        ]
    _write(("\n".join(lines) + "\n").encode())
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    custom = Custom()
    if arguments.checks is not None:
        try:
            text = arguments.checks.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {arguments.checks}", str(error)) from error
        custom = parse(text, arguments.checks)
    return Options(
        profile=load(arguments.profile),
        only_touched=not arguments.all,
        checks=custom.checks,
        waivers=custom.waivers,
        expected=custom.expected,
        use=custom.use,
        today=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def load_files(names: list[str]) -> FactsDocument:
    """Facts of files that hold saved facts or printed output, as one host.

    Raises:
        UsageError: A file cannot be read, or is too large.
    """
    texts: list[tuple[str, str]] = []
    saved: list[FactsDocument] = []
    for name in names:
        data = _bytes(name)
        text = data.decode("utf-8", "replace")
        if text.lstrip()[:1] == "{" and '"facts"' in text[:65536]:
            saved.append(decode(data))
        else:
            texts.append((name, text))
    return merge([*saved, readers.read_texts(texts)])


def _bytes(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {name}", error.strerror or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{name} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
