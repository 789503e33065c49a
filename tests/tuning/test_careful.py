"""When the host's name must be typed: in production, while something serves, or may."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pytest

from backends.config import HostConfig
from backends.model import HostSnapshot
from backends.session import HostSession
from backends.tuning.machines import Machines, needs_name
from backends.verdicts import judge
from tests.ui.fakes import gpu, snapshot


@dataclass
class Host:
    """As much of a session as is asked here."""

    config: HostConfig
    snapshot: HostSnapshot

    @property
    def name(self) -> str:
        return self.config.name


IDLE = replace(gpu(0).readings, memory_used_bytes=600 << 20)
FREE = snapshot("gpu01", [replace(gpu(0), readings=IDLE)], processes=())


def why(known: HostSnapshot, *, production: bool = False, below: HostSnapshot | None = None) -> str:
    host = session(HostConfig(name="gpu01", production=production), known)
    other = None if below is None else session(HostConfig(name="pve"), below)
    return needs_name(Machines(host, other))


def session(config: HostConfig, known: HostSnapshot) -> HostSession:
    judged = replace(known, verdicts=judge(known, 10_000.0))
    return cast(HostSession, Host(config, judged))


def test_an_idle_host_takes_a_yes() -> None:
    assert why(FREE) == ""
    assert why(FREE, below=FREE) == ""


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (snapshot("gpu01", [gpu(0)]), "processes hold GPUs of gpu01"),
        (replace(FREE, processes_listed=False), "what runs on the GPUs of gpu01 is not known"),
        (snapshot("gpu01", [gpu(0)], processes=()), "a GPU of gpu01 is in use: "),
    ],
)
def test_one_that_serves_or_may_serve_is_named(known: HostSnapshot, words: str) -> None:
    assert words in why(known)
    assert words.replace("gpu01", "pve") in why(FREE, below=known), "or the one below it"


def test_one_without_gpus_takes_a_yes() -> None:
    assert why(replace(FREE, gpus=(), processes_listed=False)) == ""


def test_production_comes_first() -> None:
    assert why(snapshot("gpu01", [gpu(0)]), production=True) == "gpu01 is marked production"
