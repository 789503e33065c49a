"""The life of one host's link, with everything that real hosts do rarely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backends import lifeline
from backends.backoff import Backoff
from backends.clock import SYSTEM_CLOCK
from backends.config import HostConfig
from backends.errors import (
    AgentError,
    AuthenticationFailed,
    HostKeyChanged,
    LinkError,
    ReadOnlyError,
    RequestTimeout,
)
from backends.events import (
    AgentRestarted,
    HostEvent,
    HostKeyRefused,
    LinkLost,
    LinkRefused,
    LinkRestored,
)
from backends.feeds import Journal
from backends.link.base import NobodyToAsk
from backends.model import Alert, LinkState
from backends.session import HostSession
from tests.link.fakes import FakeHost, FakeTransport, until


class Room:
    """What a session reports to."""

    def __init__(
        self, transport: FakeTransport, host: FakeHost, config: HostConfig, read_only: bool
    ) -> None:
        self.transport = transport
        self.host = host
        self.journal = Journal()
        self.events: list[HostEvent] = []
        self.alerts: list[Alert] = []
        self.session = HostSession(
            config,
            interval_s=1.0,
            pcie=False,
            reach=transport.reach,
            start=host.start,
            prompter=NobodyToAsk(),
            clock=SYSTEM_CLOCK,
            journal=self.journal,
            report=self.events.append,
            notice=self.alerts.append,
            read_only=read_only,
        )

    @property
    def state(self) -> LinkState:
        return self.session.snapshot.link.state

    def kinds(self) -> list[type[HostEvent]]:
        return [type(event) for event in self.events]


@asynccontextmanager
async def room(
    transport: FakeTransport | None = None,
    host: FakeHost | None = None,
    config: HostConfig | None = None,
    *,
    read_only: bool = False,
) -> AsyncIterator[Room]:
    made = Room(
        transport or FakeTransport(),
        host or FakeHost(),
        config or HostConfig(name="gpu01"),
        read_only,
    )
    task = asyncio.create_task(made.session.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert made.state is LinkState.CLOSED


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off and limits in hundredths of a second."""
    monkeypatch.setattr(lifeline, "Backoff", lambda: Backoff(base_s=0.01, cap_s=0.05))
    monkeypatch.setattr(lifeline, "HEARTBEAT_S", 0.02)


async def test_becomes_live_and_keeps_the_last_values_when_lost() -> None:
    async with room() as r:
        await until(lambda: r.state is LinkState.LIVE)
        r.host.source.sample()
        assert r.session.snapshot.readings.cpu_pct == 12.5
        r.transport.outcomes = [LinkError("still away")] * 3
        r.transport.cut()
        await until(lambda: r.state is LinkState.LOST)
        link = r.session.snapshot.link
        assert "cable pulled" in link.error or "still away" in link.error
        assert link.retry_at_s is not None
        assert r.session.snapshot.readings.cpu_pct == 12.5
        await until(lambda: r.state is LinkState.LIVE)
        assert r.kinds() == [LinkLost, LinkRestored]
        assert r.session.snapshot.link.error == ""
        assert r.session.snapshot.link.attempt == 0


async def test_tries_for_ever_and_counts() -> None:
    transport = FakeTransport(*[LinkError("refused", "port 22", "start sshd")] * 8)
    async with room(transport) as r:
        await until(lambda: r.session.snapshot.link.attempt >= 5)
        await until(lambda: r.state is LinkState.LIVE)
        assert transport.connects == 9
        assert r.kinds() == [], "a host that was never live cannot be lost"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HostKeyChanged("changed", hint="ssh-keygen -R"), HostKeyRefused),
        (AuthenticationFailed("not let in"), LinkRefused),
    ],
)
async def test_what_needs_a_person_waits_for_one(error: LinkError, kind: type) -> None:
    async with room(FakeTransport(error)) as r:
        await until(lambda: r.state is LinkState.REFUSED)
        await asyncio.sleep(0.1)
        assert r.transport.connects == 1
        assert r.kinds() == [kind]
        assert r.session.snapshot.link.hint == error.hint
        r.session.retry_now()
        await until(lambda: r.state is LinkState.LIVE)


async def test_a_host_that_let_us_in_before_is_tried_again() -> None:
    async with room() as r:
        await until(lambda: r.state is LinkState.LIVE)
        r.transport.outcomes = [AuthenticationFailed("homes are not mounted yet")]
        r.transport.cut()
        await until(lambda: r.transport.connects == 3)
        await until(lambda: r.state is LinkState.LIVE)
        assert LinkRefused not in r.kinds()


async def test_retry_now_cuts_the_waiting_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "Backoff", lambda: Backoff(base_s=3600.0, cap_s=3600.0))
    async with room(FakeTransport(LinkError("down"))) as r:
        await until(lambda: r.state is LinkState.LOST)
        r.session.retry_now()
        await until(lambda: r.state is LinkState.LIVE)


async def test_a_mistake_of_ours_is_shown_and_is_not_the_end() -> None:
    async with room(FakeTransport(ZeroDivisionError("x / 0"))) as r:
        await until(lambda: "ZeroDivisionError: x / 0" in r.session.snapshot.link.error)
        await until(lambda: r.state is LinkState.LIVE)


async def test_an_agent_that_ends_is_started_again_on_the_same_connection() -> None:
    async with room() as r:
        await until(lambda: r.state is LinkState.LIVE)
        r.host.source.end("killed by signal 9")
        await until(lambda: AgentRestarted in r.kinds())
        assert r.transport.connects == 1
        assert len(r.host.sources) == 2
        assert r.state is LinkState.LIVE
        assert LinkLost not in r.kinds()


async def test_an_agent_that_answers_no_heartbeat_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifeline, "HUNG_S", 0.05)
    async with room() as r:
        await until(lambda: r.state is LinkState.LIVE)
        r.host.source.answers = False
        await until(lambda: AgentRestarted in r.kinds())
        assert r.transport.connects == 1


async def test_stale_after_three_intervals_and_live_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "STALE_SLACK_S", 0.0)
    async with room(config=HostConfig(name="gpu01", interval_s=0.05)) as r:
        await until(lambda: r.state is LinkState.STALE)
        r.host.source.sample()
        assert r.state is LinkState.LIVE
        assert r.host.intervals == [0.05]


async def test_an_agent_that_cannot_be_started_is_told_with_its_remedy() -> None:
    host = FakeHost(AgentError("no python3", "", "install python3"))
    async with room(host=host) as r:
        await until(lambda: "no python3" in r.session.snapshot.link.error)
        await until(lambda: r.state is LinkState.LIVE)
        entries = [entry for entry in r.journal if entry.what == "start the agent"]
        assert [entry.result for entry in entries] == ["no python3", "ok, via agent"]
        assert "python3 -u -c" in entries[0].request


async def test_the_round_trip_is_measured() -> None:
    async with room() as r:
        await until(lambda: r.session.snapshot.link.round_trip_s is not None)


async def test_a_snapshot_is_the_same_object_until_something_changes() -> None:
    async with room() as r:
        await until(lambda: r.state is LinkState.LIVE)
        first = r.session.snapshot
        if r.session.version == first.version:
            assert r.session.snapshot is first
        r.host.source.sample()
        assert r.session.snapshot is not first
        assert r.session.snapshot.version > first.version


class TestRequests:
    async def test_written_down_with_result_and_without_secrets(self) -> None:
        async with room() as r:
            await until(lambda: r.state is LinkState.LIVE)
            r.host.source.answer = {"pid": 7}
            params = {"argv": ["a"], "env": {"HF_TOKEN": "hf_abc", "PATH": "/bin"}}
            answer = await r.session.request(
                "jobs.start", params, asked_by="server.start", what="start", changes_host=True
            )
            assert answer == {"pid": 7}
            assert r.host.source.asked[-1] == ("jobs.start", params)
            entry = list(r.journal)[-1]
            assert (entry.asked_by, entry.result, entry.changes_host) == (
                "server.start",
                "ok",
                True,
            )
            assert entry.took_s is not None
            assert "hf_abc" not in entry.request
            assert '"PATH": "/bin"' in entry.request

    async def test_an_error_is_written_down_too(self) -> None:
        async with room() as r:
            await until(lambda: r.state is LinkState.LIVE)
            r.host.source.answers = False
            with pytest.raises(RequestTimeout):
                await r.session.request("x.y", asked_by="test", what="try")
            assert "no answer" in list(r.journal)[-1].result

    async def test_without_a_link(self) -> None:
        async with room(FakeTransport(HostKeyChanged("changed"))) as r:
            await until(lambda: r.state is LinkState.REFUSED)
            with pytest.raises(LinkError, match="no link"):
                await r.session.request("x.y", asked_by="test", what="try")

    @pytest.mark.parametrize("how", ["production", "read-only"])
    async def test_read_only_until_unlocked(self, how: str) -> None:
        config = HostConfig(name="gpu01", production=how == "production")
        async with room(config=config, read_only=how == "read-only") as r:
            await until(lambda: r.state is LinkState.LIVE)
            with pytest.raises(ReadOnlyError):
                await r.session.request("x.y", asked_by="t", what="kill", changes_host=True)
            assert all(method != "x.y" for method, _ in r.host.source.asked)
            assert "read-only" in list(r.journal)[-1].result
            await r.session.request("x.z", asked_by="t", what="look")
            before = r.session.version
            r.session.unlock(asked_by="host.unlock")
            assert list(r.journal)[-1].asked_by == "host.unlock"
            assert not r.session.read_only
            assert r.session.version > before
            await r.session.request("x.y", asked_by="t", what="kill", changes_host=True)
            r.session.lock()
            with pytest.raises(ReadOnlyError):
                await r.session.request("x.y", asked_by="t", what="kill", changes_host=True)

    async def test_the_interval_outlives_a_reconnect(self) -> None:
        async with room() as r:
            await until(lambda: r.state is LinkState.LIVE)
            r.host.source.answer = {"seconds": 0.5}
            assert await r.session.set_interval(0.4, asked_by="host.faster") == 0.5
            assert list(r.journal)[-1].asked_by == "host.faster"
            assert r.session.snapshot.interval_s == 0.5
            r.transport.cut()
            await until(lambda: len(r.host.sources) == 2)
            assert r.host.intervals == [1.0, 0.4]
