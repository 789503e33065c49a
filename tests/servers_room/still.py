"""Servers in every state, made up, and a board that does what a test says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backends.errors import RoomError
from backends.model import Severity
from backends.servers.board import ServerBoard
from backends.servers.configuration import Comparison, Standing
from backends.servers.engines import EngineId, Phase
from backends.servers.host import Host, MemberFacts
from backends.servers.launchers.base import (
    LogKind,
    LogPlace,
    Run,
    StartFinding,
    StartPlan,
    StopResult,
)
from backends.servers.lifecycle import Assessment, State
from backends.servers.profiles import Profile, resolve_profiles
from backends.servers.progress import Progress
from backends.servers.roster import Roster
from backends.servers.run import Place, Warned
from backends.servers.testimony import Testimony
from backends.servers.verdict import Outcome, Verdict
from backends.servers.view import PhaseTime, ServerView
from backends.servers.witnesses import Witness
from backends.storage.starts import Start
from tests.ui.fakes import FakeHub, make_app, make_hub
from tui.app import RoomApp

NOW_S = 10_000.0
AT = datetime(2026, 3, 14, 9, 0, 0, tzinfo=UTC)
COMMAND = (
    "python3", "-m", "sglang.launch_server", "--model-path", "/models/GLM-5-NVFP4",
    "--tp-size", "8", "--port", "30000", "--api-key", "very-secret",
)  # fmt: skip


def profile(name: str = "glm", host: str = "gpu01", **more: object) -> Profile:
    table = {"name": name, "host": host, "engine": "sglang", "command": list(COMMAND),
             "env": {"NCCL_P2P_DISABLE": "1"}, "port": 30000, **more}  # fmt: skip
    return resolve_profiles([table])[0]


def run(name: str = "glm", **more: object) -> Run:
    fields: dict[str, object] = {
        "run_id": "20260314-090000-1", "profile": name, "launcher": "process",
        "place": f"/root/.local/state/gpuroom/servers/{name}/1",
        "log": LogPlace(LogKind.FILE, f"/var/log/{name}.log"), "started_at": 1.0,
        "argv": COMMAND, "port": 30000, "engine": "sglang", "pid": 4242, "by": "anna",
        "origin": "jumpbox",
    }  # fmt: skip
    return Run(**(fields | more))  # type: ignore[arg-type]


def assessment(state: State, why: str = "all witnesses agree", **more: object) -> Assessment:
    said = (
        (Witness.LINK, "up", 0.2), (Witness.PROCESS, "alive, 10 processes", 0.2),
        (Witness.LOG, "ready (line 812)", 40.0), (Witness.HTTP, "/health 200", 0.4),
        (Witness.PORT, "30000: ours pid 4242", 0.2), (Witness.ACTIVITY, "CPU time 0 s ago", 0.2),
    )  # fmt: skip
    fields: dict[str, object] = {
        "run_id": "20260314-090000-1", "state": state, "why": why, "since_s": NOW_S - 40,
        "testimonies": tuple(Testimony(who, words, NOW_S - age) for who, words, age in said),
        "phase": Phase.READY, "was_ready": True,
    }  # fmt: skip
    return Assessment(**(fields | more))  # type: ignore[arg-type]


def verdict(outcome: Outcome = Outcome.READY, **more: object) -> Verdict:
    warned = Warned(
        "moe-kernel-default",
        "no tuned mixture-of-experts kernel configuration for this GPU: several times slower",
        431, "Using default MoE kernel config. Performance might be sub-optimal!", 8,
    )  # fmt: skip
    fields: dict[str, object] = {
        "engine": EngineId.SGLANG, "version": "0.5.10", "outcome": outcome, "phase": Phase.READY,
        "ready_line": 812, "cause": None, "evidence": None, "title": "ready", "remedies": (),
        "reference": "", "warnings": (warned,),
    }  # fmt: skip
    return Verdict(**(fields | more))  # type: ignore[arg-type]


def earlier() -> tuple[Start, ...]:
    def start(number: int, outcome: str, took_s: float, cause: str | None = None) -> Start:
        return Start(
            f"r{number}", "gpu01", "glm", "sglang", "0.5.10", AT - timedelta(days=number),
            outcome, cause, took_s, {},
        )  # fmt: skip

    return (start(1, "ready", 436.0), start(2, "crashed", 97.0, "cuda-oom"), start(3, "ready", 447))


MEMBERS = (
    MemberFacts(4242, 1, "python3 -m sglang.launch_server --model-path /models/GLM-5-NVFP4"),
    *(MemberFacts(4300 + rank, 1, f"sglang::scheduler_TP{rank}", 4242) for rank in range(8)),
    MemberFacts(4310, 1, "sglang::detokenizer", 4242),
)
PHASES = (
    PhaseTime(Phase.LAUNCHING, 9.2, 9.0),
    PhaseTime(Phase.DISTRIBUTED, 4.1, 4.0),
    PhaseTime(Phase.LOADING, 121.0, 118.0),
    PhaseTime(Phase.MEMORY, 6.0, 6.0),
    PhaseTime(Phase.CAPTURING, 95.0, 97.0),
    PhaseTime(Phase.WARMING, 41.0, 40.0),
)
CONFIGURATION = (
    Comparison("mem_fraction_static", "0.9", "0.85", Standing.DIFFERS),
    Comparison("ep_size", None, "8", Standing.UNASKED, "1"),
    Comparison("api_key", "***", None, Standing.NOT_REPORTED),
    Comparison("tp_size", "8", "8", Standing.SAME, "1"),
)


def view(name: str = "glm", **more: object) -> ServerView:
    fields: dict[str, object] = {
        "key": name, "name": name, "host": "gpu01", "engine": "sglang", "profile": profile(name),
        "now_s": NOW_S, "port": 30000, "model": "/models/GLM-5-NVFP4", "earlier": earlier(),
    }  # fmt: skip
    return ServerView(**(fields | more))  # type: ignore[arg-type]


def ready_view(**more: object) -> ServerView:
    fields: dict[str, object] = {
        "run": run(), "found": assessment(State.READY), "verdict": verdict(), "up_s": 18_754.0,
        "phases": PHASES, "members": MEMBERS, "configuration": CONFIGURATION,
        "last_lines": ("The server is fired up and ready to roll!",),
    }  # fmt: skip
    return view(**(fields | more))


def loading_view(**more: object) -> ServerView:
    progress = Progress("Loading safetensors checkpoint shards", 31, 83)
    found = assessment(
        State.LOADING, "loading weights", phase=Phase.LOADING, progress=progress, left_s=312.0,
        was_ready=False,
        testimonies=(
            Testimony(Witness.LINK, "up", NOW_S - 0.2),
            Testimony(Witness.PROCESS, "alive, 10 processes", NOW_S - 0.2),
            Testimony(Witness.LOG, "loading weights", NOW_S - 0.6),
            Testimony(Witness.HTTP, "/health refused", NOW_S - 0.4),
            Testimony(Witness.PORT, "30000: nobody", NOW_S - 0.2),
            Testimony(Witness.ACTIVITY, "disk reads 0 s ago", NOW_S - 0.2),
        ),
    )  # fmt: skip
    phases = (
        *PHASES[:2],
        PhaseTime(Phase.LOADING, 45.0, 118.0, now=True, progress=progress),
        *(replace(phase, took_s=None) for phase in PHASES[3:]),
    )
    fields: dict[str, object] = {
        "run": run(), "found": found, "verdict": verdict(Outcome.LOADING, phase=Phase.LOADING),
        "up_s": 58.0, "phases": phases, "members": MEMBERS,
        "last_lines": ("Loading safetensors checkpoint shards:  37% Completed | 31/83",),
    }  # fmt: skip
    return view(**(fields | more))


def crashed_view(**more: object) -> ServerView:
    found = assessment(
        State.CRASHED, "out of GPU memory", phase=Phase.CAPTURING, cause="cuda-oom", exit_code=-9,
        was_ready=False, testimonies=(Testimony(Witness.PROCESS, "gone, exit code -9", NOW_S - 9),),
    )  # fmt: skip
    shown = verdict(
        Outcome.CRASH, cause="cuda-oom", title="out of GPU memory while capturing graphs",
        evidence=Place(1204, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        remedies=("lower --mem-fraction-static", "capture fewer sizes: --cuda-graph-max-bs 64"),
        reference="https://docs.sglang.io/references/troubleshooting.html",
    )  # fmt: skip
    fields: dict[str, object] = {
        "run": run(), "found": found, "verdict": shown, "phases": PHASES[:5],
        "last_lines": ("Scheduler hit an exception: Traceback", "[rank 3] exits"),
    }  # fmt: skip
    return view(**(fields | more))


def found_view(**more: object) -> ServerView:
    found = run("Qwen3-8B", adopted=True, pid=991, run_id="boot-991-5", port=8080, by="bob")
    fields: dict[str, object] = {
        "key": "boot-991-5", "name": "Qwen3-8B", "engine": "llamacpp", "profile": None,
        "run": found, "found": assessment(State.SERVING, "2 requests in work"), "port": 8080,
        "verdict": verdict(warnings=()), "up_s": 5_000.0, "earlier": (), "model": "Qwen3-8B",
        "members": (MemberFacts(991, 5, "/opt/llama.cpp/llama-server -m Qwen3-8B.gguf"),),
    }  # fmt: skip
    return view(**(fields | more))


VIEWS = {
    "loading": loading_view,
    "ready": ready_view,
    "crashed": crashed_view,
    "stopped": view,
    "found": found_view,
}


class StillDesk:
    """Stops by signals, within 20 s."""

    async def stop_commands(self, run: Run) -> tuple[tuple[str, ...], ...]:
        return ()

    def grace_s(self, run: Run) -> float:
        return 20.0


class StillRoster(Roster):
    """Writes down what is asked of it."""

    def __init__(self, board: StillBoard) -> None:
        self._board = board
        self.asked: list[tuple[str, str]] = []
        self.asked_by: list[str] = []
        self.findings: list[StartFinding] = []
        self.result = StopResult()
        self.fail_with: RoomError | None = None

    def view(self, key: str) -> ServerView | None:
        return self._board.view("gpu01", key)

    async def check(self, key: str, *, before_stop: bool = False) -> list[StartFinding]:
        self.asked.append(("check again" if before_stop else "check", key))
        return self.findings

    @property
    def desk(self) -> StillDesk:  # type: ignore[override]
        return StillDesk()

    async def plan(self, key: str) -> StartPlan:
        env = {"NCCL_P2P_DISABLE": "1"}
        return StartPlan((COMMAND,), env, "detached, in a session of its own")

    async def start(self, key: str, *, asked_by: str = "") -> Run:
        if self.fail_with is not None:
            raise self.fail_with
        self.asked_by.append(asked_by)
        self.asked.append(("start", key))
        return run()

    @contextlib.asynccontextmanager
    async def restarting(self, key: str, *, asked_by: str = "") -> AsyncIterator[None]:
        self.asked.append(("hold", key))
        yield
        self.asked.append(("let go", key))

    async def stop(self, key: str, *, asked_by: str = "") -> StopResult:
        if self.fail_with is not None:
            raise self.fail_with
        self.asked_by.append(asked_by)
        self.asked.append(("stop", key))
        return self.result


class StillBoard(ServerBoard):
    """Servers of gpu01 that stand still."""

    def __init__(self, *views: ServerView, trouble: str = "") -> None:
        super().__init__(lambda host: ())
        self.shown = views
        self.still = StillRoster(self)
        self.changes = 0
        self._trouble = trouble

    @property
    def version(self) -> int:
        return self.changes

    def put(self, *views: ServerView) -> None:
        """Other servers, or the same in another state."""
        self.shown = views
        self.changes += 1

    def look_at(self, host: Host) -> None:
        pass

    def roster(self, host: str) -> Roster:
        return self.still

    def views(self, host: str) -> tuple[ServerView, ...]:
        return self.shown if host == "gpu01" else ()

    def view(self, host: str, key: str) -> ServerView | None:
        return next((view for view in self.views(host) if view.key == key), None)

    def trouble(self, host: str) -> str:
        return self._trouble

    def listed(self, host: str) -> bool:
        return True


def finding(severity: Severity = Severity.CRITICAL) -> StartFinding:
    return StartFinding(
        "port-taken", severity, "port 30000 is held by pid 77 of bob, python3 server.py",
        "stop that process yourself if it is not needed, or give the profile another port",
    )  # fmt: skip


def room(board: StillBoard, hub: FakeHub | None = None, **more: object) -> RoomApp:
    """The application with that board."""
    app = make_app(hub or make_hub(hosts=1), **more)  # type: ignore[arg-type]
    app.board_maker = lambda shell: board
    return app
