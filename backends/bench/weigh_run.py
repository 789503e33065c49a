"""What a run could have reached, into its document: weighed on its host, else by name."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from backends.bench.bound import Bound, by_bandwidth
from backends.bench.efficiency import conditions_of, possible_of
from backends.bench.models import shipped_model
from backends.bench.onhost import Asker
from backends.bench.possible import Possible
from backends.bench.provenance import SessionAgent
from backends.bench.remote_model import weigh_remote
from backends.bench.results import RunResult, StepResult
from backends.bench.weights import Weights
from backends.errors import RoomError, UsageError


async def weighed(session: Asker, result: RunResult, model: str | None) -> RunResult:
    """The document with what each step could have been, or why that is not known.

    Args:
        session: The host that the server runs on.
        result: What was measured.
        model: As the server's process was told; where that is out of sight, the server's own
            word (`model_path`, or the model's name) is taken.
    """
    try:
        conditions = conditions_of(result)
        config = result.environment.effective_config
        told = model or config.get("model_path") or config.get("model") or result.target.model
        if told is None:
            raise UsageError("neither the server nor its arguments name a model")
        name, weights = await _weigh(session, told)
        possible = possible_of(result, name, weights, conditions)
    except RoomError as error:
        return msgspec.structs.replace(result, possible=None, possible_absent=str(error))
    steps = tuple(_bound_by_share(step, possible) for step in result.steps)
    return msgspec.structs.replace(result, steps=steps, possible=possible, possible_absent=None)


def _bound_by_share(step: StepResult, possible: Possible) -> StepResult:
    """The step with "memory" where it reached much of a maximum that memory bandwidth sets."""
    at, turn = possible.step(step.label), possible.compute_from_batch
    if at is None or (turn is not None and at.batch >= turn):
        return step
    before = Bound(step.bound, step.bound_evidence or "")  # type: ignore[arg-type]
    found = by_bandwidth(before, at.stream_share("paper"))
    return msgspec.structs.replace(step, bound=found.word, bound_evidence=found.evidence or None)


async def _weigh(session: Asker, model: str) -> tuple[str, Weights]:
    """By its files on the host; where they cannot be read, by the name of a model that is known."""
    try:
        return await weigh_remote(SessionAgent(session), model)
    except RoomError:
        known = shipped_model(PurePosixPath(model).name)
        if known is None:
            raise
        return known
