"""PCIe links: width, generation, flapping, shared uplinks, and the errors on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from backends.tuning.findings import Judgement
from backends.tuning.fixes import Fix, manual
from backends.tuning.interconnect import LANE_GB_S
from backends.tuning.pci_devices import Device, Role
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
from backends.tuning.rules.devices import (
    SPEEDS,
    TRUNCATED,
    Link,
    devices,
    endpoints,
    gpu_path,
    link_of,
)
from backends.tuning.rules.kernel_events import aer_events


def _labelled(scene: Scene) -> list[tuple[str, str, bool]]:
    """Devices whose link counts: id, label, whether it is an endpoint."""
    found = devices(scene)
    path = gpu_path(found)
    listed = [(id_, label, True) for id_, label in endpoints(scene)]
    bridges = [d for d in found.values() if d.role is Role.BRIDGE]
    listed.extend((d.bdf, d.label, False) for d in bridges if d.bdf in path or not path)
    return listed


@rule("pcie.link_width")
def link_width(scene: Scene) -> Judgements:
    path = gpu_path(devices(scene))
    for id_, label, endpoint in _labelled(scene):
        link = link_of(scene, id_)
        if link.width is None and endpoint and scene.view.flag(f"pci/{id_}/truncated"):
            yield unknown(TRUNCATED, label)
            continue
        if link.width is None or link.width == 0:
            if link.max_width is not None and link.width is None and endpoint:
                yield unknown("width not read", label)
            continue
        most = link.max_width
        if most is not None and link.width < most:
            if not endpoint and id_ not in path:
                yield unknown(f"x{link.width} of x{most}; what hangs below is not known", label)
                continue
            yield failed(
                f"x{link.width} of x{most}: {100 * link.width / most:.0f} % of the bandwidth",
                label,
                fix=_reseat(),
            )
        elif link.note == "downgraded":
            yield failed(f"x{link.width}, downgraded", label, fix=_reseat())
        elif most is None:
            if link.note == "ok":
                yield passed(f"x{link.width} (ok)", label)
            else:
                yield unknown(f"x{link.width}; what the device can do was not read", label)
        elif link.parent_limits:
            yield info(f"x{link.width}: as wide as the slot", label)
        else:
            yield passed(f"x{link.width} of x{most}", label)
    yield from _limited_at_boot(scene)


def _limited_at_boot(scene: Scene) -> Judgements:
    """What the kernel said at boot of cards whose link was not read since."""
    view = scene.view
    known = devices(scene)
    for reading in view.peek_each("log/limited/*"):
        bdf = reading.name
        if view.has(f"pci/{bdf}/width") or view.has(f"gpu/{bdf}/link_width"):
            continue
        if bdf in known and known[bdf].role not in (Role.GPU, Role.OTHER):
            continue
        told = re.match(r"x(\d{1,2}) of x(\d{1,2}) at", view.text(reading.fact.key) or "")
        # Of a card that nothing else names, a full slot's width says that it may be a GPU.
        if told and int(told[1]) < int(told[2]) and (bdf in known or told[2] == "16"):
            share = 100 * int(told[1]) / int(told[2])
            yield failed(
                f"{told[0].removesuffix(' at')} at boot: {share:.0f} % of the bandwidth",
                bdf.removeprefix("0000:"),
                fix=_reseat(),
            )


def _reseat() -> Fix:
    return manual(
        "reseat the card or riser; check slot wiring and bifurcation in firmware", reboot=True
    )


def _idle(scene: Scene, id_: str) -> bool | None:
    """Whether the GPU was at rest when its link was read; None is not known."""
    if scene.view.flag(f"gpu/{id_}/under_load"):
        return False
    pstate = scene.view.text(f"gpu/{id_}/pstate")
    busy = scene.view.integer(f"gpu/{id_}/util_pct", 0, 100)
    if busy is not None and busy >= 50 and pstate in ("P0", "P1", "P2"):
        return False
    if pstate in ("P0", "P1", "P2") and busy is None:
        return None
    return True if pstate else None


@rule("pcie.link_gen")
def link_gen(scene: Scene) -> Judgements:
    for id_, label, endpoint in _labelled(scene):
        link = link_of(scene, id_)
        if link.generation is None:
            if endpoint and scene.view.flag(f"pci/{id_}/truncated"):
                yield unknown(TRUNCATED, label)
            elif link.max_generation is not None and endpoint:
                yield unknown("generation not read", label)
            continue
        if link.max_generation is None:
            note = scene.view.text(f"pci/{id_}/speed_note")
            if note == "downgraded" and endpoint:
                yield inconclusive(f"Gen{link.generation}, downgraded", label, hint=LOAD)
            elif note == "ok" and endpoint:
                yield passed(f"Gen{link.generation} (ok)", label)
            continue
        if link.generation >= link.max_generation:
            yield passed(f"Gen{link.generation} of Gen{link.max_generation}", label)
        elif not endpoint:
            continue
        elif _idle(scene, id_) is False:
            yield failed(
                f"Gen{link.generation} of Gen{link.max_generation} under load",
                label,
                fix=_retrain(id_, link),
            )
        else:
            pstate = scene.view.peek(f"gpu/{id_}/pstate")
            state = f"in {pstate}" if pstate else "whether it was at work is not known"
            yield inconclusive(
                f"Gen{link.generation} of Gen{link.max_generation}, {state}", label, hint=LOAD
            )


LOAD: Final = "links slow down at rest: read again under 3 s of copies"


def _retrain(id_: str, link: Link) -> Fix:
    return manual(
        f"retrain the link above {id_}: target speed Gen{link.max_generation} in the upstream "
        "port's LNKCTL2, then the retrain bit in LNKCTL, read back"
    )


@rule("pcie.link_flap")
def link_flap(scene: Scene) -> Judgements:
    limit = scene.profile["pcie_flaps_per_s"]
    for reading in scene.view.each("pcie_flaps/*/changes"):
        id_ = reading.name
        seconds = scene.view.number(f"pcie_flaps/{id_}/seconds", 0.1, 1e6)
        loaded = scene.view.flag(f"pcie_flaps/{id_}/under_load")
        changes = reading.integer
        if changes is None or changes < 0 or seconds is None:
            yield unknown("not sampled", id_)
        elif changes == 0:
            if seconds >= 10:
                yield passed(f"no change in {seconds:g} s", id_)
            else:
                yield inconclusive(f"no change in {seconds:g} s", id_, hint="sample for 30 s")
        elif loaded or changes / seconds > limit:
            where = " under load" if loaded else ""
            yield warned(
                f"{changes} speed changes in {seconds:g} s{where}",
                id_,
                fix=manual(
                    "once pcie.link_gen passes on this link, set Hardware "
                    "Autonomous Speed Disable (LNKCTL2 bit 5) and read back"
                ),
            )
        else:
            yield info(f"{changes} speed changes in {seconds:g} s at rest", id_)


@rule("pcie.path_bottleneck", min_gpus=2)
def path_bottleneck(scene: Scene) -> Judgements:
    found = devices(scene)
    for device in found.values():
        if scene.view.peek(device.key("port_type")) != "upstream port":
            continue
        below = [d for d in found.values() if d.role is Role.GPU and _above(found, d, device.bdf)]
        if not below:
            continue
        link = link_of(scene, device.bdf)
        if not link.width or not link.max_width or not link.generation:
            yield unknown("uplink not read", device.label)
            continue
        if link.width < link.max_width:
            yield failed(f"uplink x{link.width} of x{link.max_width}", device.label, fix=_reseat())
            continue
        room = link.width * LANE_GB_S[min(link.max_generation or link.generation, 6)]
        demand = 0.0
        for gpu in below:
            lane = link_of(scene, gpu.bdf)
            demand += (lane.max_width or 0) * LANE_GB_S.get(lane.max_generation or 0, 0)
        if not demand:
            yield unknown("the links below were not read", device.label)
            continue
        ratio = demand / room
        told = f"{len(below)} GPUs share {room:.0f} GB/s: {ratio:.1f} to 1"
        if ratio > scene.profile["pcie_oversubscription_warn"]:
            yield warned(told, device.label, fix=manual("spread the GPUs over more uplinks"))
        elif ratio <= scene.profile["pcie_oversubscription_fine"]:
            yield passed(told, device.label)
        else:
            yield info(told, device.label)
    roots = [d for d in found.values() if d.role is Role.GPU and d.parent]
    switches = {
        d.parent
        for d in roots
        if scene.view.peek(f"pci/{d.parent}/port_type") in ("downstream port", "upstream port")
    }
    if (
        roots
        and not switches
        and all(scene.view.text(f"pci/{d.parent}/port_type") == "root port" for d in roots)
    ):
        yield not_applicable("every GPU hangs on a root port of its own")


def _above(found: Mapping[str, Device], device: Device, bdf: str) -> bool:
    """Whether the port `bdf` is on the device's way to its root port."""
    parent, steps = device.parent, 0
    while parent and steps < 32:
        if parent == bdf:
            return True
        above = found.get(parent)
        parent, steps = (above.parent if above else None), steps + 1
    return False


@rule("pcie.aer")
def aer(scene: Scene) -> Judgements:
    view = scene.view
    owner = view.text("log/aer_owner")
    events = aer_events(view.items("log/kernel") or [])
    counters = view.each("/sys/bus/pci/devices/*/aer_dev_fatal")
    told = list(_recorded(scene))
    if owner == "firmware" and not events and not told:
        yield not_applicable(
            "firmware keeps AER to itself: zero counts prove nothing; read the BMC's event log"
        )
        return
    by_port: dict[str, list[str]] = {}
    for event in events:
        by_port.setdefault(event.port, []).append(event.severity)
    yield from (judgement for bdf, judgement in told if bdf not in by_port)
    for port, severities in by_port.items():
        wrong = sum(severity != "correctable" for severity in severities)
        if wrong:
            yield failed(f"{wrong} uncorrectable errors logged", port, fix=_cable())
        else:
            yield warned(
                f"{len(severities)} correctable errors logged",
                port,
                fix=_cable(),
                hint="the rate matters: count again after a minute of load",
            )
    for reading in counters:
        if reading.name in by_port:
            continue
        bdf = reading.name
        base = f"/sys/bus/pci/devices/{bdf}"
        fatal = _aer_total(view.text(f"{base}/aer_dev_fatal"))
        nonfatal = _aer_total(view.text(f"{base}/aer_dev_nonfatal"))
        correctable = _aer_total(view.text(f"{base}/aer_dev_correctable"))
        label = bdf.removeprefix("0000:")
        if fatal or nonfatal:
            yield failed(
                f"{fatal or 0} fatal, {nonfatal or 0} non-fatal errors", label, fix=_cable()
            )
        elif correctable:
            yield warned(
                f"{correctable} correctable errors since boot",
                label,
                fix=_cable(),
                hint="the rate matters: count again after a minute of load",
            )
        elif None in (fatal, nonfatal, correctable):
            yield unknown("counters not read", label)
        elif owner == "os":
            view.text("log/aer_owner")
            yield passed("no errors, and the kernel owns AER", label)
        else:
            yield unknown("no errors counted; whether the kernel owns AER is not known", label)


_HARMLESS: Final = frozenset({"UnsupReq", "ACSViol", "AdvNonFatalErr", "none"})
"""Status bits that enumeration alone sets; they say nothing of a link."""


def _recorded(scene: Scene) -> Iterator[tuple[str, Judgement]]:
    """What the AER status registers hold, as lspci prints them: errors since they were cleared."""
    view = scene.view
    for device in devices(scene).values():
        if device.role not in (Role.GPU, Role.BRIDGE, Role.UNNAMED):
            continue
        wrong = set((view.text(device.key("aer_uncorrectable")) or "").split()) - _HARMLESS
        mended = set((view.text(device.key("aer_correctable")) or "").split()) - _HARMLESS
        if wrong:
            what = f"{', '.join(sorted(wrong))} in UESta: uncorrectable errors since it was cleared"
            yield device.bdf, failed(what, device.label, fix=_cable())
        elif mended:
            what = f"{', '.join(sorted(mended))} in CESta: correctable errors since it was cleared"
            yield device.bdf, warned(what, device.label, fix=_cable())


def _aer_total(text: str | None) -> int | None:
    """The total of an `aer_dev_*` file."""
    match = re.search(r"TOTAL_ERR_\w+ (\d{1,18})", text or "")
    return int(match[1]) if match else None


def _cable() -> Fix:
    return manual("reseat the card, use a shorter cable or riser; lower the generation until then")


@rule("pcie.replay")
def replay(scene: Scene) -> Judgements:
    view = scene.view
    risen = {}
    for gpu in scene.gpus:
        delta = view.peek_integer(gpu.key("replays_per_minute"))
        if delta:
            risen[gpu.id] = delta
    for gpu in scene.gpus:
        delta = view.integer(gpu.key("replays_per_minute"))
        total = view.integer(gpu.key("replays"))
        if delta is None and total is None:
            if view.error(gpu.key("replays")) == "NotSupported":
                yield not_applicable("not counted", gpu.label)
            continue
        link = link_of(scene, gpu.id)
        if delta is None:
            if total == 0:
                yield passed("none since the last reset", gpu.label)
            else:
                yield inconclusive(
                    f"{total} since the last reset",
                    gpu.label,
                    hint="read again after a minute of load",
                )
            continue
        budget = (
            math.ceil(SPEEDS[link.generation] / 1000 * 60 * link.width)
            if link.generation in SPEEDS and link.width
            else None
        )
        if delta == 0:
            yield passed("none in a minute of load", gpu.label)
        elif budget is not None and delta > budget:
            yield failed(
                f"{delta} a minute, the bit error budget is {budget}", gpu.label, fix=_cable()
            )
        elif len(risen) == 1 and len(scene.gpus) > 1:
            yield warned(f"{delta} a minute, on this GPU alone", gpu.label, fix=_cable())
        else:
            yield info(f"{delta} a minute", gpu.label)


RULES = collect(globals())
