"""The checklist: list, groups, detail, what would run, results, after a boot; small and large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from textual.pilot import Pilot

from backends.tuning.desk import Judged
from backends.tuning.facts import Fact, FactsDocument, Vantage
from backends.tuning.findings import Columns, Finding, Severity, Verdict
from backends.tuning.fixes import EditFile, Fix, kernel_flags, manual, sysctl, sysfs
from backends.tuning.gather import Gathered
from backends.tuning.runs import FellBack
from backends.tuning.snapshot import Outcome, Result, Snapshot
from backends.tuning.steps import Plan, Step, Task
from screens.confirm import ConfirmScreen
from screens.finding import FindingScreen
from screens.tuning import TuningScreen
from tests.ui.fakes import drawn, make_app, make_hub, ready
from tui.app import RoomApp

Compare = Callable[..., bool]
GRUB = "/etc/default/grub"
BALANCING = "/proc/sys/kernel/numa_balancing"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
WHY = "It moves pages while kernels run, which shows as tails of some ten milliseconds."
ROWS: tuple[tuple[str, str, Verdict, str, Fix | None], ...] = (
    ("virt.lxc_majors", "Device majors as they are today", Verdict.FAIL,
     "129: not allowed: nvidia-uvm is 509 today; instead allowed: 508 (nobody)",
     Fix("devN entries for container 129", persistent=(EditFile("/etc/pve/lxc/129.conf", "lxc_devn", ()),),
         restarts="container 129")),
    ("gpu.rows", "No rows wait to be remapped", Verdict.FAIL, "GPU 3: 1 row pending",
     manual("reset the GPU", reboot=True)),
    ("numa.balancing", "Automatic NUMA balancing off", Verdict.WARN, "kernel.numa_balancing = 1",
     sysctl("kernel.numa_balancing", "0")),
    ("cpu.governor", "Scaling governor", Verdict.WARN, "schedutil on CPU 0-255",
     sysfs((GOVERNOR,), "performance", summary="set the performance governor on every CPU")),
    ("kernel.iommu", "IOMMU mode fits the use", Verdict.WARN, "translated, and 8 GPUs",
     kernel_flags("iommu=pt")),
    ("pcie.link_gen", "Links at their generation", Verdict.INCONCLUSIVE, "Gen1 of Gen5, at rest", None),
    ("kernel.aer", "Who handles PCIe errors", Verdict.UNKNOWN, "EACCES: dmesg needs root", None),
    ("pcie.mrrs", "MaxReadReq", Verdict.INFO, "512 bytes on all 8", None),
    ("cuda.init", "CUDA can be initialised", Verdict.PASS, "cuInit returns 0", None),
    ("net.ib_port", "InfiniBand ports", Verdict.NOT_APPLICABLE, "no port", None),
)  # fmt: skip
WANTS = "0 on a host with two or more NUMA nodes."


def judged() -> Judged:
    """A host with some of everything."""
    findings = [
        Finding(
            check, check, title, check.partition(".")[0], verdict, Severity.MEDIUM, evidence,
            "host", WHY, ("https://docs.kernel.org/admin-guide/sysctl/kernel.html",), fix=fix,
            fix_text="" if fix is None else fix.summary,
            columns=Columns("1", "not set", "1") if check == "numa.balancing" else None,
            rests_on=(BALANCING,) if check == "numa.balancing" else (),
            wants=WANTS if check == "numa.balancing" else "",
        )
        for check, title, verdict, evidence, fix in ROWS
    ]  # fmt: skip
    facts = [Fact(BALANCING, "1", BALANCING, None, "2026-03-14T09:26:53.589")]
    return Judged(Gathered(FactsDocument(facts), {Vantage.HOST: "b"}, {}), findings)


def finding(run: Judged, check: str) -> Finding:
    return next(f for f in run.findings if f.check == check)


def plan(run: Judged) -> Plan:
    """Values, a file as a difference, commands, and one that cannot be done."""
    fixes = {f.check: f.fix for f in run.findings if f.fix is not None}
    old = b'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    new = b'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n'
    copy = "/var/backups/gpuroom/20260314T092653-0a1b2c/etc/default/grub"
    path = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    tasks = (
        Task(
            "numa.balancing", fixes["numa.balancing"], Vantage.HOST,
            (Step("write", "/proc/sys/kernel/numa_balancing", b"1\n", b"0\n"),),
        ),
        Task(
            "cpu.governor", fixes["cpu.governor"], Vantage.HOST,
            tuple(
                Step("write", path.format(n), b"schedutil\n", b"performance\n") for n in range(256)
            ),
        ),
        Task(
            "kernel.iommu", fixes["kernel.iommu"], Vantage.HOST,
            (
                Step("file", copy, None, old, compare=False),
                Step("file", GRUB, old, new),
                Step("command", argv=("update-grub",)),
            ),
        ),
        Task("pcie.acs", manual("switch ACS off"), Vantage.HOST, problem="the boot loader is not known"),
    )  # fmt: skip
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
    "groups": Shown(keys=("o", "o", "o", "o", "o", "v")),
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
def test_checklist(
    snap_compare: Compare, shot: str, size: tuple[int, int]
) -> None:
    """Each state of the checklist; no word of the catalogue is in the pictures."""
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
