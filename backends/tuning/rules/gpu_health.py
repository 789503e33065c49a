"""GPU health: throttling, temperature, memory errors, Xid, recovery, processes left behind."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from backends.tuning.fixes import Fix, Risk, commands, manual
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

IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 1, 4, 8, 0x20, 0x40, 0x80
SLOWDOWNS: Final = POWER_CAP | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE
ALL_REASONS: Final = 0x1FF
RETIRED_LIMIT: Final = 63
"""DCGM's hard limit of retired pages; a row remapper has its own."""
DOUBLE_BIT_LIMIT: Final = 15


@rule("gpu.throttle")
def throttle(scene: Scene) -> Judgements:
    view = scene.view
    near, far = scene.profile["gpu_power_cap_near_pct"], scene.profile["gpu_power_cap_far_pct"]
    for gpu in scene.gpus:
        mask = view.integer(gpu.key("reasons"), 0, ALL_REASONS)
        if mask is None:
            if view.error(gpu.key("reasons")) == "NotSupported":
                yield not_applicable("not reported", gpu.label)
            elif view.has(gpu.key("reasons")):
                yield unknown("clock event reasons not read", gpu.label)
            continue
        power = view.number(gpu.key("power_now_w"), 0, 20_000)
        if power is None:
            power = view.number(gpu.key("power_w"), 0, 20_000)
        limit = view.number(gpu.key("power_enforced_w"), 1, 20_000)
        if limit is None:
            limit = view.number(gpu.key("power_limit_w"), 1, 20_000)
        hard = [
            words
            for bit, words in (
                (HW_THERMAL, "hardware thermal slowdown"),
                (POWER_BRAKE, "power brake"),
                (HW_SLOWDOWN, "hardware slowdown"),
            )
            if mask & bit
        ]
        if hard:
            yield failed(
                f"{', '.join(hard)} (0x{mask:x})",
                gpu.label,
                fix=manual("check cooling and the power feed"),
            )
        elif mask & SW_THERMAL:
            yield warned(
                f"software thermal slowdown (0x{mask:x})",
                gpu.label,
                fix=manual("check cooling, or lower the power limit"),
            )
        elif mask & POWER_CAP:
            if power is None or limit is None:
                yield info("software power cap; how much it draws was not read", gpu.label)
                continue
            share = 100 * power / limit
            told = f"software power cap at {power:.0f} of {limit:.0f} W"
            if share >= near:
                yield passed(f"{told}: at its limit, as it should be", gpu.label)
            elif share < far:
                yield warned(
                    f"{told}: capped far below its limit",
                    gpu.label,
                    fix=manual("look for a lower cap: chassis, BMC, power smoothing"),
                )
            else:
                yield info(told, gpu.label)
        elif view.has(gpu.key("reasons_seen")) and (
            (view.integer(gpu.key("reasons_seen"), 0, ALL_REASONS) or 0) & SLOWDOWNS != SLOWDOWNS
        ):
            yield unknown("some reasons were not read", gpu.label)
        else:
            yield passed(f"no slowdown (0x{mask:x})", gpu.label)


@rule("gpu.temperature")
def temperature(scene: Scene) -> Judgements:
    view = scene.view
    least = scene.profile["gpu_temp_margin_c"]
    for gpu in scene.gpus:
        now = view.number(gpu.key("temp_c"), -20, 150)
        margin = view.number(gpu.key("temp_margin_c"), -60, 150)
        slowdown = view.number(gpu.key("temp_slowdown_c"), 30, 150)
        memory = view.number(gpu.key("mem_temp_c"), -20, 150)
        if margin is None and now is not None and slowdown is not None:
            margin = slowdown - now
        hot = memory is not None and memory >= scene.profile["gpu_mem_temp_c"]
        if memory is not None and hot and not (margin is not None and margin <= 0):
            yield warned(f"memory at {memory:.0f} C", gpu.label, fix=_cool())
        elif margin is None:
            if now is not None and now >= 90:
                yield warned(
                    f"{now:.0f} C; the slowdown threshold was not read", gpu.label, fix=_cool()
                )
            elif now is not None:
                yield info(f"{now:.0f} C; the slowdown threshold was not read", gpu.label)
        elif margin <= 0:
            yield failed(f"{_deg(now)}, {margin:.0f} C from slowdown", gpu.label, fix=_cool())
        elif margin <= least:
            yield warned(f"{_deg(now)}, {margin:.0f} C from slowdown", gpu.label, fix=_cool())
        elif now is None:
            yield unknown("temperature not read", gpu.label)
        else:
            yield passed(f"{now:.0f} C, {margin:.0f} C from slowdown", gpu.label)


def _deg(now: float | None) -> str:
    return f"{now:.0f} C" if now is not None else "temperature not read"


def _cool() -> Fix:
    return manual("fans and airflow; a lower power limit until then")


@rule("gpu.util_vs_power")
def util_vs_power(scene: Scene) -> Judgements:
    view = scene.view
    tokens = view.number("engine/tokens_per_s", 0)
    for gpu in scene.gpus:
        busy = view.number(gpu.key("util_pct"), 0, 100)
        power = view.number(gpu.key("power_now_w"), 0, 20_000)
        if power is None:
            power = view.number(gpu.key("power_w"), 0, 20_000)
        limit = view.number(gpu.key("power_limit_w"), 1, 20_000)
        if busy is None or power is None or limit is None:
            if view.has(gpu.key("util_pct")):
                yield unknown("utilisation, power or limit not read", gpu.label)
            continue
        share = 100 * power / limit
        told = f"{busy:.0f} % busy at {power:.0f} of {limit:.0f} W"
        if busy < scene.profile["gpu_busy_pct"]:
            yield not_applicable(f"{told}: not busy", gpu.label)
        elif share >= scene.profile["gpu_busy_power_pct"]:
            yield passed(told, gpu.label)
        elif tokens is None:
            yield info(f"{told}: a kernel is resident; whether it works, tokens tell", gpu.label)
        elif tokens > 0:
            yield info(f"{told}, {tokens:.0f} tok/s: bound by memory or communication", gpu.label)
        elif share < scene.profile["gpu_spin_power_pct"]:
            yield failed(
                f"{told} and no tokens: it spins",
                gpu.label,
                fix=manual("take the engine's stacks, then restart it"),
            )
        else:
            yield warned(f"{told} and no tokens", gpu.label)


@rule("gpu.ecc_errors")
def ecc_errors(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        now = view.integer(gpu.key("ecc_volatile_uncorrectable"))
        ever = view.integer(gpu.key("ecc_aggregate_uncorrectable"))
        over = view.flag(gpu.key("ecc_sram_threshold"))
        broken = view.flag(gpu.key("ecc_unrepairable"))
        correctable = view.integer(gpu.key("ecc_volatile_correctable"))
        off = view.peek(gpu.key("ecc_current")) == "Disabled"
        if over or broken:
            what = "SRAM threshold exceeded" if over else "memory that cannot be repaired"
            yield failed(
                f"{what}: the card must be replaced",
                gpu.label,
                fix=manual("drain the GPU and replace the card"),
            )
        elif now:
            yield failed(
                f"{now} uncorrectable errors since the driver was loaded",
                gpu.label,
                fix=_reset(gpu.label),
            )
        elif ever:
            yield warned(
                f"{ever} uncorrectable errors in its life, none since the driver was loaded"
                if now == 0
                else f"{ever} uncorrectable errors in its life",
                gpu.label,
            )
        elif off or view.error(gpu.key("ecc_volatile_uncorrectable")) == "NotSupported":
            yield not_applicable("ECC is off or not there", gpu.label)
        elif now is None and ever is None:
            if view.has(gpu.key("ecc_volatile_uncorrectable")):
                yield unknown("error counts not read", gpu.label)
        elif now is None:
            yield unknown("errors since the driver was loaded were not read", gpu.label)
        elif correctable:
            yield info(f"{correctable} corrected errors, no others seen", gpu.label)
        elif view.has(gpu.key("ecc_volatile_complete")) and not view.flag(
            gpu.key("ecc_volatile_complete")
        ):
            yield unknown("no errors, of one memory only", gpu.label)
        elif correctable is None:
            yield passed("no uncorrectable errors", gpu.label)
        else:
            yield passed("no errors", gpu.label)


def _reset(label: str) -> Fix:
    return commands(
        ("nvidia-smi", "--gpu-reset", "-i", label),
        summary=f"drain, then reset GPU {label}",
        risk=Risk.HIGH,
        undo="nothing to take back",
    )


@rule("gpu.rows")
def rows(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        failure = view.flag(gpu.key("rows_failure"))
        pending = view.flag(gpu.key("rows_pending"))
        empty = view.integer(gpu.key("rows_bank_none"))
        single = view.integer(gpu.key("retired_single"))
        double = view.integer(gpu.key("retired_double"))
        retired_pending = view.flag(gpu.key("retired_pending"))
        retired = (single or 0) + (double or 0)
        if failure:
            yield failed(
                "a row could not be remapped: the card must be replaced",
                gpu.label,
                fix=manual("drain the GPU and replace the card"),
            )
        elif retired >= RETIRED_LIMIT:
            yield failed(
                f"{retired} retired pages ({double or 0} by double-bit errors), the limit "
                f"is {RETIRED_LIMIT}",
                gpu.label,
                fix=manual("replace the card"),
            )
        elif double is not None and double >= DOUBLE_BIT_LIMIT:
            yield warned(
                f"{double} pages retired by double-bit errors",
                gpu.label,
                fix=manual("plan to replace the card"),
            )
        elif pending or retired_pending:
            what = "rows wait to be remapped" if pending else f"pages wait, {retired} retired"
            yield warned(f"{what}: reset at the next drain", gpu.label, fix=_reset(gpu.label))
        elif empty:
            yield warned(f"{empty} banks have no spare rows left", gpu.label)
        elif failure is False and pending is False:
            yield passed("nothing pending, nothing failed", gpu.label)
        elif single is not None and double is not None and retired_pending is False:
            yield passed(f"{retired} pages retired, none pending", gpu.label)
        elif all(
            view.error(gpu.key(f)) == "NotSupported" for f in ("rows_pending", "retired_pending")
        ) or (view.error(gpu.key("rows_pending")) == "NotSupported" and single is None):
            yield not_applicable("no row remapping", gpu.label)
        elif _any_rows(scene, gpu.id):
            yield unknown("rows or pages not read in full", gpu.label)


def _any_rows(scene: Scene, id_: str) -> bool:
    fields = ("rows_failure", "rows_pending", "retired_single", "retired_double", "retired_pending")
    return any(scene.view.has(f"gpu/{id_}/{field}") for field in fields)


@rule("gpu.stale_procs")
def stale_procs(scene: Scene) -> Judgements:
    view = scene.view
    holders = view.items("gpu/holders")
    known = view.flag("gpu/complete") or holders is not None
    processes = view.items("gpu/processes")
    by_index: dict[str, list[str]] = defaultdict(list)
    for entry in processes or []:
        by_index[entry.split("|")[0]].append(entry)
    stuck = [h for h in holders or [] if re.search(r"\|[DZ](?:\||$)", h)]
    if stuck:
        yield failed(
            f"{len(stuck)} processes hang in the driver: {stuck[0][:80]}",
            "stuck",
            fix=manual("they end with a reboot only"),
        )
    if not known:
        return
    limit = scene.profile["gpu_hidden_memory_mib"]
    for gpu in scene.gpus:
        used = view.integer(gpu.key("used_mib"), 0, 1 << 30)
        if used is None:
            yield unknown("used memory not read", gpu.label)
            continue
        index = view.peek(gpu.key("index")) or gpu.label
        held = (
            by_index.get(index) or by_index.get(gpu.id) or [h for h in holders or [] if gpu.id in h]
        )
        if used <= limit:
            yield passed(f"{used} MiB used", gpu.label)
        elif held or holders:
            yield passed(f"{used} MiB used by {len(held or holders or [])} processes", gpu.label)
        elif holders is None and scene.context.kind.value != "bare metal":
            yield unknown(f"{used} MiB used; other machines' processes are not visible", gpu.label)
        elif holders is None:
            yield inconclusive(
                f"{used} MiB used and no process listed",
                gpu.label,
                hint="look at /proc/*/fd as root",
            )
        else:
            yield failed(
                f"{used} MiB used and nobody holds the GPU", gpu.label, fix=_reset(gpu.label)
            )


RULES = collect(globals())
