"""CPU frequency and power: scaling driver, governor, boost, idle states, quotas."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from backends.tuning import numbers
from backends.tuning.context import Kind
from backends.tuning.fixes import Fix, Risk, Write, kernel_flags, manual, sysfs
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    inconclusive,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.view import Reading

CPU: Final = "/sys/devices/system/cpu"
GOOD_DRIVERS: Final = frozenset(
    {"amd-pstate-epp", "amd-pstate", "intel_pstate", "intel_cpufreq", "cppc_cpufreq"}
)
GOVERNORS: Final = frozenset(
    {"performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"}
)
NO_PREFERENCE: Final = frozenset({"acpi-cpufreq", "pcc-cpufreq", "amd-pstate"})
"""Drivers without the attribute; `amd-pstate` is that driver's passive mode."""
EPP: Final = frozenset({"performance", "balance_performance", "balance_power", "power", "default"})


@rule("cpu.scaling_driver")
def scaling_driver(scene: Scene) -> Judgements:
    view = scene.view
    drivers = view.each(f"{CPU}/cpu*/cpufreq/scaling_driver")
    driver = drivers[0].text if len({r.text for r in drivers}) == 1 else None
    if len(drivers) > 1 and driver is None:
        yield unknown(_told(_spread(drivers)))
        return
    cppc = view.peek(f"{CPU}/cpu0/acpi_cppc")
    cppc_known = view.table.get(f"{CPU}/cpu0/acpi_cppc")
    if driver is None:
        if view.flag("cpu/boost_supported") is False and scene.context.kind is Kind.UNKNOWN:
            yield unknown(
                "no cpufreq driver and no boost: so it is in most virtual machines",
                hint="systemd-detect-virt",
            )
        elif view.absent(f"{CPU}/cpu0/cpufreq") or (
            view.absent(f"{CPU}/cpu0/cpufreq/scaling_driver")
        ):
            yield failed(
                "no cpufreq driver is active", fix=manual("enable CPPC and P-states in firmware")
            )
        return
    if driver in GOOD_DRIVERS:
        yield passed(f"scaling driver {driver}")
    elif driver == "acpi-cpufreq":
        amd = scene.context.cpu_vendor != "intel"
        flag = "amd_pstate=active" if amd else "intel_pstate=active"
        if cppc or (cppc_known is not None and not cppc_known.error):
            yield warned(
                "acpi-cpufreq, although firmware exports _CPC (acpi_cppc is there)",
                fix=kernel_flags(flag),
            )
        elif view.absent(f"{CPU}/cpu0/acpi_cppc"):
            yield warned(
                "acpi-cpufreq, and firmware does not export _CPC",
                fix=manual("enable CPPC in firmware; no kernel flag helps before", reboot=True),
            )
        else:
            yield warned("acpi-cpufreq: a few fixed steps only", fix=kernel_flags(flag))
    elif driver in ("pcc-cpufreq", "powernow-k8", "speedstep-centrino"):
        yield warned(f"old scaling driver {driver}")


@rule("cpu.pstate_mode", vendors=("amd", "intel"))
def pstate_mode(scene: Scene) -> Judgements:
    for name in ("amd_pstate", "intel_pstate"):
        path = f"{CPU}/{name}/status"
        mode = scene.view.text(path)
        if mode == "active":
            yield passed(f"{name} is active")
        elif mode in ("guided", "passive"):
            yield info(
                f"{name} is {mode}: the governor decides",
                fix=sysfs((path,), "active", summary=f"set {name} to active", persist_glob=path),
            )
        elif mode in ("disable", "off"):
            yield warned(f"{name} is {mode}", fix=kernel_flags(f"{name}=active"))
    if all(scene.view.absent(f"{CPU}/{n}/status") for n in ("amd_pstate", "intel_pstate")):
        yield not_applicable("another scaling driver is in use")


def gaps_of(scene: Scene, names: Iterable[str]) -> str:
    """CPUs that are online but of which the value was not read."""
    online = scene.view.cpus(f"{CPU}/online")
    if online is None:
        return ""
    seen = {int(name) for name in names if name.isdecimal() and len(name) < 7}
    missing = online - seen
    return numbers.show_cpus(missing) if missing else ""


def _spread(readings: list[Reading]) -> dict[str, list[str]]:
    by_value: dict[str, list[str]] = defaultdict(list)
    for reading in readings:
        by_value[reading.text or "unreadable"].append(reading.name)
    return dict(sorted(by_value.items(), key=lambda item: -len(item[1])))


def _told(spread: dict[str, list[str]]) -> str:
    parts = []
    for value, cpus in spread.items():
        ids = {int(c) for c in cpus if c.isdecimal() and len(c) < 7}
        parts.append(f"{value} on CPU {numbers.show_cpus(ids)}" if ids else value)
    return "; ".join(parts)


@rule("cpu.governor")
def governor(scene: Scene) -> Judgements:
    readings = scene.view.each(f"{CPU}/cpu*/cpufreq/scaling_governor")
    if not readings:
        if scene.view.absent(f"{CPU}/cpu0/cpufreq"):
            yield not_applicable("no cpufreq")
        return
    spread = _spread(readings)
    told = _told(spread)
    if not set(spread) <= GOVERNORS:
        yield unknown(told)
        return
    driver = scene.view.peek(f"{CPU}/cpu{readings[0].name}/cpufreq/scaling_driver") or ""
    fix = sysfs(
        tuple(r.fact.key for r in readings if r.text != "performance"),
        "performance",
        summary="set the performance governor on every CPU",
        persist_glob=f"{CPU}/cpu*/cpufreq/scaling_governor",
    )
    gaps = gaps_of(scene, (r.name for r in readings))
    if set(spread) == {"performance"}:
        if gaps:
            yield unknown(f"{told}; not read on CPU {gaps}")
        else:
            yield passed(told)
    elif len(spread) > 1:
        yield warned(f"mixed: {told}", fix=fix)
    elif driver in ("amd-pstate-epp", "intel_pstate") and set(spread) == {"powersave"}:
        yield info(f"{told} under {driver}: the energy preference decides, see cpu.epp")
    else:
        yield warned(told, fix=fix)


@rule("cpu.epp")
def epp(scene: Scene) -> Judgements:
    readings = scene.view.each(f"{CPU}/cpu*/cpufreq/energy_performance_preference")
    if not readings:
        driver = scene.view.peek(f"{CPU}/cpu0/cpufreq/scaling_driver")
        missing = scene.view.absent(f"{CPU}/cpu0/cpufreq/energy_performance_preference")
        if missing or driver in NO_PREFERENCE:
            yield not_applicable(f"{driver or 'this driver'} has no energy preference")
        return
    spread = _spread(readings)
    told = _told(spread)
    gaps = gaps_of(scene, (r.name for r in readings))
    fix = sysfs(
        tuple(r.fact.key for r in readings if r.text != "performance"),
        "performance",
        summary="set the energy preference to performance on every CPU",
        persist_glob=f"{CPU}/cpu*/cpufreq/energy_performance_preference",
    )
    if not all(value in EPP or value.isdecimal() for value in spread):
        yield unknown(told)
    elif set(spread) <= {"performance", "0"}:
        if gaps:
            yield unknown(f"{told}; not read on CPU {gaps}")
        else:
            yield passed(told)
    elif set(spread) <= {"performance", "0", "balance_performance", "default"}:
        yield info(told, fix=fix)
    else:
        yield warned(told, fix=fix)


@rule("cpu.boost")
def boost(scene: Scene) -> Judgements:
    view = scene.view
    no_turbo = view.integer(f"{CPU}/intel_pstate/no_turbo", 0, 1)
    if no_turbo is not None:
        if no_turbo == 0:
            yield passed("turbo is on (no_turbo 0)")
        else:
            yield warned(
                "turbo is off (no_turbo 1)",
                fix=sysfs(
                    (f"{CPU}/intel_pstate/no_turbo",),
                    "0",
                    summary="turn turbo on",
                    persist_glob=f"{CPU}/intel_pstate/no_turbo",
                ),
            )
        return
    path = f"{CPU}/cpufreq/boost"
    on = view.integer(path, 0, 1)
    supported = view.flag("cpu/boost_supported")
    per_cpu = view.each(f"{CPU}/cpu*/cpufreq/boost")
    if supported is False and not on:
        yield not_applicable("this CPU has no boost, or the virtual machine does not show it")
    elif on == 1:
        off = [r.name for r in per_cpu if r.integer != 1]
        if off:
            ids = {int(c) for c in off if c.isdecimal()}
            yield warned(f"boost is off on CPU {numbers.show_cpus(ids)}")
        else:
            yield passed("boost is on")
    elif on == 0:
        driver = view.peek(f"{CPU}/cpu0/cpufreq/scaling_driver")
        gone = view.absent(f"{CPU}/cpu0/cpufreq/scaling_driver")
        if supported and gone and driver is None:
            yield failed(
                "boost is supported but not active, and no cpufreq driver is loaded",
                fix=manual("enable CPPC and core performance boost in firmware", reboot=True),
            )
        else:
            yield warned(
                "boost is off", fix=sysfs((path,), "1", summary="turn boost on", persist_glob=path)
            )
    elif view.absent(path) and view.absent(f"{CPU}/intel_pstate/no_turbo"):
        yield not_applicable("no boost switch")


@rule("cpu.freq_cap")
def freq_cap(scene: Scene) -> Judgements:
    allowed = scene.profile["cpu_freq_cap_pct"]
    tops = scene.view.integers(f"{CPU}/cpu*/cpufreq/scaling_max_freq", 1)
    hardware = scene.view.integers(f"{CPU}/cpu*/cpufreq/cpuinfo_max_freq", 1, 20_000_000)
    low: list[tuple[str, float]] = []
    judged = 0
    for names, top in tops.items():
        most = hardware.get(names)
        if top is None or most is None:
            continue
        judged += 1
        short = 100 * (most - top) / most
        if short > allowed:
            low.append((names[0], short))
    if low:
        ids = {int(c) for c, _ in low if c.isdecimal()}
        most_short = max(short for _, short in low)
        paths = tuple(f"{CPU}/cpu{c}/cpufreq/scaling_max_freq" for c, _ in low)
        value = scene.view.peek(f"{CPU}/cpu{low[0][0]}/cpufreq/cpuinfo_max_freq") or ""
        driver = scene.view.peek(f"{CPU}/cpu0/cpufreq/scaling_driver")
        if driver == "acpi-cpufreq" and scene.context.cpu_vendor != "intel":
            # Its steps end at the nominal clock; boost goes above, so this is no cap.
            yield info(f"scaling_max_freq {most_short:.0f} % below the boost clock: nominal steps")
            return
        yield warned(
            f"ceiling up to {most_short:.0f} % below the hardware's on CPU "
            f"{numbers.show_cpus(ids)}",
            fix=sysfs(
                paths,
                value,
                summary="raise the frequency ceiling to the hardware's",
                persist_glob=f"{CPU}/cpu*/cpufreq/scaling_max_freq",
            ),
        )
    elif judged and judged == len(tops):
        gaps = gaps_of(scene, (cpu for (cpu,) in tops))
        if gaps:
            yield unknown(f"not read on CPU {gaps}")
        else:
            yield passed(f"no ceiling on {judged} CPUs")
    elif tops:
        yield unknown(f"{len(tops) - judged} of {len(tops)} CPUs unreadable")


@rule("cpu.offline")
def offline(scene: Scene) -> Judgements:
    view = scene.view
    online = view.cpus(f"{CPU}/online")
    if online is None:
        return
    present = view.cpus(f"{CPU}/present")
    off = view.cpus(f"{CPU}/offline", may_be_empty=True)
    if present is None:
        count = view.integer("cpu/count", 1, numbers.MAX_CPU)
        if count is None:
            if off is None:
                yield unknown("which CPUs are present was not read")
                return
            present = online | off
        else:
            present = online | (off or frozenset())
            if len(present) < count and off is None:
                yield warned(f"{len(online)} of {count} CPUs are online", fix=_online(frozenset()))
                return
    missing = present - online
    if missing:
        line = view.peek("/proc/cmdline") or ""
        why = ""
        if scene.context.cpus and scene.context.cpus >= 256 and "iommu=off" in line:
            why = ": with 256 CPUs and the IOMMU off, x2APIC is not available"
        yield warned(
            f"CPU {numbers.show_cpus(missing)} offline of {len(present)}{why}",
            fix=_online(frozenset(missing)),
        )
    elif online:
        yield passed(f"all {len(present)} CPUs online")


def _online(missing: frozenset[int]) -> Fix:
    if not missing:
        return manual("bring the CPU online; with the IOMMU off enable it (iommu=pt)")
    paths = tuple(f"{CPU}/cpu{cpu}/online" for cpu in sorted(missing))
    return sysfs(paths, "1", summary="bring the CPU online; if it falls back, use iommu=pt")


@rule("cpu.smt")
def smt(scene: Scene) -> Judgements:
    view = scene.view
    control = view.text(f"{CPU}/smt/control")
    wanted = scene.expected.get("cpu.smt")
    threads = view.integer("cpu/threads_per_core", 1, 16)
    if control not in ("on", "off", "forceoff", "notsupported", "notimplemented"):
        if threads is None:
            return
        control = "on" if threads > 1 else "off"
    if wanted and control != wanted:
        fix = None
        if {control, wanted} == {"on", "off"}:
            lasting = kernel_flags("nosmt") if wanted == "off" else kernel_flags(remove=("nosmt",))
            fix = Fix(
                f"SMT {wanted} now and at boot",
                runtime=(Write(f"{CPU}/smt/control", wanted),),
                persistent=lasting.persistent,
                risk=Risk.MEDIUM,
            )
        yield warned(
            f"SMT is {control}, expected {wanted}",
            fix=fix or manual(f"set SMT to {wanted} in firmware", reboot=True),
        )
    else:
        yield info(f"SMT is {control}", experiment=True)


@rule("cpu.quota")
def quota(scene: Scene) -> Judgements:
    view = scene.view
    limit = view.text("/sys/fs/cgroup/cpu.max")
    throttled = view.integer("cgroup/cpu/nr_throttled_delta")
    if limit is None:
        return
    words = limit.split()
    if throttled:
        yield failed(f"throttled {throttled} times under load (cpu.max {limit})", fix=_quota_fix())
    elif words[:1] == ["max"]:
        yield passed("no CPU quota")
    elif len(words) == 2 and all(w.isdecimal() for w in words) and int(words[1]):
        cores = int(words[0]) / int(words[1])
        gpus = scene.context.gpu_count or 1
        least = scene.profile["cpu_quota_cores_per_gpu"] * gpus
        if cores < least:
            yield warned(f"{cores:g} cores for {gpus} GPU(s)", fix=_quota_fix())
        elif view.integer("cgroup/cpu/nr_throttled") == 0:
            yield passed(f"{cores:g} cores for {gpus} GPU(s), never throttled")
        else:
            yield inconclusive(
                f"{cores:g} cores for {gpus} GPU(s)", hint="read nr_throttled twice under load"
            )


def _quota_fix() -> Fix:
    return manual("raise the CPU quota: pct set ID --cores N --cpulimit 0, or docker --cpus")


@rule("cpu.thermal", kinds=(Kind.BARE_METAL,))
def thermal(scene: Scene) -> Judgements:
    view = scene.view
    deltas = view.each("cpu/throttle_delta/*")
    if deltas:
        risen = [r for r in deltas if (r.integer or 0) > 0]
        if any(r.integer is None or r.integer < 0 for r in deltas):
            yield unknown("throttle counters unreadable")
        elif not risen:
            yield passed(f"no thermal throttling on {len(deltas)} CPUs under load")
        else:
            low = view.flag("cpu/below_base_clock")
            total = sum(r.integer or 0 for r in risen)
            made = failed if low else warned
            yield made(
                f"{total} throttle events on {len(risen)} CPUs under load",
                fix=manual("check cooling and the firmware's power limits"),
            )
        return
    counts = view.each(f"{CPU}/cpu*/thermal_throttle/*_throttle_count")
    logged = view.each("log/cpu_throttled/*")
    if logged:
        total = sum(r.integer or 0 for r in logged)
        yield warned(
            f"{total} throttle events on {len(logged)} CPUs logged",
            fix=manual("check cooling and the firmware's power limits"),
        )
    elif counts:
        by_kind = Counter[str]()
        for reading in counts:
            by_kind[reading.names[-1]] += reading.integer or 0
        told = ", ".join(f"{kind} {count}" for kind, count in by_kind.items())
        yield inconclusive(f"since boot: {told}", hint="read again after 60 s under load")


RULES = collect(globals())
