"""`gpuroom tuning`: judge what was read on a host, or what a colleague pasted."""

from __future__ import annotations

import argparse
import codecs
import sys
from pathlib import Path

from backends import config as configuration
from backends.config import Config
from backends.errors import UsageError
from backends.tuning import readers, report
from backends.tuning.catalogue import GROUPS, Entry, entries
from backends.tuning.compare import compare
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import FactsDocument, decode, merge
from backends.tuning.findings import Finding
from backends.tuning.profiles import load
from backends.tuning.reboot import Change, preview
from backends.tuning.settings import options_for
from tui.cli.tuning_arguments import HOST, add_arguments

MAX_FILE_BYTES = 64 << 20
__all__ = ["add_arguments", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Carry out one sub-command."""
    actions = {
        HOST: _host,
        "read": _read,
        "audit": _audit,
        "diff": _diff,
        "reboot": _reboot,
        "waivers": _waivers,
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
    config = configuration.load(arguments.config)
    options = options_of(config, document.host, arguments)
    return show(arguments, evaluate(document, options), document)


def _host(arguments: argparse.Namespace) -> int:
    if Path(arguments.host).is_file() and arguments.then in ("judge", "reboot-preview"):
        arguments.files = [arguments.host]
        return _read(arguments) if arguments.then == "judge" else _reboot(arguments)
    from tui.cli import tuning_live, tuning_waivers

    if arguments.then in ("waive", "unwaive"):
        return tuning_waivers.change(arguments)
    config = configuration.load(arguments.config)
    return tuning_live.run(config, arguments, options_of(config, arguments.host, arguments))


def _audit(arguments: argparse.Namespace) -> int:
    from tui.cli import tuning_audit

    return tuning_audit.run(arguments)


def _waivers(arguments: argparse.Namespace) -> int:
    from tui.cli import tuning_waivers

    return tuning_waivers.show(arguments)


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
    first, second = _sides(arguments)
    config = configuration.load(arguments.config)
    found: tuple[list[Finding], list[Finding]] = (
        evaluate(first, options_of(config, first.host, arguments)),
        evaluate(second, options_of(config, second.host, arguments)),
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
    return show_reboot(preview(load_files(arguments.files)), as_json=arguments.json)


def show_reboot(changes: list[Change], *, as_json: bool) -> int:
    """Print what a reboot will change; gives the exit status."""
    if as_json:
        import msgspec

        _write(msgspec.json.format(msgspec.json.encode(changes), indent=2) + b"\n")
        return 0
    lines = [change.line for change in changes] or ["nothing that these facts know of"]
    _write("\n".join(lines).encode() + b"\n")
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
        ("should be", entry.wants),
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


def options_of(config: Config, host: str, arguments: argparse.Namespace) -> Options:
    """How a host is judged: as configured, with what the command line says over it."""
    (found,) = configuration.resolve_hosts(config, [host or "a file"])
    return options_for(
        config,
        found,
        profile=arguments.profile,
        files=[] if arguments.checks is None else [arguments.checks],
        only_touched=not arguments.all,
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
        text = _text(data)
        if text.lstrip()[:1] == "{" and '"facts"' in text[:65536]:
            saved.append(decode(data))
        else:
            texts.append((name, text))
    return merge([*saved, readers.read_texts(texts)])


def _text(data: bytes) -> str:
    """Text as PowerShell and editors of Windows store it too: UTF-16, or with a mark before."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


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
