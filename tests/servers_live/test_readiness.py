"""What a profile demands before its server is ready, each tried on a server that plays along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.errors import ConfigError
from backends.servers.lifecycle import ANSWERING, Assessment, State
from backends.servers.watch import ServerWatch
from tests.servers_live.rooms import DEADLINE_S, Play, desk_of, is_state, profile_of, watching

DONE = [200, json.dumps({"choices": [{"text": "yes"}]})]


pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def waits_for(words: str) -> Callable[[Assessment], bool]:
    return lambda found: words in found.why and found.state not in ANSWERING


async def ready(watch: ServerWatch) -> Assessment:
    return await watch.until(is_state(*ANSWERING), DEADLINE_S)


async def test_a_log_line_alone_makes_a_custom_server_ready(play: Play) -> None:
    profile = play.profile("custom", port=False, ready={"log": "^engine armed in [0-9.]+ s$"})
    async with watching(profile) as watch:
        play.now(say=["loading model", "engine armed"])
        await watch.until(lambda found: watch.witnesses.log is not None, DEADLINE_S)
        await watch.until(lambda found: found.state is State.LOADING, DEADLINE_S)
        play.now(say=["loading model", "engine armed", "engine armed in 3.2 s"])
        await ready(watch)
        assert watch.witnesses.log is not None
        assert watch.witnesses.log.verdict.ready_line == 3


async def test_a_line_of_an_earlier_run_in_the_same_file_counts_for_nothing(
    play: Play, tmp_path: Path
) -> None:
    log = tmp_path / "shared.log"
    log.write_text("armed\nRuntimeError: CUDA error: out of memory\n")
    profile = play.profile("custom", port=False, log=str(log), ready={"log": "^armed$"})
    async with watching(profile) as watch:
        play.now(say=["begin"])
        await watch.until(lambda found: watch.witnesses.log is not None, DEADLINE_S)
        assert watch.assessment.state not in ANSWERING
        assert watch.assessment.cause is None
        play.now(say=["begin", "armed"])
        await ready(watch)


async def test_a_path_must_answer_with_its_code(play: Play) -> None:
    profile = play.profile("custom", ready={"path": "/readyz", "code": 204})
    play.now(answers={"/readyz": 200, "/health": 200})
    async with watching(profile) as watch:
        await watch.until(waits_for("HTTP (200)"), DEADLINE_S)
        play.now(answers={"/readyz": 204})
        await ready(watch)


async def test_a_path_is_asked_besides_the_engines_own(play: Play) -> None:
    profile = play.profile("vllm", ready={"path": "/adapters", "code": 200})
    play.now(answers={"/health": 503, "/adapters": 200})
    async with watching(profile) as watch:
        await watch.until(waits_for("HTTP (503)"), DEADLINE_S)
        play.now(answers={"/health": 200, "/adapters": 404})
        await watch.until(waits_for("HTTP (404)"), DEADLINE_S)
        play.now(answers={"/health": 200, "/adapters": 200})
        await ready(watch)


async def test_a_log_line_is_demanded_besides_the_engines_own_signs(play: Play) -> None:
    profile = play.profile("vllm", ready={"log": "adapters are warm"})
    play.now(answers={"/health": 200}, say=["Application startup complete."])
    async with watching(profile) as watch:
        await watch.until(waits_for("the line that its profile names"), DEADLINE_S)
        play.now(say=["Application startup complete.", "all adapters are warm now"])
        await ready(watch)


async def test_a_prompt_must_be_completed(play: Play) -> None:
    profile = play.profile("vllm", ready={"prompt": "Say yes."})
    play.now(answers={"/health": 200, "/v1/completions": [500, "no kernel"]})
    async with watching(profile) as watch:
        found = await watch.until(
            lambda found: "HTTP answers well, while a completion fails" in found.disagreements,
            DEADLINE_S,
        )
        assert found.state not in ANSWERING
        assert any("500 no kernel" in each.said for each in found.testimonies)
        play.now(answers={"/health": 200, "/v1/completions": DONE})
        await ready(watch)


async def test_one_look_at_a_server_waits_for_its_completion(play: Play) -> None:
    profile = play.profile("vllm", ready={"prompt": "Say yes."})
    play.now(answers={"/health": 200, "/v1/completions": DONE})
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        try:
            async with await desk.watch(run, profile) as first:
                await ready(first)
            async with await desk.watch(run, profile) as second:
                async with asyncio.timeout(
                    DEADLINE_S / 2
                ):  # its log is empty: that holds up nobody
                    await second.hear(DEADLINE_S)
                assert second.witnesses.completion is not None
        finally:
            await desk.stop(run, grace_s=1)


async def test_a_prompt_alone_makes_a_custom_server_ready_by_chat_where_it_only_chats(
    play: Play,
) -> None:
    profile = play.profile("custom", ready={"prompt": "Say yes."})
    async with watching(profile) as watch:
        await watch.until(waits_for("a completion"), DEADLINE_S)
        play.now(answers={"/v1/chat/completions": DONE})
        await ready(watch)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="no port"):
        profile_of(ready={"path": "/health"})
    with pytest.raises(ConfigError, match="no port"):
        profile_of(ready={"prompt": "yes"})
