"""A watched server as data and as lines of text: for scripts and for terminals. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from backends.servers.engines import Phase
from backends.servers.launchers.base import Run, StartFinding, StopResult
from backends.servers.lifecycle import Assessment, State
from backends.servers.verdict import Outcome, Verdict
from backends.servers.watch import ServerWatch

MANY = 8


def server_data(watch: ServerWatch, now_s: float) -> dict[str, object]:
    """Everything about one server that JSON can hold."""
    found = watch.assessment
    verdict = watch.verdict
    return {
        **run_data(watch.watched.run),
        "engine": watch.watched.engine.id.value,
        **assessment_data(found, now_s),
        "title": verdict.title if failed(found) else "",
        "evidence_line": verdict.evidence.line if verdict.evidence and failed(found) else None,
        "remedies": list(verdict.remedies) if failed(found) else [],
        "warnings": [
            {"title": each.title, "line": each.line, "count": each.count}
            for each in verdict.warnings
        ],
        "silent_parts": dict(watch.errors),
    }


def run_data(run: Run) -> dict[str, object]:
    """What identifies a run."""
    return {
        "name": run.profile,
        "run_id": run.run_id,
        "launcher": run.launcher,
        "adopted": run.adopted,
        "pid": run.pid,
        "port": run.port,
        "started_at": run.started_at,
        "by": run.by,
        "origin": run.origin,
        "log": None if run.log is None else run.log.path or list(run.log.argv),
    }


def assessment_data(found: Assessment, now_s: float) -> dict[str, object]:
    """State, why, and what each witness said."""
    return {
        "state": found.state.value,
        "why": found.why,
        "phase": found.phase.value if found.phase is not None else None,
        "progress": found.progress.fraction if found.progress is not None else None,
        "left_s": found.left_s,
        "stalled": found.stall is not None,
        "cause": found.cause,
        "exit_code": found.exit_code,
        "last_known": found.last_known.value if found.last_known is not None else None,
        "witnesses": [
            {"witness": each.witness.value, "said": each.said, "stale": each.stale,
             "age_s": round(max(0.0, now_s - each.at_s), 1)}
            for each in found.testimonies
        ],
        "disagreements": list(found.disagreements),
    }  # fmt: skip


def finding_data(finding: StartFinding) -> dict[str, object]:
    """Something in the way of a start."""
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "title": finding.title,
        "way_out": finding.way_out,
    }


def stop_data(result: StopResult) -> dict[str, object]:
    """What a stop left behind."""
    return {
        "complete": result.complete,
        "left": [{"pid": each.pid, "command": each.command} for each in result.left],
        "port_free": None if result.port is None else result.port.free,
        "gpu_memory_held": list(result.gpu_memory_held),
    }


def failed(found: Assessment) -> bool:
    """Whether there is a cause to show."""
    return found.state in (State.CRASHED, State.EXITED) or found.failing_since_s is not None


def progress_words(found: Assessment) -> str:
    """State, phase, progress and time left, in one line."""
    words = [found.state.value]
    settling = found.state in (State.LOADING, State.WARMING)
    if settling and found.phase is not None and found.phase is not Phase.READY:
        words.append(found.phase.words)
    if found.progress is not None and found.progress.fraction is not None:
        words.append(f"{found.progress.fraction:.0%}")
    if found.left_s is not None:
        words.append(f"{found.left_s:.0f} s left")
    if found.stall is not None:
        words.append(f"nothing has moved for {found.stall.quiet_s:.0f} s")
    return ", ".join(words)


def cause_title(found: Assessment, verdict: Verdict | None) -> str:
    """What failed, in a line: as the log tells, with what other witnesses add to that."""
    if verdict is None or verdict.outcome not in (Outcome.CRASH, Outcome.STALLED):
        return found.why
    told = verdict.title
    return found.why if not told or found.why.startswith(told) else told


def cause_lines(found: Assessment, verdict: Verdict) -> list[str]:
    """What failed, the line that shows it, what to try."""
    told = verdict.outcome in (Outcome.CRASH, Outcome.STALLED) and verdict.title
    lines = [cause_title(found, verdict)]
    if verdict.evidence is not None and told:
        lines.append(f"line {verdict.evidence.line}: {verdict.evidence.text}")
    if found.exit_code is not None:
        code = found.exit_code
        lines.append(f"exit code {code}" if code >= 0 else f"ended by signal {-code}")
    lines += [f"try: {remedy}" for remedy in (verdict.remedies if told else ())]
    return lines


def stop_lines(result: StopResult) -> list[str]:
    """What remains after a stop, by name."""
    lines = [f"pid {each.pid} is still there: {each.command[:100]}" for each in result.left[:MANY]]
    if result.port is not None and not result.port.free:
        who = ", ".join(f"pid {o.pid} {o.command[:60]}" for o in result.port.owners[:MANY])
        lines.append(f"port {result.port.port} is not free: {who or 'its owner is not visible'}")
    lines += [f"the memory of {gpu} is not given back" for gpu in result.gpu_memory_held]
    return lines


def witness_lines(found: Assessment, now_s: float) -> list[str]:
    """Each witness with what it said and how long ago."""
    lines = [
        f"{each.witness.value:<12}{each.said}  ({max(0.0, now_s - each.at_s):.0f} s ago"
        f"{', stale' if each.stale else ''})"
        for each in found.testimonies
    ]
    return lines + [f"{'but':<12}{words}" for words in found.disagreements]


def plain_name(name: str) -> str:
    """A name that a profile can have, made of what was found."""
    return re.sub(r"[^A-Za-z0-9_.@:-]+", "-", name).strip("-.") or "server"


def profile_table(name: str, host: str, engine: str, run: Run) -> Mapping[str, object]:
    """A `[[servers]]` entry that starts what runs; secrets stay masked and must be filled in."""
    table: dict[str, object] = {
        "name": name,
        "host": host,
        "engine": engine,
        "command": [run.program or run.argv[0], *run.argv[1:]] if run.argv else [],
    }
    kept = {
        name: value
        for name, value in (run.env or {}).items()
        if name.startswith(KEPT_VARIABLES) or (name in SEARCH_VARIABLES and name in run.env_differs)
    }
    if kept:
        table["env"] = kept
    if run.cwd:
        table["cwd"] = run.cwd
    if run.port is not None:
        table["port"] = run.port
    return {"servers": [table]}


KEPT_VARIABLES = (
    "CUDA_", "NCCL_", "VLLM_", "SGLANG_", "SGL_", "HF_", "TORCH", "PYTORCH_", "LLAMA_", "GGML_",
    "OLLAMA_", "TRTLLM_", "OMP_", "TRITON_", "FLASHINFER_", "GLOO_", "UCX_", "TOKENIZERS_",
)  # fmt: skip
"""Variables that change how an engine runs. What a login sets otherwise is left out."""
SEARCH_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables that say where programs and libraries are found: kept where a login has others."""
