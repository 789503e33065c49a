"""A server and the load on it, played in virtual time; all behind the generator is the real thing.

What a `PlayedGenerator` writes is what the generator writes: states, records of requests, the end
of the step. The run folds them into its document as it does those of a real load; the warm-up ends
when the generator's own check says so.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from backends.bench import planfile
from backends.bench.endpoint import Reply, parse_url
from backends.bench.generator.steady import SteadyCheck
from backends.bench.identify import Server
from backends.bench.plan import Plan
from backends.bench.prompts import Requests
from backends.bench.results import PromptSource, RunResult
from backends.bench.runner import Prepared, Run
from backends.bench.steps import unroll

TOKENS = 8
PROMPT = 64
TOKEN_S = 0.04
"""Of a warm server of speed 1."""
COLD_S = 4.0
"""A cold server catches up by two thirds in this time."""


@dataclass
class PlayedServer:
    """A server with a true speed.

    Attributes:
        speed: Factor on its true speed.
        cold: Whether it has just been started: four times as slow at first.
        seed: Of its luck: 0.8 % from second to second and 2 % from request to request, 1 % a block.
    """

    speed: float = 1.0
    cold: bool = False
    seed: int = 0
    _seconds: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def token_s(self, at_s: float) -> float:
        """How long a token of a request that begins at this time takes."""
        second = self._seconds.setdefault(int(at_s), self._chance.gauss(0, 0.008))
        slow = 1 + 3 * math.exp(-at_s / COLD_S) if self.cold else 1.0
        return TOKEN_S * slow / self.speed * math.exp(second + self._chance.gauss(0, 0.02))


class PlayedGenerator:
    """Plays a job of closed loops against such a server."""

    where = "local"

    def __init__(self, server: PlayedServer) -> None:
        self._server = server
        self._job: dict[str, list[dict[str, object]]] = {}

    async def start(self, job: bytes) -> None:
        self._job = json.loads(job)

    async def command(self, line: bytes) -> None:
        pass

    async def end(self) -> str:
        return ""

    async def lines(self) -> AsyncIterator[bytes]:
        yield _line("begin", {"epoch_unix_s": 1_772_366_400.0, "workers": 1})
        now_s = 0.0
        for number, step in enumerate(self._job["steps"]):
            yield _line("state", {"step": number, "state": "waiting", "at_s": now_s})
            lines, now_s = self._step(number, step, now_s)
            yield b"".join(lines)
        yield _line("end", {"status": "complete", "error": None})

    def _step(
        self, number: int, step: dict[str, object], start_s: float
    ) -> tuple[list[bytes], float]:
        load, warm, duration_s = step["load"], step["warm_up"], step["duration_s"]
        assert isinstance(load, dict)
        assert isinstance(duration_s, float)
        streams = int(load["concurrency"])
        steady = SteadyCheck(streams)
        measure_s = None if warm else start_s
        lines, free_s = [], [start_s] * streams
        while measure_s is None or min(free_s) < measure_s + duration_s:
            slot = free_s.index(min(free_s))
            if measure_s is None and steady.steady:
                measure_s = free_s[slot]
            record = self._request(free_s[slot])
            free_s[slot] = float(str(record["end_s"]))
            steady.add(record)
            phase = "warmup" if measure_s is None else "measure"
            record.update(step=number, id=len(lines), phase=phase, slot=slot)
            lines.append(_line("request", record))
        end = {
            "number": number, "start_s": start_s, "measure_s": measure_s, "end_s": max(free_s),
            "steady": steady.steady if warm else None, "max_in_flight": streams,
        }  # fmt: skip
        return [*lines, _line("step_end", end)], max(free_s)

    def _request(self, due_s: float) -> dict[str, object]:
        token_s = self._server.token_s(due_s)
        first_s = due_s + 2 * token_s
        last_s = first_s + (TOKENS - 1) * token_s
        return {
            "due_s": due_s, "sent_s": due_s, "first_byte_s": first_s, "first_token_s": first_s,
            "last_token_s": last_s, "end_s": last_s, "status": 200, "ok": True, "finish": "length",
            "asked_input": PROMPT, "asked_output": TOKENS, "input_tokens": PROMPT,
            "output_tokens": TOKENS, "source": "usage", "events": TOKENS, "first_tokens": 1,
            "gaps_us": [round(token_s * 1e6)] * (TOKENS - 1),
        }  # fmt: skip


def _line(kind: str, fields: dict[str, object]) -> bytes:
    return json.dumps({**fields, "t": kind}, separators=(",", ":")).encode() + b"\n"


def plan_of(seconds: float = 10.0, warm_up: bool = True) -> Plan:
    """Four streams for so many blocks of a second."""
    plan = planfile.parse(
        f"name = 'campaign'\npause_s = 0.0\nflush_cache = false\nroute = 'chat'\n"
        f"warm_up = {{ steady = true }}\nparts = [{{ input = {PROMPT}, output = {TOKENS} }}]\n"
        f"[[steps]]\nload = 'closed'\nconcurrency = 4\nduration_s = {seconds}\n"
    )
    return plan if warm_up else msgspec.structs.replace(plan, warm_up=None)


async def measured(
    server: PlayedServer, plan: Plan | None = None, folder: Path | None = None
) -> RunResult:
    """A whole run of the plan against the server."""
    plan = plan or plan_of()
    requests = Requests("chat", {}, PromptSource.CALIBRATED, False, False, digest="workload")
    endpoint = parse_url("http://127.0.0.1:8000")
    prepared = Prepared(plan, endpoint, Server(model="GLM-5"), requests, unroll(plan))
    return await Run(prepared, PlayedGenerator(server), _silent, folder=folder).execute()


async def _silent(*_words: object, **_more: object) -> Reply:
    """A server without metrics."""
    return Reply(404, b"", {})
