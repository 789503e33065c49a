"""The checklist: list, groups, detail, what would run, results, after a boot; small and large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from textual.pilot import Pilot

from backends.tuning.desk import Judged
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import Vantage
from backends.tuning.findings import Finding, Verdict
from backends.tuning.gather import Gathered
from backends.tuning.runs import FellBack
from backends.tuning.snapshot import Outcome, Result
from backends.tuning.steps import Plan, Step, Task
from screens.confirm import ConfirmScreen
from screens.finding import FindingScreen
from screens.tuning import TuningScreen
from tests.tuning.cases import CASES, document
from tests.ui.fakes import drawn, make_app, make_hub, ready
from tui.app import RoomApp

Compare = Callable[..., bool]
RULES = (
    "numa.balancing", "cpu.governor", "gpu.rows", "kernel.iommu", "virt.lxc_majors",
    "numa.zone_reclaim", "pcie.speed", "gpu.power_limit",
)  # fmt: skip
GRUB = "/etc/default/grub"


def judged() -> Judged:
    """A host with some of everything."""
    facts: dict[str, object] = {}
    for rule in RULES:
        if rule in CASES:
            facts |= CASES[rule].bad
    facts |= CASES["cuda.init"].good
    whole = document(facts)
    return Judged(Gathered(whole, {Vantage.HOST: "b"}, {}), evaluate(whole, Options(only_touched=True)))


def finding(run: Judged, check: str) -> Finding:
    return next(f for f in run.findings if f.check == check)


def plan(run: Judged) -> Plan:
    """Values, a file as a difference, commands, and one that cannot be done."""
    balancing, governor = finding(run, "numa.balancing"), finding(run, "cpu.governor")
    assert balancing.fix is not None
    assert governor.fix is not None
    old = b'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    new = b'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n'
    copy = "/var/backups/gpuroom/20260314T092653-0a1b2c/etc/default/grub"
    path = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    tasks = (
        Task(
            "numa.balancing", balancing.fix, Vantage.HOST,
            (Step("write", "/proc/sys/kernel/numa_balancing", b"1\n", b"0\n"),),
        ),
        Task(
            "cpu.governor", governor.fix, Vantage.HOST,
            tuple(
                Step("write", path.format(n), b"schedutil\n", b"performance\n") for n in range(256)
            ),
        ),
        Task(
            "kernel.iommu", balancing.fix, Vantage.HOST,
            (
                Step("file", copy, None, old, compare=False),
                Step("file", GRUB, old, new),
                Step("command", argv=("update-grub",)),
            ),
        ),
        Task("pcie.acs", balancing.fix, Vantage.HOST, problem="the boot loader is not known"),
    )  # fmt: skip
    from backends.tuning.snapshot import Snapshot

    snapshot = Snapshot("20260314T092653-0a1b2c", "gpu01", {Vantage.HOST: "gpu01"}, {}, "", "op", {}, ())
    return Plan(tasks, {}, snapshot)


RESULTS = [
    Result("numa.balancing", Outcome.APPLIED, "PASS: kernel.numa_balancing = 0"),
    Result("cpu.governor", Outcome.ALREADY_SO, "PASS: performance on CPU 0-255"),
    Result(
        "kernel.rdma", Outcome.FAILED,
        "modprobe nvidia-peermem: exit status 1 modprobe: ERROR: could not insert: Invalid argument",
        ("[  812.310] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory",),
    ),
    Result("kernel.iommu", Outcome.NEEDS_REBOOT, "takes effect with the next boot"),
    Result("vm.max_map_count", Outcome.BEGUN),
]  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """One picture: what is done with the screen, then which keys."""

    prepare: Callable[[RoomApp, TuningScreen, Judged], object] = lambda app, screen, run: None
    keys: tuple[str, ...] = ()


def results(app: RoomApp, screen: TuningScreen, run: Judged) -> None:
    screen.results.begin("20260314T092653-0a1b2c on gpu01")
    for result in RESULTS:
        screen.results.put(result)
    screen.show_results(True)
    screen.results.move_to(2)


def after_boot(app: RoomApp, screen: TuningScreen, run: Judged) -> None:
    worse = [
        FellBack(f.check, Verdict.PASS, f.verdict, f.evidence)
        for f in run.findings
        if f.check in ("numa.balancing", "cpu.governor")
    ]
    screen.list.show(run.findings, {one.check: one.before for one in worse})


def confirm(app: RoomApp, screen: TuningScreen, run: Judged) -> None:
    app.push_screen(
        ConfirmScreen(
            app.shell.look, title="Change settings on gpu01 (both)", runs=plan(run).lines()
        )
    )


def named(app: RoomApp, screen: TuningScreen, run: Judged) -> None:
    app.push_screen(
        ConfirmScreen(
            app.shell.look,
            title="Change settings on gpu01 (runtime)",
            text="gpu01 is marked production",
            runs=plan(run).lines(),
            type_this="gpu01",
        )
    )


SHOTS = {
    "list": Shown(keys=("j", "space")),
    "groups": Shown(keys=("o", "o", "o", "o", "v")),
    "detail": Shown(
        lambda app, screen, run: app.push_screen(
            FindingScreen(app.shell, run, finding(run, "numa.balancing"))
        )
    ),
    "confirm": Shown(confirm),
    "confirm-named": Shown(named, ("pagedown",)),
    "results": Shown(results),
    "after-reboot": Shown(after_boot),
}


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("shot", SHOTS)
def test_checklist(snap_compare: Compare, shot: str, size: tuple[int, int]) -> None:
    """Each state of the checklist."""
    app = make_app(make_hub(hosts=1))

    async def before(pilot: Pilot[int]) -> None:
        assert isinstance(pilot.app, RoomApp)
        await ready(pilot)
        screen = TuningScreen(pilot.app.shell)
        await pilot.app.push_screen(screen)
        await drawn(pilot)
        run = judged()
        screen.judged = run
        screen.list.show(run.findings, {})
        SHOTS[shot].prepare(pilot.app, screen, run)
        await drawn(pilot)
        for key in SHOTS[shot].keys:
            await pilot.press(key)
            await drawn(pilot)
        pilot.app.pump.draw(force=True)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)
