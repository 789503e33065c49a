"""How the agent gets to a host: a constant stub in the command, everything else over its input.

The stub reads a line with a byte count, then exactly that many bytes, inflates and runs them, and
standard input stays open. It holds single quotes nowhere and no `$` or `!`, so that quoted with
single quotes it means the same in sh, bash, zsh, fish and tcsh. The payload carries the modules of
`backends.agent.remote` and `pynvml.py`, whose comments and docstrings are left out on the way
(our own keep their blank lines, so that the line numbers of tracebacks are right).

`pynvml.py` is nvidia-ml-py, (c) NVIDIA Corporation, under the BSD-3-Clause licence: its notice
travels with it, as that licence asks.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import json
import re
import tokenize
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backends.errors import AgentError

MARKER: Final = b"@@gpuroom-agent-1@@"
"""What comes before the first message, on a line of its own; all before it is noise."""
PACKAGE: Final = "gpuroom_agent"
"""Name of the agent's package on the host."""
CORE: Final = (
    "outbox", "hands", "rpc", "worker", "readings", "gpu", "driver", "host", "model_names",
    "processes", "kernel_log", "sampler", "telemetry", "main",
)  # fmt: skip
"""Modules that travel at once; any other is sent when a method of it is first asked for."""
STUB: Final = (
    "import sys;sys.path=[p for p in sys.path if p];import zlib;r=sys.stdin.buffer;"
    "n=int(r.readline());exec(zlib.decompress(r.read(n)))"
)
MIN_PYTHON: Final = (3, 8)
REMOTE: Final = Path(__file__).parent / "remote"

# Must run on any Python 3, and say so politely on one that is too old. It runs in the stub's
# namespace, where `r` is standard input: modules and settings follow as counted pieces.
_BOOTSTRAP: Final = """
import sys, json
def _start(marker, package, min_python):
    out = sys.stdout
    out.write("\\n" + marker + "\\n")
    out.flush()
    if sys.version_info[:2] < min_python:
        out.write(json.dumps({"jsonrpc": "2.0", "method": "refused", "params": {
            "reason": "python-too-old", "python": "%d.%d.%d" % sys.version_info[:3],
            "executable": sys.executable}}) + "\\n")
        out.flush()
        sys.exit(0)
    def piece():
        return json.loads(zlib.decompress(r.read(int(r.readline()))).decode("ascii"))
    modules, settings = piece(), piece()
    modules["gpuroom_settings"] = "import json\\nSETTINGS = json.loads(%r)\\n" % (
        json.dumps(settings),)
    import importlib, importlib.machinery
    class Source:  # no importlib.abc: it drags in a tenth of the time to the first word
        def find_spec(self, name, path=None, target=None):
            if name in modules:
                return importlib.machinery.ModuleSpec(
                    name, self, origin="<gpuroom>/%s.py" % name.replace(".", "/"),
                    is_package=self.is_package(name))
        def is_package(self, name):
            return name == package
        def get_source(self, name):
            return modules[name]
        def get_code(self, name):
            return compile(modules[name], "<gpuroom>/%s.py" % name.replace(".", "/"), "exec",
                           dont_inherit=True)
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            exec(self.get_code(module.__name__), module.__dict__)
    sys.meta_path.insert(0, Source())
    def add_source(name, text):
        modules[package + "." + name] = text
    importlib.import_module(package + ".main").run(settings, add_source)
"""


def agent_argv(python: str) -> list[str]:
    """The argument vector that starts the agent's stub with that python."""
    return [python, "-u", "-c", STUB]


def build_payload(
    pynvml_source: str | None = None, settings: Mapping[str, object] | None = None
) -> bytes:
    """What is to be written to the stub's standard input, byte count included.

    Args:
        pynvml_source: Text of a module to be `pynvml` on the host; None for the real one.
        settings: What the agent is to know from the start, as JSON: `interval_s`, ... The module
            `gpuroom_settings` on the host has it as `SETTINGS`, for whoever needs it.

    Raises:
        AgentError: The `pynvml` module is not installed here.
    """
    chosen = json.dumps(dict(settings or {}))
    return _program() + _modules(pynvml_source) + _counted(chosen)


@functools.cache
def _program() -> bytes:
    start = f"_start({MARKER.decode()!r}, {PACKAGE!r}, {MIN_PYTHON!r})"
    return _counted(f"{_BOOTSTRAP}\n{start}\n")


@functools.lru_cache(maxsize=4)
def _modules(pynvml_source: str | None) -> bytes:
    """The part that is the same for every host: made once."""
    modules = dict(_core_sources())
    modules["pynvml"] = _pynvml_source() if pynvml_source is None else strip(pynvml_source)
    return _counted(json.dumps(modules))


def _counted(text: str) -> bytes:
    packed = zlib.compress(text.encode("ascii"), 9)
    return b"%d\n" % len(packed) + packed


@functools.cache
def pack_area(name: str) -> tuple[tuple[str, str], ...]:
    """An area of the agent that does not travel at the start, for its `load` requests.

    Returns:
        Name and packed source of each module, those that others import first, the area's own last;
        made once for all hosts.

    Raises:
        AgentError: There is no such module.
    """
    packed: dict[str, str] = {}

    def add(module: str) -> None:
        path = REMOTE / f"{module}.py"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or not path.is_file():
            raise AgentError(f"the agent has no module {module!r}")
        source = path.read_text(encoding="utf-8")
        for needed in _SIBLINGS.findall(source):
            for other in re.findall(r"\w+", needed):
                if other not in CORE and other not in packed:
                    add(other)
        deflated = zlib.compress(strip(source).encode("utf-8"), 9)
        packed[module] = base64.b64encode(deflated).decode("ascii")

    add(name)
    return tuple(packed.items())


_SIBLINGS: Final = re.compile(r"(?m)^from \. import (\([\w,\s]+\)|[\w, ]+$)")
"""How a module of the agent names others: `from . import members, ports`."""


@functools.cache
def _core_sources() -> dict[str, str]:
    sources = {PACKAGE: ""}
    for name in CORE:
        sources[f"{PACKAGE}.{name}"] = strip((REMOTE / f"{name}.py").read_text(encoding="utf-8"))
    return sources


@functools.cache
def _pynvml_source() -> str:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise AgentError(
            "pynvml is not installed here", hint="install the package nvidia-ml-py beside gpuroom"
        )
    source = Path(spec.origin).read_text(encoding="utf-8")
    return f"{_licence(source)}{only_needed(strip_quickly(source), _agent_words())}"


@functools.cache
def _agent_words() -> frozenset[str]:
    """Every name that any module of the agent says, also those in strings."""
    texts = (path.read_text(encoding="utf-8") for path in REMOTE.glob("*.py"))
    return frozenset(word for text in texts for word in _WORD.findall(text))


def only_needed(source: str, wanted: frozenset[str]) -> str:
    """`source` without the functions, classes and constants that nothing reaches from `wanted`.

    Most of `pynvml.py` is never called here, and each agent would compile all of it. Error codes
    are always kept: the module makes its exceptions from them.
    """
    pieces = _TOP_LEVEL.findall(source)
    by_name: dict[str, list[int]] = {}
    reached: set[int] = set()
    for position, piece in enumerate(pieces):
        names = _DEFINED.match(piece)
        name = "" if names is None else names["made"] or names["set"]
        if not name or name.startswith(("_", "NVML_ERROR_")):
            reached.add(position)
        else:
            by_name.setdefault(name, []).append(position)
    words = set(wanted).union(*(_WORD.findall(pieces[position]) for position in reached))
    while words:
        new = {p for word in words for p in by_name.pop(word, ())} - reached
        reached |= new
        words = set().union(*(_WORD.findall(pieces[position]) for position in new))
    return "".join(piece for position, piece in enumerate(pieces) if position in reached)


_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_TOP_LEVEL: Final = re.compile(r"(?m)^(?:@.*\n)*[A-Za-z_].*\n(?:(?![A-Za-z_@]).*\n)*")
_DEFINED: Final = re.compile(r"(?:@.*\n)*(?:(?:def|class) (?P<made>\w+)|(?P<set>\w+)=(?!=))")


def _licence(source: str) -> str:
    """The comment that a file begins with, on one line."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.strip("# ").rstrip())
    words = " ".join(" ".join(lines).split())
    return f"# {words}\n" if words else ""


def strip(source: str) -> str:
    """`source` without comments, docstrings and needless space; every statement keeps its line.

    A docstring becomes `0`, since it may be all that a body has; the module's own becomes nothing,
    since imports from `__future__` must come first.
    """
    lines = [""] * (source.count("\n") + 2)
    indent = brackets = 0
    begun = False
    fresh = True  # at the start of a logical line
    last: tokenize.TokenInfo | None = None
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL)
    ]
    for position, token in enumerate(tokens):
        kind, text = token.type, token.string
        if kind == tokenize.INDENT:
            indent += 1
        elif kind == tokenize.DEDENT:
            indent -= 1
        elif kind == tokenize.NEWLINE:
            fresh = True
        elif kind != tokenize.ENDMARKER:
            row = token.start[0]
            if fresh and kind == tokenize.STRING and tokens[position + 1].type == tokenize.NEWLINE:
                text = "0" if begun else ""
            if fresh:
                lines[row] += " " * indent
            elif last is not None and last.end[0] != row:
                lines[last.end[0]] += "" if brackets else "\\"
            elif last is not None and _needs_space(last, token, source):
                lines[row] += " "
            first, *rest = text.split("\n")
            lines[row] += first
            for offset, piece in enumerate(rest, 1):
                lines[row + offset] += piece
            brackets += text in _OPEN
            brackets -= text in _CLOSE
            fresh, begun, last = False, True, token
    return "\n".join(lines[1:]).rstrip() + "\n"


def strip_quickly(source: str) -> str:
    """`strip` for `pynvml.py`, of 8,000 lines: by patterns, ten times faster, lines not kept.

    It is made for how that file is written (docstrings on lines of their own, no number sign after
    a quote); that nothing else is lost is tested on the version that this project is pinned to.
    """
    source = _DOCSTRING.sub(r"\g<1>0", source)
    source = _COMMENT.sub("", source)
    return re.sub(r"\n{2,}", "\n", _LINE.sub(_dense, source))


def _dense(match: re.Match[str]) -> str:
    line = match[0]
    body = line.lstrip(" ")
    if '"' not in line and "'" not in line:
        body = _SPACED.sub(r"\1", body)
    return " " * ((len(line) - len(match[0].lstrip(" ")) + 3) // 4) + body


_DOCSTRING: Final = re.compile(r"(?m)^( *)[rR]?(\"{3}|'{3})(?:.|\n)*?\2 *$")
_COMMENT: Final = re.compile(r"(?m)^ *#.*\n| +#[^\"'\n]*$")
_LINE: Final = re.compile(r"(?m)^.+$")
_SPACED: Final = re.compile(r" *([=,+*/:<>()\[\]{}|]) *")
_OPEN: Final = ("(", "[", "{")
_CLOSE: Final = (")", "]", "}")
_WORDS: Final = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)


def _needs_space(last: tokenize.TokenInfo, token: tokenize.TokenInfo, source: str) -> bool:
    if last.type in _WORDS and token.type in _WORDS:
        return True
    known = (*_WORDS, tokenize.OP)
    if last.type in known and token.type in known:
        return last.string == "." and token.type == tokenize.NUMBER
    return last.end != token.start  # parts of f-strings: as they were
