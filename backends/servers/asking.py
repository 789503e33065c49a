"""Asks a server over HTTP, from its host's own loopback: is it well, can it complete a prompt."""

from __future__ import annotations

import json
from typing import Final

from backends.clock import Clock
from backends.errors import RoomError
from backends.servers.apikey import ApiKey
from backends.servers.engines import Endpoint, Engine, EngineId
from backends.servers.host import Host, HttpAnswer, ask_http
from backends.servers.profiles import Readiness
from backends.servers.witnesses import CompletionSeen, HttpSeen

ASKED_BY: Final = "watch"
HTTP_TIMEOUT_S: Final = 5.0
COMPLETION_TIMEOUT_S: Final = 120.0
COMPLETION_AGAIN_S: Final = 5.0
"""Between completions while they fail: each is work for the server."""
KEY_WANTED: Final = "it wants a key (api_key_env in the profile names its variable)"
_NOT_THERE: Final = (404, 405, 501)


class Asker:
    """What is asked of one server.

    Args:
        host: Where it runs.
        port: On the host's loopback.
        engine: Says which endpoints it has.
        ready: What the profile asks besides.
        model: Name that it serves, where it is known.
        key: What it wants to see before it answers, where that is known.
    """

    def __init__(
        self,
        host: Host,
        port: int,
        engine: Engine,
        ready: Readiness,
        model: str | None,
        clock: Clock,
        key: ApiKey | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._ready = ready
        self._model = model
        self._clock = clock
        self._key = key
        self.endpoints = endpoints_of(engine, ready)

    async def health(self) -> HttpSeen | None:
        """Ask one endpoint after the other until one is not good; gives the last answer.

        Only one answer is given, so that a server is not called ready between two questions.
        """
        seen: HttpSeen | None = None
        for endpoint in self.endpoints:
            answer = await ask_http(
                self._host, self._port, endpoint.path, asked_by=ASKED_BY, key=self._key,
                timeout_s=HTTP_TIMEOUT_S,
            )  # fmt: skip
            seen = HttpSeen(
                self._clock.monotonic_s(),
                endpoint.path,
                answer.status,
                reason=answer.error,
                proves_ready=endpoint.proves_ready,
                ready_codes=endpoint.ready,
                latency_s=answer.took_s,
            )
            if not seen.good:
                break
        return seen

    async def completion(self) -> CompletionSeen:
        """One real completion of the profile's prompt, of one token."""
        try:
            answer = await self._complete()
        except RoomError as error:
            answer = HttpAnswer(error=str(error))
        return read_completion(answer, self._clock.monotonic_s())

    async def _complete(self) -> HttpAnswer:
        prompt = self._ready.prompt or ""
        body: dict[str, object] = {"model": await self._named(), "max_tokens": 1}
        answer = await self._post("/v1/completions", {**body, "prompt": prompt})
        if answer.status in _NOT_THERE:  # some engines only chat
            messages = [{"role": "user", "content": prompt}]
            chat = await self._post("/v1/chat/completions", {**body, "messages": messages})
            if chat.status not in _NOT_THERE:
                return chat
        return answer

    async def _named(self) -> str:
        """The model's name: as the server lists it, where the command does not tell."""
        if self._model is None:
            answer = await ask_http(
                self._host, self._port, "/v1/models", asked_by=ASKED_BY, key=self._key,
                timeout_s=HTTP_TIMEOUT_S,
            )  # fmt: skip
            self._model = first_model(answer.body) if answer.status == 200 else None
        return self._model or "default"

    async def _post(self, path: str, body: object) -> HttpAnswer:
        return await ask_http(
            self._host, self._port, path, asked_by=ASKED_BY, body=body, key=self._key,
            timeout_s=COMPLETION_TIMEOUT_S,
        )  # fmt: skip


def endpoints_of(engine: Engine, ready: Readiness) -> tuple[Endpoint, ...]:
    """What must answer: the engine's own proof of readiness, and the profile's path besides.

    A custom server has no endpoint that is known: with a path of the profile only that one is
    asked, and none where the profile names another sign of readiness.
    """
    own: tuple[Endpoint, ...] = ()
    if engine.id is not EngineId.CUSTOM:
        proving = [endpoint for endpoint in engine.endpoints if endpoint.proves_ready]
        own = tuple(proving[:1] or engine.endpoints[:1])
    elif ready.path is None and ready.log is None and ready.prompt is None:
        own = engine.endpoints[:1]
    if ready.path is None:
        return own
    asked = Endpoint(ready.path, loading=(None,), ready=(ready.code,))
    return (*(endpoint for endpoint in own if endpoint.path != ready.path), asked)


def first_model(body: str) -> str | None:
    """The first name in an answer of `/v1/models`."""
    try:
        name = json.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def read_completion(answer: HttpAnswer, now_s: float) -> CompletionSeen:
    """Whether an answer is a completion."""
    if answer.status is None:
        return CompletionSeen(now_s, ok=False, detail=answer.error)
    if answer.status in (401, 403):
        return CompletionSeen(now_s, ok=False, detail=f"{answer.status}: {KEY_WANTED}")
    if not 200 <= answer.status < 300:
        return CompletionSeen(now_s, ok=False, detail=f"{answer.status} {answer.body[:200]}")
    try:
        body = json.loads(answer.body)
        complete = bool(body["choices"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return CompletionSeen(now_s, ok=False, detail="the answer is no completion")
    return CompletionSeen(now_s, ok=complete, detail="" if complete else "no choice in it")
