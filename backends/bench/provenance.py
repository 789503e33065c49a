"""What produced a run, found out on the server's host: its process, its arguments, its packages.

Nothing of it is needed to measure; what cannot be found is a finding, and the run goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.bench.environment import server_packages
from backends.bench.onhost import ASKED_BY, Asker
from backends.bench.results import Environment, Finding, Severity
from backends.errors import RoomError
from backends.servers.configuration import read_argv
from backends.servers.engines import ENGINES, EngineGuess, EngineId
from backends.text import clean

FIND_S: Final = 20.0
MAX_WORDS: Final = 400
ENV_PREFIXES: Final = (
    "CUDA", "NCCL", "NVIDIA", "VLLM", "SGLANG", "SGL_", "TORCH", "PYTORCH", "TRITON", "FLASHINFER",
    "HF_", "TRANSFORMERS", "OMP_", "MKL_", "GGML_", "LLAMA_", "TRTLLM", "TLLM", "UCX_", "OLLAMA",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH",
)  # fmt: skip
"""Variables that decide how a server serves."""
_ENGINES: Final = {"tensorrt_llm": EngineId.TRTLLM}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What was found.

    Attributes:
        environment: The one given, with what was found.
        model: What the server was told to load: a folder, a file, or `owner/name`.
        findings: What could not be found, and files that were changed.
        pid: The process that listens; None where none can be seen.
        python: The interpreter whose packages it uses; None where it uses none that is known.
    """

    environment: Environment
    model: str | None
    findings: tuple[Finding, ...] = ()
    pid: int | None = None
    python: str | None = None


class SessionAgent:
    """A session of the room as the agent that other modules ask."""

    def __init__(self, session: Asker) -> None:
        self._session = session

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Ask; raises AgentError or LinkError."""
        return await self._session.request(
            method, params, asked_by=ASKED_BY, what=f"bench: {method}", timeout_s=timeout_s
        )


async def what_serves(
    session: Asker, port: int, engine: str, environment: Environment
) -> Provenance:
    """Find the process that listens on `port`, and what it is made of.

    Args:
        session: The host.
        port: Of the server, there.
        engine: As the server's answers tell it; `unknown` has it guessed from the arguments.
        environment: What is known already.
    """
    agent = SessionAgent(session)
    try:
        listening = await agent.request("servers.candidates", {}, FIND_S)
        pid = _pid_of(listening, port)
        if pid is None:
            words = f"no process of the host that can be seen listens on port {port}"
            return Provenance(environment, None, (_unknown(words),))
        about = await agent.request("servers.describe", {"pid": pid}, FIND_S)
    except RoomError as error:
        return Provenance(environment, None, (_unknown(str(error)),))
    argv = _argv(about)
    asked = read_argv(ENGINES[engine_of(engine, argv)], argv)
    options = {clean(name, 120): clean(value, 300) for name, value in asked.options.items()}
    environment = msgspec.structs.replace(
        environment, server_argv=argv, server_env=_environment(about), asked_config=options
    )
    model = options.get("model") or options.get("model_path")
    try:
        packages = await server_packages(agent, pid)
    except RoomError as error:
        return Provenance(environment, model, (_unknown(f"the server's packages: {error}"),), pid)
    if packages is None:
        return Provenance(environment, model, (), pid)
    changed = packages.changed_in_words()
    findings: tuple[Finding, ...] = ()
    if changed:
        some = ", ".join(changed[:3]) + (f" and {packages.total - 3} more" if changed[3:] else "")
        text = f"files of the server's packages are not as installed: {some}"
        findings = (Finding(key="changed_files", severity=Severity.INFO, text=text),)
    environment = msgspec.structs.replace(
        environment, versions=packages.versions, changed_files=changed
    )
    python = python_of(packages.site_packages)
    return Provenance(environment, model, findings, pid, python)


def python_of(site_packages: str) -> str | None:
    """The interpreter that a folder of packages belongs to.

    `/opt/venv/lib/python3.12/site-packages` gives `/opt/venv/bin/python3.12`; Debian's
    `/usr/lib/python3/dist-packages` gives `/usr/bin/python3`, also for `/usr/local`.
    """
    found = re.fullmatch(r"(/.*?)/lib(?:64)?/(python3[.\d]*)/(site|dist)-packages", site_packages)
    if found is None:
        return None
    prefix, name, kind = found.groups()
    if kind == "dist" and prefix.startswith("/usr"):
        prefix = "/usr"
    return f"{prefix}/bin/{name}"


def _unknown(words: str) -> Finding:
    text = f"what produced the figures is not known in full: {words}"
    return Finding(key="provenance", severity=Severity.INFO, text=text)


def _pid_of(listening: object, port: int) -> int | None:
    """The process on a port; of several the one that is no child of another of them."""
    found: dict[int, int] = {}
    for entry in listening if isinstance(listening, list) else ():
        if isinstance(entry, dict) and port in (entry.get("ports") or ()):
            pid, parent = entry.get("pid"), entry.get("parent")
            if isinstance(pid, int):
                found[pid] = parent if isinstance(parent, int) else 0
    return next((pid for pid, parent in found.items() if parent not in found), None)


def _argv(about: object) -> tuple[str, ...]:
    words = about.get("argv") if isinstance(about, dict) else None
    if not isinstance(words, list):
        return ()
    return tuple(clean(str(word), 1000) for word in words[:MAX_WORDS])


def _environment(about: object) -> dict[str, str]:
    """The agent has hidden secrets already."""
    pairs = about.get("env") if isinstance(about, dict) else None
    if not isinstance(pairs, dict):
        return {}
    return {
        clean(str(name), 120): clean(str(value), 400)
        for name, value in sorted(pairs.items())
        if str(name).startswith(ENV_PREFIXES)
    }


def engine_of(told: str, argv: tuple[str, ...]) -> EngineId:
    """The engine that the server's answers tell; `unknown` has it guessed from the arguments."""
    if told in _ENGINES:
        return _ENGINES[told]
    if told in set(EngineId):
        return EngineId(told)
    guess = EngineGuess()
    command = " ".join(argv)
    guess.look(command, command)
    return guess.best.id
