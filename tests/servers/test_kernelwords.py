"""The kernel log as a witness of how a server ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backends.model import KernelEvent
from backends.servers.kernelwords import kernel_seen
from backends.servers.lifecycle import Policy, State, assess
from backends.servers.witnesses import KernelSeen, ProcessSeen, Witness, Witnesses

AT = datetime(2026, 12, 2, 10, 0, tzinfo=UTC)
BUS = "0000:01:00.0"
OOM = KernelEvent(AT, "oom", "Out of memory: Killed process 4711 (sglang::sched) total-vm:1kB")
OOM_TASK = KernelEvent(AT, "oom", "oom-kill:constraint=CONSTRAINT_MEMCG,task=p,pid=4711,uid=0")
FAULT = KernelEvent(
    AT, "xid", "NVRM: Xid (PCI:0000:01:00): 31, pid=4712, name=python3, MMU Fault", BUS, 31
)
OFF = KernelEvent(
    AT, "xid", "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.",
    BUS, 79,
)  # fmt: skip


def seen(*events: KernelEvent, late_s: float = 1.0) -> KernelSeen | None:
    return kernel_seen(events, {4711, 4712}, {BUS}, AT + timedelta(seconds=late_s), 100.0)


@pytest.mark.parametrize("event", [OOM, OOM_TASK])
def test_a_kill_for_want_of_memory_is_known_by_the_pid(event: KernelEvent) -> None:
    found = seen(event)
    assert found is not None
    assert found.oom
    other = replace(event, text=event.text.replace("4711", "99"))
    assert seen(other) is None, "somebody else's"


def test_an_xid_is_known_by_the_pid_or_by_the_gpu_at_that_time() -> None:
    assert seen(FAULT, late_s=9000.0) is not None, "it names the process"
    assert seen(replace(FAULT, text=FAULT.text.replace("4712", "99"))) is None
    found = seen(OFF)
    assert found is not None
    assert found.xid == 79
    assert seen(OFF, late_s=9000.0) is None, "long ago"
    assert seen(replace(OFF, bus_id="0000:02:00.0")) is None, "another GPU"


def test_it_gives_a_death_without_a_word_its_cause() -> None:
    gone = Witnesses(
        run_id="a", started_at_s=1.0, process=ProcessSeen(100.0, alive=False, exit_code=-9)
    )
    assert assess(gone, Policy(), 100.0).cause == "killed-no-message"
    found = assess(replace(gone, kernel=seen(OOM)), Policy(), 100.0)
    assert (found.state, found.cause) == (State.CRASHED, "host-oom-killed")
    assert found.testimonies[-1].witness is Witness.KERNEL
    found = assess(replace(gone, kernel=seen(OFF)), Policy(), 100.0)
    assert found.cause == "gpu-lost"
    assert "fallen off the bus" in found.why
