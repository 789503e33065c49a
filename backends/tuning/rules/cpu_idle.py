"""Idle states of the CPUs: what leaving them costs, and flags that the driver in use reads."""

from __future__ import annotations

import re

from backends.tuning.fixes import Fix, kernel_flags, sysfs
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    inconclusive,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.cpu import CPU, gaps_of


@rule("cpu.cstates")
def cstates(scene: Scene) -> Judgements:
    view = scene.view
    latencies = view.integers(f"{CPU}/cpu*/cpuidle/state*/latency")
    if not latencies:
        if view.text(f"{CPU}/cpuidle/current_driver") == "none":
            yield not_applicable("no idle driver")
        elif view.absent(f"{CPU}/cpu0/cpuidle"):
            yield not_applicable("no idle states listed")
        elif told := [f"{r.name} {r.text} %" for r in view.each("cpupower/idle_pct/*") if r.text]:
            yield inconclusive(
                f"time spent: {', '.join(told)}; what leaving each costs was not read",
                hint="cpupower idle-info",
            )
        return
    switches = view.integers(f"{CPU}/cpu*/cpuidle/state*/disable", 0, 3)
    # Every state has a switch and a latency; one without the other was read in part.
    named = {names for names, _ in view.table.match(f"{CPU}/cpu*/cpuidle/state*/name")}
    unreadable = bool((named | switches.keys()) - latencies.keys())
    slow: dict[str, int] = {}
    paths: list[str] = []
    worst = 0
    limit = scene.profile["cpu_cstate_latency_us"]
    quiet = scene.profile["cpu_cstate_quiet_us"]
    for (cpu, state), latency in latencies.items():
        disabled = switches.get((cpu, state))
        if latency is None or disabled is None:
            unreadable = True
        elif not disabled:
            worst = max(worst, latency)
            if latency > quiet:
                base = f"{CPU}/cpu{cpu}/cpuidle/state{state}"
                slow[view.text(f"{base}/name") or f"state{state}"] = latency
                if latency >= limit:
                    paths.append(f"{base}/disable")
    listed = ", ".join(f"{name} {latency} us" for name, latency in slow.items())
    wakeup = view.peek_number("bench/wakeup_p50_us")
    if worst >= limit and scene.context.cpu_vendor == "intel":
        yield warned(f"enabled: {listed}", fix=_idle_fix(tuple(paths)))
    elif wakeup is not None and wakeup > scene.profile["cpu_wakeup_warn_us"]:
        yield warned(
            f"wake-up takes {wakeup:.0f} us at the median; enabled: {listed}",
            fix=_idle_fix(tuple(paths)),
        )
    elif unreadable:
        yield unknown("some idle states could not be read")
    elif worst <= quiet:
        gaps = gaps_of(scene, {cpu for cpu, _ in latencies})
        if gaps:
            yield unknown(f"not read on CPU {gaps}")
        else:
            yield passed(f"nothing enabled takes more than {worst} us to leave")
    elif worst >= limit and scene.context.cpu_vendor is None:
        yield inconclusive(
            f"enabled: {listed}; on AMD the advertised latency is not what it costs",
            hint="measure the wake-up latency (bench.wakeup)",
        )
    else:
        yield info(
            f"enabled: {listed}",
            experiment=True,
            fix=_idle_fix(tuple(paths)),
            hint="advertised latency is no evidence here: measure with bench.wakeup",
        )


def _idle_fix(paths: tuple[str, ...]) -> Fix | None:
    if not paths:
        return None
    states = sorted({path.split("/")[-2] for path in paths})
    glob = f"{CPU}/cpu*/cpuidle/{states[0]}/disable"
    return sysfs(
        paths, "1", summary="disable the idle states with the long exit", persist_glob=glob
    )


@rule("cpu.cstate_flag_matches_driver")
def cstate_flag(scene: Scene) -> Judgements:
    words = scene.view.boot_flags()
    line = " ".join(words) if words is not None else None
    driver = scene.view.text(f"{CPU}/cpuidle/current_driver")
    if line is None:
        return
    acpi = re.search(r"(?:^|\s)processor\.max_cstate=(\d{1,3})", line)
    intel = re.search(r"(?:^|\s)intel_idle\.max_cstate=(\d{1,3})", line)
    if not acpi and not intel:
        yield not_applicable("no idle flag on the kernel command line")
    elif driver is None:
        yield unknown("an idle flag is set, the idle driver was not read")
    elif acpi and driver == "intel_idle":
        yield warned(
            f"{acpi[0].strip()} has no effect: the driver is intel_idle",
            fix=kernel_flags(f"intel_idle.max_cstate={acpi[1]}", remove=("processor.max_cstate",)),
        )
    elif intel and int(intel[1]) > 0 and driver == "acpi_idle":
        yield warned(
            f"{intel[0].strip()} has no effect: the driver is acpi_idle",
            fix=kernel_flags(f"processor.max_cstate={intel[1]}", remove=("intel_idle.max_cstate",)),
        )
    elif driver in ("acpi_idle", "intel_idle"):
        yield passed(f"{(acpi or intel)[0].strip()} is read by {driver}")  # type: ignore[index]


RULES = collect(globals())
