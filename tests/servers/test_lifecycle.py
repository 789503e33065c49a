"""The state of a server from its witnesses: a table of situations, and what must never happen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.servers import testimony
from backends.servers.engines import ENGINES, EngineId, Phase
from backends.servers.lifecycle import (
    ANSWERING,
    Assessment,
    Policy,
    Requirements,
    State,
    assess,
    requirements,
)
from backends.servers.progress import Progress
from backends.servers.verdict import Outcome, Verdict
from backends.servers.witnesses import (
    ActivitySeen,
    CompletionSeen,
    HttpSeen,
    KernelSeen,
    LinkSeen,
    LogSeen,
    PortOwner,
    PortSeen,
    ProcessSeen,
    Witness,
    Witnesses,
)

NOW = 1000.0
POLICY = Policy()


def verdict(
    phase: Phase = Phase.LOADING,
    outcome: Outcome = Outcome.LOADING,
    cause: str | None = None,
    title: str = "it failed",
) -> Verdict:
    return Verdict(
        engine=EngineId.VLLM,
        version=None,
        outcome=outcome,
        phase=phase,
        ready_line=9 if phase is Phase.READY else None,
        cause=cause,
        evidence=None,
        title=title,
        remedies=(),
        reference="",
        warnings=(),
    )


def log(
    phase: Phase = Phase.LOADING, outcome: Outcome = Outcome.LOADING, **more: float | Progress
) -> LogSeen:
    failed = outcome in (Outcome.CRASH, Outcome.STALLED)
    found = verdict(phase, outcome, "cuda-oom" if failed else None, "out of GPU memory")
    return LogSeen(NOW, found, **more)  # type: ignore[arg-type]


ALIVE = ProcessSeen(NOW, alive=True, pid=7, members=3)
GOOD = HttpSeen(NOW, "/health", 200)
REFUSED = HttpSeen(NOW, "/health", None, "refused")
OURS = PortSeen(NOW, 8000, PortOwner.OURS, "7 vllm")
STRANGER = PortSeen(NOW, 8000, PortOwner.STRANGER, "99 other")
READY = Witnesses(
    run_id="a",
    started_at_s=NOW - 400,
    link=LinkSeen(NOW, up=True),
    process=ALIVE,
    log=log(Phase.READY, Outcome.READY),
    http=GOOD,
    port=OURS,
)
LOADING = replace(READY, log=log(), http=REFUSED, port=None)


def was_ready(seen: Witnesses = READY, at_s: float = NOW) -> Assessment:
    found = assess(seen, POLICY, at_s)
    assert found.was_ready
    return found


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (Witnesses(), State.STOPPED),
        (Witnesses(process=replace(ALIVE, alive=False)), State.STOPPED),
        (READY, State.READY),
        (replace(READY, http=replace(GOOD, running=3)), State.SERVING),
        (replace(READY, log=log(Phase.READY, Outcome.READY, served_at_s=NOW - 2)), State.SERVING),
        (replace(LOADING, log=None), State.LAUNCHING),
        (replace(LOADING, log=log(Phase.LAUNCHING)), State.LAUNCHING),
        (LOADING, State.LOADING),
        (replace(LOADING, http=replace(GOOD, code=503)), State.LOADING),
        (replace(LOADING, log=log(Phase.HTTP)), State.WARMING),
        (replace(LOADING, log=log(Phase.WARMING)), State.WARMING),
        # One witness short of ready.
        (replace(READY, http=REFUSED), State.WARMING),
        (replace(READY, http=replace(GOOD, at_s=NOW - 60)), State.WARMING),
        (replace(READY, port=STRANGER), State.WARMING),
        (replace(READY, port=None), State.WARMING),
        (replace(READY, process=replace(ALIVE, at_s=NOW - 60)), State.WARMING),
        (replace(LOADING, http=GOOD, port=STRANGER), State.LOADING),
        # Ready by HTTP while the log lags: ready, and said.
        (replace(READY, log=log(Phase.CAPTURING)), State.READY),
        (replace(READY, log=None), State.READY),
        # The end.
        (replace(READY, stop_asked_at_s=NOW - 3), State.STOPPING),
        (
            replace(READY, stop_asked_at_s=NOW - 3, process=ProcessSeen(NOW, alive=False)),
            State.STOPPED,
        ),
        (
            replace(
                READY, stop_asked_at_s=NOW - 3, process=ProcessSeen(NOW, alive=False, members=2)
            ),
            State.STOPPING,
        ),
        (replace(READY, process=ProcessSeen(NOW, alive=False, exit_code=0)), State.EXITED),
        (replace(READY, process=ProcessSeen(NOW, alive=False, exit_code=1)), State.CRASHED),
        (replace(READY, process=ProcessSeen(NOW, alive=False, exit_code=-9)), State.CRASHED),
        (replace(READY, process=ProcessSeen(NOW, alive=False)), State.CRASHED),
        (
            replace(
                LOADING,
                log=log(Phase.LOADING, Outcome.CRASH),
                process=ProcessSeen(NOW, alive=False, exit_code=0),
            ),
            State.CRASHED,
        ),
        (
            replace(
                READY,
                log=log(Phase.READY, Outcome.STOPPED),
                process=ProcessSeen(NOW, alive=False, exit_code=143),
            ),
            State.EXITED,
        ),
        (replace(READY, process=replace(ALIVE, dead_workers=("TP1",))), State.CRASHED),
        # Out of sight.
        (replace(READY, link=LinkSeen(NOW, up=False)), State.LOST),
        (replace(READY, link=LinkSeen(NOW - 90, up=True)), State.LOST),
    ],
)
def test_each_situation_has_its_state(seen: Witnesses, state: State) -> None:
    assert assess(seen, POLICY, NOW).state is state


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"http": replace(GOOD, code=503)}, State.DEGRADED, "503"),
        ({"port": STRANGER}, State.DEGRADED, "99 other"),
        (
            {"completion": CompletionSeen(NOW, ok=False, detail="timeout")},
            State.DEGRADED,
            "timeout",
        ),
        ({"http": REFUSED}, State.DEGRADED, "refused"),
        ({"log": log(Phase.READY, Outcome.CRASH)}, State.DEGRADED, "out of GPU memory"),
        ({"log": log(Phase.READY, Outcome.CRASH), "http": REFUSED}, State.CRASHED, "out of GPU"),
    ],
)
def test_what_was_ready_is_degraded_and_not_starting_again(
    change: dict[str, object], state: State, words: str
) -> None:
    found = assess(replace(READY, **change), POLICY, NOW, was_ready())  # type: ignore[arg-type]
    assert found.state is state
    assert words in found.why


def test_no_good_answer_for_long_is_unresponsive() -> None:
    later = NOW + 40
    seen = replace(
        READY,
        link=LinkSeen(later, up=True),
        process=replace(ALIVE, at_s=later),
        port=replace(OURS, at_s=later),
        http=HttpSeen(later, "/health", None, "timeout"),
    )
    found = assess(seen, POLICY, later, was_ready())
    assert found.state is State.UNRESPONSIVE
    back = assess(replace(seen, http=replace(GOOD, at_s=later)), POLICY, later, found)
    assert back.state is State.READY


def test_a_failure_in_the_log_is_a_crash_once_the_process_has_had_its_time() -> None:
    seen = replace(LOADING, log=log(Phase.LOADING, Outcome.CRASH))
    first = assess(seen, POLICY, NOW)
    assert first.state is State.LOADING
    assert "the log shows a failure, while the process lives" in first.disagreements
    later = NOW + POLICY.dying_s + 1
    seen = replace(
        seen, link=LinkSeen(later, up=True), process=replace(ALIVE, at_s=later), http=None
    )
    found = assess(seen, POLICY, later, first)
    assert found.state is State.CRASHED
    assert found.cause == "cuda-oom"


def test_killed_without_a_word_and_the_kernels_word() -> None:
    gone = ProcessSeen(NOW, alive=False, exit_code=-9)
    found = assess(replace(LOADING, process=gone), POLICY, NOW)
    assert found.cause == "killed-no-message"
    found = assess(replace(LOADING, process=replace(gone, oom_killed=True)), POLICY, NOW)
    assert found.cause == "host-oom-killed"


def test_the_state_of_another_run_is_forgotten() -> None:
    found = assess(replace(LOADING, run_id="b"), POLICY, NOW, was_ready())
    assert found.state is State.LOADING
    assert not found.was_ready


def test_answers_from_before_the_start_do_not_count() -> None:
    seen = replace(READY, started_at_s=NOW + 1, run_id="b")
    assert assess(seen, POLICY, NOW + 2).state not in ANSWERING


def test_a_lost_server_remembers_what_it_was() -> None:
    lost = assess(replace(READY, link=LinkSeen(NOW, up=False)), POLICY, NOW, was_ready())
    assert lost.last_known is State.READY
    still = assess(replace(READY, link=LinkSeen(NOW, up=False)), POLICY, NOW + 5, lost)
    assert still.last_known is State.READY
    assert still.since_s == lost.since_s


def test_sglang_needs_its_log_or_a_completion_to_agree() -> None:
    policy = Policy(requirements=requirements(ENGINES[EngineId.SGLANG]))
    seen = replace(READY, log=log(Phase.WARMING))
    assert assess(seen, policy, NOW).state is State.WARMING
    assert assess(replace(seen, completion=CompletionSeen(NOW, ok=True)), policy, NOW).state in (
        ANSWERING
    )
    assert assess(READY, policy, NOW).state is State.READY


def test_a_profile_can_ask_for_a_completion() -> None:
    policy = Policy(requirements=requirements(ENGINES[EngineId.VLLM], completion=True))
    found = assess(READY, policy, NOW)
    assert found.state is State.WARMING
    assert "a completion" in found.why


def test_an_endpoint_that_proves_nothing_is_not_enough() -> None:
    seen = replace(READY, http=replace(GOOD, proves_ready=False), log=log(Phase.HTTP))
    assert assess(seen, POLICY, NOW).state is State.WARMING


def test_a_port_that_another_process_answers_is_said() -> None:
    found = assess(replace(READY, port=STRANGER), POLICY, NOW)
    assert any("another process and answers" in words for words in found.disagreements)


def test_a_log_that_lags_and_a_log_that_runs_ahead_are_said() -> None:
    ahead = assess(replace(READY, http=REFUSED), POLICY, NOW)
    assert any("the log says ready, while /health says refused" in w for w in ahead.disagreements)
    behind = assess(replace(READY, log=log(Phase.CAPTURING)), POLICY, NOW)
    assert any("the log has not said so" in words for words in behind.disagreements)


def test_every_witness_is_heard_with_its_time_and_old_answers_are_marked() -> None:
    seen = replace(
        READY,
        http=replace(GOOD, at_s=NOW - 60),
        activity=ActivitySeen(NOW, cpu_at_s=NOW - 3),
        completion=CompletionSeen(NOW, ok=True),
        kernel=KernelSeen(NOW, "NVRM: Xid 31", xid=31),
        stop_asked_at_s=NOW,
    )
    said = {each.witness: each for each in assess(seen, POLICY, NOW).testimonies}
    assert set(said) == set(Witness)
    assert said[Witness.HTTP].stale
    assert not said[Witness.PROCESS].stale
    assert said[Witness.ACTIVITY].said == "CPU time 3 s ago"
    assert testimony.testimonies(Witnesses(), lambda _: True) == ()


# --- stalls ------------------------------------------------------------------------------------


def quiet_since(at_s: float) -> Witnesses:
    return replace(
        LOADING,
        started_at_s=NOW - 5000,
        log=log(Phase.LOADING, grew_at_s=at_s, phase_since_s=at_s),
        activity=ActivitySeen(NOW, cpu_at_s=at_s, disk_at_s=at_s - 5),
    )


def test_a_long_silence_of_all_witnesses_is_a_stall() -> None:
    found = assess(quiet_since(NOW - 700), POLICY, NOW)
    assert found.stall is not None
    assert found.stall.quiet_s == pytest.approx(700)
    assert assess(quiet_since(NOW - 500), POLICY, NOW).stall is None


def test_a_quiet_log_alone_is_no_stall() -> None:
    seen = quiet_since(NOW - 3000)
    moving = replace(seen, activity=ActivitySeen(NOW, cpu_at_s=NOW - 3000, disk_at_s=NOW - 2))
    assert assess(moving, POLICY, NOW).stall is None
    assert assess(replace(seen, activity=None), POLICY, NOW).stall is None


def test_the_limit_is_learned_from_earlier_starts() -> None:
    policy = Policy(history={Phase.LOADING: [80.0, 100.0, 90.0]})
    assert assess(quiet_since(NOW - 300), policy, NOW).stall is not None
    assert assess(quiet_since(NOW - 260), policy, NOW).stall is None
    slow = Policy(history={Phase.LOADING: [800.0]})
    assert assess(quiet_since(NOW - 2000), slow, NOW).stall is None


# --- never -------------------------------------------------------------------------------------

times = st.floats(NOW - 120, NOW)
maybe = st.none()
witnesses = st.builds(
    Witnesses,
    run_id=st.sampled_from(["a", "b"]),
    started_at_s=maybe | st.floats(NOW - 500, NOW),
    stop_asked_at_s=maybe | times,
    link=maybe | st.builds(LinkSeen, times, up=st.booleans()),
    process=maybe
    | st.builds(
        ProcessSeen,
        times,
        alive=st.booleans(),
        members=st.integers(0, 9),
        dead_workers=st.sampled_from([(), ("TP1",)]),
        exit_code=maybe | st.integers(-15, 255),
        oom_killed=st.booleans(),
    ),
    log=maybe
    | st.builds(
        LogSeen,
        times,
        st.builds(verdict, st.sampled_from(list(Phase)), st.sampled_from(list(Outcome))),
        grew_at_s=maybe | times,
        served_at_s=maybe | times,
    ),
    http=maybe
    | st.builds(
        HttpSeen,
        times,
        st.just("/health"),
        maybe | st.sampled_from([200, 404, 500, 503]),
        proves_ready=st.booleans(),
        running=maybe | st.integers(0, 5),
    ),
    port=maybe | st.builds(PortSeen, times, st.just(8000), st.sampled_from(list(PortOwner))),
    activity=maybe | st.builds(ActivitySeen, times, cpu_at_s=maybe | times),
    completion=maybe | st.builds(CompletionSeen, times, ok=st.booleans()),
)
policies = st.builds(
    Policy,
    requirements=st.builds(
        Requirements, log=st.booleans(), completion=st.booleans(), port_owner=st.booleans()
    ),
)


@settings(max_examples=400)
@given(seen=witnesses, before=maybe | witnesses, policy=policies)
def test_never_ready_unless_every_required_witness_says_so(
    seen: Witnesses, before: Witnesses | None, policy: Policy
) -> None:
    previous = assess(before, policy, NOW - 1) if before is not None else None
    found = assess(seen, policy, NOW, previous)
    if found.state not in ANSWERING:
        return
    needs = policy.requirements
    assert seen.started_at_s is not None
    oldest = max(NOW - policy.fresh_s, seen.started_at_s)
    assert seen.stop_asked_at_s is None
    assert seen.link is None or seen.link.up
    assert seen.process is not None
    assert seen.process.alive
    assert not seen.process.dead_workers
    assert seen.process.at_s >= oldest
    assert seen.http is not None
    assert seen.http.code == 200
    assert seen.http.at_s >= oldest
    if needs.port_owner:
        assert seen.port is not None
        assert seen.port.owner is PortOwner.OURS
    if seen.port is not None and seen.port.at_s >= oldest:
        assert seen.port.owner is not PortOwner.STRANGER
    completed = seen.completion is not None and seen.completion.ok
    log_ready = seen.log is not None and seen.log.phase is Phase.READY
    assert completed or not needs.completion
    assert completed or log_ready or not needs.log
    assert completed or log_ready or seen.http.proves_ready
    assert seen.log is None or seen.log.verdict.outcome not in (Outcome.CRASH, Outcome.STALLED)


@settings(max_examples=200)
@given(seen=witnesses, before=maybe | witnesses, policy=policies)
def test_every_situation_has_a_state_with_words(
    seen: Witnesses, before: Witnesses | None, policy: Policy
) -> None:
    previous = assess(before, policy, NOW - 1) if before is not None else None
    found = assess(seen, policy, NOW, previous)
    assert found.why
    assert found.since_s <= NOW
    again = assess(seen, policy, NOW, found)
    if found.state is not State.LOST:
        assert again.state is found.state
    assert again.since_s == found.since_s


def test_an_answer_from_before_the_end_is_no_contradiction() -> None:
    gone = ProcessSeen(NOW, alive=False)
    words = "its process is gone, and something still answers"
    before = replace(READY, process=gone, http=replace(GOOD, at_s=NOW - 1), stop_asked_at_s=NOW - 3)
    assert words not in assess(before, POLICY, NOW).disagreements
    assert words in assess(replace(before, http=GOOD), POLICY, NOW).disagreements
