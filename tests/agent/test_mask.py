"""Secrets in argument vectors, environments and URLs are hidden; look-alikes are not."""

from __future__ import annotations

import pytest

from backends.agent.remote import mask

PLANTED = "PLANTED0secret"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", PLANTED],
        [f"--hf-token={PLANTED}"],
        ["-e", f"HF_TOKEN={PLANTED}"],
        [f"--env=PGPASSWORD={PLANTED}"],
        [f"http://user:{PLANTED}@host/x"],
        [f"https://host/model?revision=main&token={PLANTED}"],
        [f"https://bucket/model?X-Amz-Credential={PLANTED}&X-Amz-Signature={PLANTED}"],
        [f"https://blob/x?sv=1&sig={PLANTED}"],
        ["-H", f"Authorization: Bearer {PLANTED}"],
        ["--header", f"authorization: basic {PLANTED}=="],
    ],
)
def test_of_an_argument_vector(words: list[str]) -> None:
    shown = " ".join(mask.argv(words))
    assert PLANTED not in shown
    assert mask.HIDDEN in shown


@pytest.mark.parametrize(
    "name",
    ["AUTHORIZATION", "PGPASSWORD", "MYSQL_PWD", "ACCESSTOKEN", "HF_TOKEN", "X_API_KEY", "DB_AUTH"],
)
def test_of_an_environment(name: str) -> None:
    assert mask.environment({name: PLANTED}) == {name: mask.HIDDEN}


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-batched-tokens", "8192"],
        ["--max-total-tokens=20000"],
        ["--tokenizer", "/models/x"],
        ["--enable-metrics", "http://host/v1?limit=5&page=2"],
        ["--tokenizer-mode", "auto"],
        ["basic", "model"],
    ],
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert mask.argv(words) == words
