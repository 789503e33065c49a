"""Which server it is, which route is taken, and how prompts get their length."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.bench.endpoint import Endpoint, Reply, parse_url
from backends.bench.identify import Server, identify
from backends.bench.plan import Plan
from backends.bench.planfile import parse
from backends.bench.prompts import WORDS, choose_route, prepare, single_tokens
from backends.bench.results import PromptSource
from backends.errors import RoomError, UsageError

PLAN = parse("[[steps]]\nload = 'closed'\nconcurrency = 1\n")


class Fake:
    """A server made of answers: path to a value, or to a function of the request's body."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"/" + path.replace("__", "/"): value for path, value in answers.items()}
        self.asked: list[tuple[str, Any]] = []

    async def __call__(
        self, method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        self.asked.append((path, body))
        answer = self.answers.get(path)
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(body)
        if answer is None:
            return Reply(404, b"{}", {})
        if isinstance(answer, int):
            return Reply(answer, b'{"error": "no"}', {})
        return Reply(200, json.dumps(answer).encode(), {})


def models(owner: str, **more: object) -> dict[str, object]:
    return {"data": [{"id": "m", "owned_by": owner, **more}]}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"v1__models": models("vllm", max_model_len=4096), "version": {"version": "0.33.0"}},
            Server("vllm", "0.33.0", "m", None, 4096),
        ),
        (
            {
                "v1__models": models("sglang"),
                "server_info": {
                    "internal_states": [{}],
                    "version": "0.5.23",
                    "tp_size": 8,
                    "api_key": "secret",
                },
            },
            Server("sglang", "0.5.23", "m", config={"version": "0.5.23", "tp_size": "8"}),
        ),
        (
            {
                "v1__models": models("llamacpp", meta={"n_vocab": 512}),
                "props": {
                    "default_generation_settings": {"n_ctx": 2048},
                    "total_slots": 4,
                    "build_info": "b1",
                },
            },
            Server("llamacpp", "b1", "m", 512, 2048, 4, {"total_slots": "4", "build_info": "b1"}),
        ),
        (
            {"v1__models": models("me"), "info": {"model_id": "x", "max_total_tokens": 9}},
            Server("tgi", "None", "x", None, 9),
        ),
        ({"v1__models": models("me")}, Server("unknown", None, "m")),
        ({}, Server()),
    ],
)
async def test_who_answers(answers: dict[str, Any], expected: Server) -> None:
    assert await identify(Fake(**answers)) == expected


def with_(**fields: Any) -> Plan:
    import msgspec

    return msgspec.structs.replace(PLAN, **fields)


@pytest.mark.parametrize(
    ("engine", "fields", "route"),
    [
        ("vllm", {}, "completions"),
        ("sglang", {}, "sglang"),
        ("llamacpp", {}, "llamacpp"),
        ("tgi", {}, "chat"),
        ("unknown", {}, "chat"),
        ("vllm", {"prompts": "text"}, "chat"),
        ("vllm", {"route": "chat"}, "chat"),
        ("tgi", {"route": "native"}, "tgi"),
        ("vllm", {"route": "native"}, "completions"),
    ],
)
def test_routes(engine: Any, fields: dict[str, Any], route: str) -> None:
    assert choose_route(with_(**fields), Server(engine)) == route


async def test_ids_without_a_tokenizer() -> None:
    fake = Fake(v1__completions={"usage": {"prompt_tokens": 2}})
    made = await prepare(PLAN, Server("vllm", model="m"), fake)
    assert made.source is PromptSource.IDS
    assert made.prompt == {"kind": "ids", "low": 1000, "high": 30_000}
    assert made.ignore_eos
    assert made.continuous_usage
    assert [path for path, _ in fake.asked] == ["/v1/completions"]


async def test_a_small_vocabulary_is_found_by_halving() -> None:
    fake = Fake(v1__completions=lambda body: 400 if max(body["prompt"]) >= 2048 else {"ok": 1})
    made = await prepare(PLAN, Server("vllm", model="m"), fake)
    high = made.prompt["high"]
    assert isinstance(high, int)
    assert 1024 <= high <= 2048
    assert made.prompt["low"] == high // 4


async def test_a_known_vocabulary_needs_no_probe() -> None:
    fake = Fake()
    made = await prepare(PLAN, Server("llamacpp", vocabulary=512), fake)
    assert made.prompt == {"kind": "ids", "low": 115, "high": 460}
    assert fake.asked == []


async def test_a_refused_key_is_said() -> None:
    with pytest.raises(RoomError) as caught:
        await prepare(PLAN, Server("vllm", model="m"), Fake(v1__completions=401))
    assert "--api-key-env" in caught.value.hint


def test_tgis_own_route_is_for_streams() -> None:
    with pytest.raises(UsageError, match="streams only"):
        choose_route(with_(route="native", streaming=False), Server("tgi"))


async def test_ids_where_there_are_none() -> None:
    with pytest.raises(UsageError, match="takes no token ids"):
        await prepare(with_(prompts="ids", route="chat"), Server("vllm"), Fake())


def usage_of(overhead: int, per_word: float) -> Callable[[Any], dict[str, Any]]:
    def answer(body: Any) -> dict[str, Any]:
        words = len(body["messages"][0]["content"].split())
        return {"usage": {"prompt_tokens": overhead + round(per_word * words)}}

    return answer


async def test_words_by_the_servers_tokenizer() -> None:
    fake = Fake(
        tokenize=lambda body: {"count": 1 + len(body["prompt"].split())},
        v1__chat__completions=usage_of(9, 1.0),
    )
    made = await prepare(with_(route="chat"), Server("vllm", model="m"), fake)
    assert made.source is PromptSource.SERVER_TOKENIZER
    assert made.prompt["overhead"] == 9
    assert made.prompt["per_item"] == 1.0
    assert made.prompt["words"] == list(WORDS)


async def test_words_that_are_no_single_tokens_are_left_out() -> None:
    whole = set(WORDS[16:80])

    async def count(text: str) -> int:
        return 1 + sum(1 if word in whole else 2 for word in text.split())

    kept, per_item = await single_tokens(count)
    assert kept == list(WORDS[16:80])
    assert per_item == 1.0


async def test_without_a_tokenizer_two_probes_calibrate() -> None:
    fake = Fake(v1__chat__completions=usage_of(12, 1.5))
    made = await prepare(with_(route="chat"), Server("tgi", model="m"), fake)
    assert made.source is PromptSource.CALIBRATED
    assert made.prompt["per_item"] == 1.5
    assert made.prompt["overhead"] == 12
    assert not made.ignore_eos
    assert "answers may be shorter" in made.notes[0]


async def test_words_by_a_local_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is asked as its own documentation has it; it is none of ours."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    read: list[str] = []

    class Tokenizer:
        @classmethod
        def from_file(cls, name: str) -> Tokenizer:
            read.append(name)
            return cls()

        def encode(self, text: str) -> SimpleNamespace:
            return SimpleNamespace(ids=[0, *text.split()])

    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Tokenizer))
    fake = Fake(v1__chat__completions=usage_of(9, 1.0))
    made = await prepare(with_(route="chat", tokenizer=str(path)), Server("tgi", model="m"), fake)
    assert read == [str(path)]
    assert made.source is PromptSource.LOCAL_TOKENIZER
    assert made.prompt["words"] == list(WORDS)
    assert made.prompt["overhead"] == 9


async def test_a_local_tokenizer_that_is_not_there(tmp_path: Any) -> None:
    plan = with_(route="chat", tokenizer=str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match="no tokenizer at"):
        await prepare(plan, Server("vllm", model="m"), Fake())


async def test_equal_prompts_have_equal_digests() -> None:
    server = Server("llamacpp", vocabulary=50_000)
    first = await prepare(PLAN, server, Fake())
    again = await prepare(with_(name="other"), server, Fake())
    seeded = await prepare(with_(seed=2), server, Fake())
    assert first.digest == again.digest != seeded.digest


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
        ("127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
        ("http://[::1]:9/v1/", Endpoint("::1", 9)),
        ("https://host/prefix/v1", Endpoint("host", 443, tls=True, base_path="/prefix")),
    ],
)
def test_urls(url: str, expected: Endpoint) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "http://u:p@x"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError):
        parse_url(url)


def test_an_endpoint_never_shows_its_key() -> None:
    endpoint = parse_url("http://x:1", {"authorization": "Bearer secret"})
    assert "secret" not in repr(endpoint)
    assert endpoint.url == "http://x:1"
