"""What the events of each route mean."""

from __future__ import annotations

import json

import pytest

from backends.bench.generator.answers import Answer


def read(route: str, *messages: object) -> Answer:
    answer = Answer(route)
    for number, message in enumerate(messages, 1):
        payload = message if isinstance(message, bytes) else json.dumps(message).encode()
        answer.event(number, payload)
    return answer


def chat(delta: dict[str, object], finish: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def test_the_role_chunk_is_no_token_and_an_empty_text_is() -> None:
    answer = read(
        "chat",
        chat({"role": "assistant", "content": ""}),
        chat({"content": ""}),
        chat({"content": "a"}),
        chat({}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}},
        b"[DONE]",
    )
    assert answer.arrivals == [2, 3]
    assert (answer.events, answer.finish, answer.ended) == (2, "stop", True)
    assert (answer.prompt_tokens, answer.output_tokens) == (5, 3)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_token_before_the_answer(name: str) -> None:
    answer = read("chat", chat({name: "hm"}), chat({"content": "yes"}, "stop"))
    assert answer.arrivals == [1, 2]
    assert answer.first_answer == 2
    assert answer.reasoned


def test_a_tool_call_is_an_answer() -> None:
    answer = read("chat", chat({"tool_calls": [{"index": 0}]}))
    assert (answer.events, answer.first_answer) == (1, 1)


def test_running_counts_give_the_tokens_of_each_event() -> None:
    answer = read(
        "chat",
        chat({"content": "ab"}, usage={"completion_tokens": 2, "prompt_tokens": 1}),
        chat({"content": "cde"}, usage={"completion_tokens": 5, "prompt_tokens": 1}),
    )
    assert answer.totals == [2, 5]


def test_details_of_usage() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    answer = read("chat", {"choices": [], "usage": usage})
    assert (answer.cached_tokens, answer.reasoning_tokens) == (4, 3)


def test_completions_with_token_ids() -> None:
    answer = read(
        "completions",
        {"choices": [{"text": "", "token_ids": [5, 6], "finish_reason": None}]},
        {"choices": [{"text": "x", "token_ids": [7], "finish_reason": "length"}]},
    )
    assert (answer.events, answer.total, answer.from_ids) == (2, 3, True)
    assert answer.finish == "length"


def test_sglang_counts_itself() -> None:
    def event(total: int, finish: object = None) -> dict[str, object]:
        meta = {"completion_tokens": total, "prompt_tokens": 4, "finish_reason": finish}
        return {"text": "so far", "meta_info": {**meta, "cached_tokens": 2}}

    answer = read("sglang", event(1), event(4), event(4), event(5, {"type": "length"}), b"[DONE]")
    assert answer.totals == [1, 4, 5]
    assert (answer.output_tokens, answer.prompt_tokens, answer.cached_tokens) == (5, 4, 2)
    assert answer.finish == "length"


def test_sglang_abort_is_an_error() -> None:
    meta = {"completion_tokens": 0, "finish_reason": {"type": "abort", "message": "too long"}}
    assert read("sglang", {"text": "", "meta_info": meta}).error == "too long"


def test_llamacpp_ends_without_done() -> None:
    answer = read(
        "llamacpp",
        {"content": "a", "tokens": [1], "stop": False},
        {"content": "b", "tokens": [2], "stop": False},
        {
            "content": "",
            "stop": True,
            "stop_type": "limit",
            "tokens_predicted": 2,
            "tokens_evaluated": 8,
            "timings": {"prompt_ms": 20.0, "predicted_per_token_ms": 5.0, "cache_n": 0},
        },
    )
    assert (answer.events, answer.output_tokens, answer.prompt_tokens) == (2, 2, 8)
    assert (answer.finish, answer.ended, answer.cached_tokens) == ("length", True, 0)
    assert (answer.server_ttft_s, answer.server_tpot_s) == (0.02, 0.005)


def test_llamacpp_text_that_was_held_back_is_no_token() -> None:
    answer = read(
        "llamacpp",
        {"content": "a", "tokens": [1], "tokens_predicted": 1},
        {"content": "b", "tokens": [4], "tokens_predicted": 4},
        {"content": "\ufffd", "tokens": [], "tokens_predicted": 4},
    )
    assert (answer.events, answer.totals) == (2, [1, 4])


def test_tgi() -> None:
    answer = read(
        "tgi",
        {"token": {"id": 1, "text": "a"}, "generated_text": None, "details": None},
        {
            "token": {"id": 2, "text": "b"},
            "generated_text": "ab",
            "details": {"finish_reason": "length", "generated_tokens": 2},
        },
    )
    assert (answer.events, answer.output_tokens, answer.finish) == (2, 2, "length")


@pytest.mark.parametrize(
    "message",
    [
        {"error": {"message": "the engine is dead"}},
        {"error": "the engine is dead"},
        {"error": {"error": {"detail": "the engine is dead"}}},
    ],
)
def test_an_error_event(message: dict[str, object]) -> None:
    assert read("chat", message).error == "the engine is dead"


@pytest.mark.parametrize(
    "payload", [b"<html>", b"[1]", b'"x"', b'{"choices": 5}', b'{"choices": ["x"]}', b"\xff{"]
)
def test_what_is_no_event_of_the_route(payload: bytes) -> None:
    assert read("chat", payload).broken


def test_events_of_one_read_are_one_arrival() -> None:
    answer = Answer("chat")
    for _ in range(3):
        answer.event(7, json.dumps(chat({"content": "a"})).encode())
    assert (answer.arrivals, answer.counts, answer.events) == ([7], [3], 3)
