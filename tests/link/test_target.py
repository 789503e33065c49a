from __future__ import annotations

import pytest

from backends.errors import UsageError
from backends.link.target import DemoTarget, LocalTarget, SshTarget, parse_target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local", LocalTarget()),
        ("demo", DemoTarget("healthy")),
        ("demo:lost-gpu", DemoTarget("lost-gpu")),
        ("gpu01", SshTarget("gpu01")),
        ("root@gpu01.example.org", SshTarget("gpu01.example.org", "root")),
        ("me@10.0.0.7:2222", SshTarget("10.0.0.7", "me", 2222)),
        ("gpu01:22", SshTarget("gpu01", None, 22)),
        ("[fe80::1%eth0]:2222", SshTarget("fe80::1%eth0", None, 2222)),
        ("me@[2001:db8::7]", SshTarget("2001:db8::7", "me")),
        ("2001:db8::7", SshTarget("2001:db8::7")),
        ("ssh://me@gpu01:2222/", SshTarget("gpu01", "me", 2222)),
        ("user@corp@gpu01", SshTarget("gpu01", "user@corp")),
        (" gpu01 ", SshTarget("gpu01")),
    ],
)
def test_targets(text: str, expected: object) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=id",
        "gpu01:0",
        "gpu01:70000",
        "gpu01:ssh",
        "a b",
        "gpu01;id",
        "$(id)",
        "[::1",
        "[::1]22",
        "demo:",
        "demo:../x",
        "@gpu01",
        "-l@gpu01",
        "`id`@gpu01",
        "gpu01:٢٢",
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


def test_a_target_reads_back_as_itself() -> None:
    for text in ("gpu01", "me@gpu01:2222", "me@[2001:db8::7]:22"):
        assert str(parse_target(text)) == text
