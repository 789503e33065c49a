"""What is found out before a run: room of the client, lengths, an idle and known server, caches."""

from __future__ import annotations

import json

import pytest

from backends.bench.endpoint import Reply
from backends.bench.identify import Server
from backends.bench.planfile import parse
from backends.bench.preflight import Room, client_room, fits, idle, local_room, not_ready, refuses
from backends.bench.results import Finding, Severity
from backends.bench.servermetrics import Reading
from backends.bench.steps import unroll
from backends.bench.surroundings import Surroundings

LARGE = Room(descriptors=100_000, ports=28_000, cpus=16, load=0.1)


def steps(streams: int) -> str:
    return f"[[steps]]\nload = 'closed'\nconcurrency = {streams}\nrequests = 1\n"


def keys(found: list[Finding]) -> dict[str, Severity]:
    return {finding.key: finding.severity for finding in found}


@pytest.mark.parametrize(
    ("room", "streams", "expected"),
    [
        (LARGE, 1024, {}),
        (Room(1024, 28_000, 16, 0.1), 1024, {"descriptors": Severity.ERROR}),
        (Room(100_000, 1000, 16, 0.1), 1024, {"ports": Severity.ERROR}),
        (Room(100_000, None, 16, None), 1024, {}),
        (Room(100_000, 28_000, 16, 9.0), 4, {"client_busy": Severity.WARNING}),
        (Room(100_000, 28_000, 1, 0.1), 2048, {"client_cores": Severity.WARNING}),
    ],
)
def test_the_clients_room(room: Room, streams: int, expected: dict[str, Severity]) -> None:
    assert keys(client_room(room, unroll(parse(steps(streams))))) == expected


def test_this_machine_has_some_room() -> None:
    room = local_room()
    assert room.descriptors > 100
    assert room.cpus >= 1


@pytest.mark.parametrize(
    ("lengths", "severity"),
    [
        ("input = 900, output = 100", None),
        ("input = 900, output = 125", Severity.ERROR),
        ("input = { kind = 'uniform', low = 1, high = 900 }, output = 100", None),
        ("input = { kind = 'uniform', low = 1, high = 1000 }, output = 100", Severity.WARNING),
        ("input = 900, output = { kind = 'choice', values = [1, 125] }", Severity.WARNING),
        ("input = { kind = 'normal', mean = 900, stdev = 9 }, output = 125", Severity.WARNING),
        ("input = { kind = 'normal', mean = 9, stdev = 9, high = 1000 }, output = 125",
         Severity.WARNING),
        ("input = { kind = 'uniform', low = 950, high = 1000 }, output = 100", Severity.ERROR),
    ],
)  # fmt: skip
def test_lengths_that_do_not_fit_the_context(lengths: str, severity: Severity | None) -> None:
    plan = parse(f"parts = [{{ {lengths} }}]\n" + steps(1))
    found = keys(fits(plan, Server("vllm", context=1024)))
    assert found.get("context") is severity
    assert "context" not in keys(fits(plan, Server("vllm")))


def test_an_engine_that_is_not_known_is_said() -> None:
    assert keys(fits(parse(steps(1)), Server())) == {"unknown_engine": Severity.WARNING}


def test_somebody_elses_load_by_the_servers_metrics() -> None:
    quiet = [Reading(0.0, {"running": 0, "output_tokens": 5}), Reading(1.0, {"output_tokens": 5})]
    assert idle(quiet, None) == []
    busy = [*quiet, Reading(2.0, {"running": 2, "waiting": 1, "output_tokens": 105})]
    (found,) = idle(busy, None)
    assert found.text.endswith("2 requests running, 1 waiting, 50 output tokens/s")
    assert refuses([found]) == [found]
    (found,) = idle([], "/metrics answers with 404")
    assert found.key == "no_server_metrics"
    assert refuses([found]) == []
    assert refuses([not_ready("/health", 503)])


@pytest.mark.parametrize(
    ("engine", "status", "asked", "words"),
    [
        ("vllm", 200, ["/reset_prefix_cache"], ""),
        ("sglang", 200, ["/flush_cache"], ""),
        ("sglang", 404, ["/flush_cache"], "/flush_cache answers with 404"),
        ("llamacpp", 200, [], ""),
    ],
)
async def test_the_prefix_cache_is_emptied_where_the_engine_can(
    engine: str, status: int, asked: list[str], words: str
) -> None:
    seen: list[str] = []

    async def fetch(
        method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        seen.append(path)
        return Reply(status, json.dumps({}).encode(), {})

    assert await Surroundings(fetch).flush(engine) == words
    assert seen == asked
