"""What stands before the message of a log line: stamp, level, process, rank.

In the forms that the engines print, and docker, compose, the journal, srun, kubectl and structured
logging around them.
"""

from __future__ import annotations

import contextlib
import json
import re
from enum import StrEnum
from typing import Final

import msgspec

from backends.text import clean

MAX_LINE_CHARS: Final = 32_768
_MAX_PREFIXES: Final = 6


class Level(StrEnum):
    """Severity as the line itself states it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Prefix(msgspec.Struct, gc=False):
    """What stood before a message."""

    message: str
    level: Level | None = None
    stamp: str | None = None
    source: str | None = None
    rank: int | None = None


_LEVELS: Final = {
    "TRACE": Level.DEBUG, "DEBUG": Level.DEBUG, "D": Level.DEBUG, "V": Level.DEBUG,
    "INFO": Level.INFO, "I": Level.INFO, "NOTICE": Level.INFO,
    "WARN": Level.WARNING, "WARNING": Level.WARNING, "W": Level.WARNING,
    "ERROR": Level.ERROR, "E": Level.ERROR, "ERR": Level.ERROR,
    "CRITICAL": Level.CRITICAL, "FATAL": Level.CRITICAL, "F": Level.CRITICAL,
}  # fmt: skip
_WORD: Final = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_DATE: Final = r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"


def _forms(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


_PAREN: Final = _forms(
    # vLLM: (APIServer pid=1) (EngineCore_DP0 pid=7) (VllmWorker rank=1 pid=9) (Worker_TP0 pid=5);
    # Ray: (RayWorkerWrapper pid=9, ip=10.0.0.2)
    r"\((?P<source>[A-Za-z_][\w:.()]{0,60}(?: rank=\d+)? pid=\d+(?:, ip=[\w.:]+)?)\)(?: |$)",
)
_POD: Final = (
    # A deployment's pod, a job's or a daemon set's: its random letters hold no vowel.
    r"[a-z][a-z0-9.-]{0,200}(?:-[bcdfghjklmnpqrstvwxz2456789]{6,10})?"
    r"-[bcdfghjklmnpqrstvwxz2456789]{5}"
)
_CONTAINER: Final = r"[a-z][a-z0-9-]{0,62}"
_WRITER: Final = r"[\w.-]+ (?P<source>kernel|[\w@.\-:/]+\[\d+\]): ?"
"""Host and program, in the journal's forms and syslog's."""
_BRACKET: Final = _forms(
    # gunicorn: [2025-09-01 08:00:00 +0000] [7] [INFO]
    rf"\[(?P<stamp>{_DATE} [+-]\d{{4}})\] \[\d+\] \[{_WORD}\] ?",
    # sglang: [2026-06-11 05:11:58 TP1], [2025-05-07 14:42:42 DP0 TP0], [2024-10-22 06:31:36]
    rf"\[(?P<stamp>{_DATE})(?: (?P<source>[A-Z]{{2,4}}\d+(?: [A-Z]{{2,4}}\d+)*))?\] ?",
    # TensorRT-LLM: [12/07/2025-00:20:15] [TRT-LLM] [RANK 1] [E]
    r"\[(?P<stamp>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] ?",
    r"\[(?P<source>TRT-LLM|TensorRT-LLM)\](?: \[(?P<rank>RANK \d+)\])?"
    r" ?(?:\[(?P<level>TRACE|DEBUG|INFO|WARNING|ERROR|FATAL|[VDIWEF])\])? ?"
    r"(?:\[[a-z_]{2,12} *\] )?",
    # torch: [rank2]:[E1001 16:06:04.537131842 ProcessGroupNCCL.cpp:607] [Rank 2]
    r"\[(?P<source>rank\d+)\]:? ?",
    r"\[(?P<level>[IWEF])(?P<stamp>\d{3,4} \d\d:\d\d:\d\d\.\d+) [\w./-]+:\d+\] ?",
    r"\[(?P<level>[IWEF]) [\w./-]+:\d+\] ?",
    r"\[(?P<source>Rank \d+|PG [^\]]{1,60})\] ?",
    # SGLang of 2024: [gpu_id=0]
    r"\[(?P<source>gpu(?:_id)?=\d+)\] ?",
    r"\[(?P<source>[\w ()./-]{1,40})\] (?P<stamp>" + _DATE + r") - " + _WORD + r" - ",
    r"\[(?P<level>TRACE|DEBUG|INFO|WARNING|ERROR|FATAL)\](?: |$)",
    # vLLM-Omni: [Stage-0]
    r"\[(?P<source>[A-Z]\w{1,20}-\d+)\] (?=[A-Z])",
    # llama.cpp as a router
    r"\[(?P<source>\d{4,5})\] (?=\S)",
)
_BRACKET_COLLECTED: Final = _forms(
    # short-monotonic: [ 1234.567890] host vllm[123]:
    r"\[ *(?P<stamp>\d{1,9}\.\d{6})\] " + _WRITER,
    # kubectl --prefix: [pod/vllm-0/vllm]
    r"\[(?P<source>pod/[\w./-]{1,120})\] ?",
    # kubetail: [vllm-7d9f8b6c5-x2x4z vllm], [vllm-0]
    rf"\[(?P<source>(?:{_POD}|[a-z][a-z0-9-]*-\d{{1,3}})(?: {_CONTAINER})?)\] ?",
    # mpirun --tag-output: [1,0]<stderr>:
    r"\[(?P<source>\d+,\d+)\]<std(?:out|err)>: ?",
)
_DOCKER: Final = _forms(
    # docker logs -t: nine digits, and what the program wrote is whole behind them
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)) (?!std(?:out|err) [FP] )",
)
_DIGIT: Final = _forms(
    # TGI: 2025-04-14T15:51:31.134585Z  INFO shard-manager: text_generation_launcher: ...
    rf"(?P<stamp>{_DATE})\s+{_WORD}\s+(?:[\w\-]+(?:\{{[^}}]{{0,200}}\}})?: )?"
    r"(?P<source>text_generation[\w:\-]*|[\w\-]+(?:::[\w\-]+)+):"
    r"(?: (?:[\w/.-]+\.rs:\d+: )?|$)",
    # loguru: 2025-11-28 15:28:09.929 | INFO     | app:load:12 - ...
    rf"(?P<stamp>{_DATE}) \| {_WORD} {{0,8}}\| (?:[\w.<>]+:[\w.<>]+:\d+ - )?",
    # logging's usual form: 2025-11-28 15:28:09,929 - INFO - autotuner.py:256 - ...
    rf"(?P<stamp>{_DATE}) - (?:[\w.]+ - )?{_WORD} - (?:[\w./]+:\d+ - )?",
    rf"(?P<stamp>{_DATE}):?\s+\[?{_WORD}(?:\]?:\s{{1,10}}|\]?\s)"
    r"(?!\d\d-\d\d \d\d:)(?:[\w./]+:\d+\] ?)?",
    # Go: 2025/02/02 09:23:09 routes.go:1187: INFO
    rf"(?P<stamp>{_DATE}) [\w./-]+:\d+: {_WORD} ",
    # TensorFlow: 2024-10-22 06:31:31.858362: E external/...cc:485]
    rf"(?P<stamp>{_DATE}): (?P<level>[IWEF]) ",
    # llama.cpp with prefixes: 0.00.160.925 I
    r"(?P<stamp>\d+\.\d\d\.\d{3}\.\d{3}) (?P<level>[DIWEF]) ",
)
_DIGIT_COLLECTED: Final = _forms(
    # the journal and rsyslog with ISO stamps
    rf"(?P<stamp>{_DATE}) [\w.-]+ (?P<source>kernel|[\w@.\-:/]+\[\d+\]): ?",
    # docker logs -t, kubectl logs --timestamps, and the files below /var/log/pods
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,9}(?:Z|[+-]\d\d:\d\d)) "
    r"(?:std(?:out|err) [FP] )?",
    # foreman, honcho: 09:00:00 server.1  | ...
    r"(?P<stamp>\d\d:\d\d:\d\d) (?P<source>[\w.-]{1,40}) +\| ?",
    # short-unix
    r"(?P<stamp>\d{9,11}\.\d{6}) " + _WRITER,
    # pm2: 0|vllm  |
    r"(?P<source>\d{1,4}\|[\w.-]{1,60}) +\| ?",
    # a collector's own stamp before everything
    rf"(?P<stamp>{_DATE}) {{1,8}}(?=\S)",
    # srun --label
    r"(?P<source>\d{1,4}): (?=\S)",
)
_LEVELLED: Final = _forms(
    # vLLM: INFO 08-02 11:06:19 [model.py:619] ..., older: ... api_server.py:840] ...
    rf"{_WORD} (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?:\[[\w./-]*:\d+\[?\]|[\w./-]+:\d+\])(?: |$)",
    # uvicorn: INFO:     Started server process [1]
    rf"{_WORD}:\s{{2,10}}",
    rf"{_WORD}:(?P<source>[\w.]+): ?",
    # torch: W0101 21:29:52.952000 1214979 site-packages/torch/_inductor/utils.py:1558]
    r"(?P<level>[IWEF])(?P<stamp>\d{4} \d\d:\d\d:\d\d\.\d+) +\d+ [^\]\s]{1,200}\] ?",
    # llama.cpp of 2024: INFO [                    main] model loaded | tid="..."
    rf"{_WORD} \[\s*(?P<source>[\w~:]+)\] ",
)
_JOURNAL: Final = _forms(
    # Dec 02 09:00:00 host vllm[123]:
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) " + _WRITER,
    # short-full: Wed 2026-12-02 09:00:00 UTC host vllm[123]:
    rf"[A-Z][a-z]{{2}} (?P<stamp>{_DATE}) [A-Z+\d:-]{{1,6}} " + _WRITER,
    # ts of moreutils
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?=\S)",
)
_SYSLOG: Final = _forms(
    # RFC 5424: <14>1 2026-12-02T09:00:00.000Z host vllm 77 - - ...
    rf"<\d{{1,3}}>1 (?P<stamp>{_DATE}) \S{{1,255}} (?P<source>\S{{1,48}}) \S{{1,128}} \S{{1,32}} "
    r"(?:-|(?:\[[^\]]{0,400}\])+) ?(?:\ufeff)?",
    # RFC 3164: its priority
    r"<\d{1,3}>(?=[A-Z])",
)
_COMPOSE: Final = _forms(
    # vllm-1  | ...
    r"(?P<source>[a-z0-9][\w.-]{0,60}) {1,20}\| ?",
    # stern: pod and container; the pods of a stateful set are only numbered
    rf"(?P<source>{_POD} {_CONTAINER}) ",
    rf"(?P<source>[a-z][a-z0-9-]*-\d{{1,3}} {_CONTAINER}) "
    r"(?=[\[({A-Z\d ^._]|[a-z]\w*(?:[:=(]|\s+\w*:))",
)
_OLLAMA: Final = _forms(
    # time=2025-... level=INFO source=server.go:1 msg="..."
    r"time=\"?(?P<stamp>[\dT:.+\-Z]+)\"? level=" + _WORD + r" (?:source=[\w./]+:\d+ )?",
)
_PASTED: Final = re.compile(
    r"[ \t]{0,12}(?:\d{1,7}(?:\t| {2,4})|[ \t])"
    r"(?=[\[(<\d]|TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|CRITICAL|FATAL|[IWEF]\d{4} |"
    r"[A-Z][a-z]{2} [ \d]\d )"
)
"""How a paste is numbered or indented: off where a stamp or a level follows."""
_PASTES: Final = frozenset(" \t>")
_SAID: Final = re.compile(rf"{_WORD}: (?=\S)")
"""A level that is part of the message: `ERROR: Request failed`."""
_RANK: Final = re.compile(r"(?:TP|[Rr]ank[ =]?|RANK |Worker_TP|DP\d+ TP)(\d+)")
_STARTS: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    "(": _PAREN,
    "[": _BRACKET + _BRACKET_COLLECTED,
    **dict.fromkeys("0123456789", _DOCKER + _DIGIT + _DIGIT_COLLECTED),
    **dict.fromkeys("abcdefghijklmnopqrsuvwxyz", _COMPOSE),
    "t": _OLLAMA + _COMPOSE,
    **dict.fromkeys("JMASO", _JOURNAL),
    **dict.fromkeys("FNDTW", _LEVELLED + _JOURNAL),
    **dict.fromkeys("IEC", _LEVELLED),
    "<": _SYSLOG,
}
_STARTS_OWN: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    "[": _BRACKET,
    **dict.fromkeys("0123456789", _DIGIT),
}
_COLLECTED: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    "[": _BRACKET_COLLECTED,
    **dict.fromkeys("0123456789", _DOCKER + _DIGIT_COLLECTED),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", _COMPOSE),
    **dict.fromkeys("JFMASONDTW", _JOURNAL),
    "<": _SYSLOG,
}
"""What collectors put before a line, with names that people gave to pods, units and containers."""


def without_collector(text: str) -> tuple[str, str]:
    """A line as its program wrote it, and the names that a collector put before it."""
    prefix = Prefix(text)
    if text.startswith('{"') and text.endswith("}"):
        _unwrap_json(prefix)
    written, names = _unquoted(prefix.message), [prefix.source or ""]
    for _ in range(_MAX_PREFIXES):
        own = any(form.match(written) for form in _STARTS_OWN.get(written[:1], ()))
        if own and _DOCKER[0].match(written) is None:
            break
        forms = _COLLECTED.get(written[:1], ())
        found = next((hit for form in forms if (hit := form.match(written)) is not None), None)
        if found is None:
            break
        names.append(found.groupdict().get("source") or "")
        written = written[found.end() :]
    return written, " ".join(filter(None, names))


def split_prefix(text: str) -> Prefix:
    """Take stamp, level, process and rank off the front of a line, as many as there are."""
    prefix = Prefix(text)
    if text.startswith('{"') and text.endswith("}"):
        _unwrap_json(prefix)
    message = prefix.message
    if message[:1] in _PASTES:
        message = _unquoted(message)
    for _ in range(_MAX_PREFIXES):
        forms = _STARTS.get(message[:1])
        if forms is None:
            break
        for form in forms:
            found = form.match(message)
            if found is not None:
                break
        else:
            break
        message = message[found.end() :]
        _note(prefix, found.groupdict())
    prefix.message = message
    if prefix.level is None:
        said = _SAID.match(message)
        if said is not None:
            prefix.level = _LEVELS[said["level"]]
    return prefix


def _unquoted(text: str) -> str:
    """A line of a paste as it was before it was quoted, numbered or indented."""
    if text.startswith("> "):
        return text[2:]
    pasted = _PASTED.match(text)
    if pasted is not None:
        rest = text[pasted.end() :]
        if any(form.match(rest) for form in _STARTS.get(rest[:1], ())):
            return rest
    return text


def _note(prefix: Prefix, parts: dict[str, str | None]) -> None:
    level, stamp, source = parts.get("level"), parts.get("stamp"), parts.get("source")
    if level:
        prefix.level = _LEVELS[level]
    if stamp:
        # An outer stamp is docker's or the journal's, the inner one the engine's own.
        prefix.stamp = stamp
    rank_text = parts.get("rank") or source
    if rank_text:
        found = _RANK.search(rank_text)
        if found is not None:
            prefix.rank = int(found[1][:6])
    if source:
        prefix.source = source


_JSON_MESSAGE: Final = (
    "message", "msg", "log", "event", "MESSAGE", "textPayload", "line", "Message", "body", "text",
)  # fmt: skip
"""As loggers call it, docker's files, the journal (`-o json`), Google's logs and Loki."""
_JSON_LEVEL: Final = ("level", "levelname", "severity", "lvl")
_JSON_STAMP: Final = ("timestamp", "time", "ts", "asctime")
_JSON_SOURCE: Final = ("target", "logger", "name", "function")


def _unwrap_json(prefix: Prefix) -> None:
    """A line that is one JSON object (docker's files, TGI, structured logging): take it apart."""
    try:
        record = json.loads(prefix.message)
    except (ValueError, RecursionError):
        return
    if not isinstance(record, dict):
        return
    fields = record.get("fields")
    inner = {**fields, **record} if isinstance(fields, dict) else record
    message = _first_text(inner, _JSON_MESSAGE)
    if message is None:
        return
    visible = message.rstrip("\r\n").rpartition("\r")[2].replace("\n", " | ")
    prefix.message = clean(visible, MAX_LINE_CHARS)
    level = _first_text(inner, _JSON_LEVEL)
    if level is not None:
        prefix.level = _LEVELS.get(level.upper())
    stamp, source = _first_text(inner, _JSON_STAMP), _first_text(inner, _JSON_SOURCE)
    if stamp is not None:
        prefix.stamp = clean(stamp, 40)
    if source is not None:
        prefix.source = clean(source, 80)


def _first_text(record: dict[str, object], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value:
            return value
        if name == "MESSAGE" and isinstance(value, list):  # the journal's form of what has colours
            with contextlib.suppress(ValueError, TypeError):
                return bytes(value[:MAX_LINE_CHARS]).decode("utf-8", "replace")
    return None
