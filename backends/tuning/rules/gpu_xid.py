"""What the driver itself says went wrong: Xid in the kernel's log, and its recovery action."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning.findings import WORST_FIRST, Judgement, Verdict
from backends.tuning.fixes import manual
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.kernel_events import Xid, bus_losses, incidents, xids
from backends.tuning.tables import xid_table

ACTIONS: Final = {
    0: (Verdict.PASS, "none"),
    1: (Verdict.FAIL, "reset the GPU"),
    2: (Verdict.FAIL, "reboot the node"),
    3: (Verdict.WARN, "drain peer-to-peer work"),
    4: (Verdict.WARN, "drain, then reset the GPU"),
    6: (Verdict.FAIL, "reset the bus"),
    7: (Verdict.FAIL, "reboot the system"),
}
"""NVML's GPU recovery action."""
ACTION_WORDS: Final = {
    "none": 0,
    "gpu reset": 1,
    "reset": 1,
    "gpu reset required": 1,
    "node reboot": 2,
    "reboot": 2,
    "node reboot required": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "bus reset": 6,
    "system reboot": 7,
}


_SXID: Final = re.compile(
    r"SXid \(PCI:[0-9A-Fa-f:.]+\): (?P<code>\d{1,6}), (?P<how>Fatal|Non-fatal)\b"
)


@rule("gpu.xid")
def xid(scene: Scene) -> Judgements:
    view = scene.view
    lines = view.items("log/kernel")
    if lines is None:
        error = view.error("log/kernel")
        if error:
            yield unknown(f"the kernel's log: {error}", hint="dmesg needs root here")
        return
    raw = xids(lines)
    found = incidents(raw)
    lost = bus_losses(lines)
    told = []
    for bdf, code in dict.fromkeys((x.bdf, x.code) for x in found):
        events = [x for x in found if (x.bdf, x.code) == (bdf, code)]
        programs = {x.pid for x in raw if (x.bdf, x.code) == (bdf, code) and x.pid}
        told.append(_one_xid(scene, events, len(programs)))
    if lost:
        told.append((Verdict.FAIL, lost[0][-140:], "power-cycle the host; reseat the card"))
    if switch := [match for text in lines if (match := _SXID.search(text))]:
        fatal = [match for match in switch if match["how"] == "Fatal"]
        first = (fatal or switch)[0]
        words = f"NVSwitch SXid {first['code']} ({first['how'].lower()}) x{len(fatal or switch)}"
        told.append((Verdict.FAIL if fatal else Verdict.WARN, words, "reset all GPUs and switches"))
    if told:
        told.sort(key=lambda item: WORST_FIRST.index(item[0]))
        verdict, _, action = told[0]
        evidence = "; ".join(words for _, words, _ in told[:6])
        more = f" and {len(told) - 6} more" if len(told) > 6 else ""
        yield Judgement(verdict, evidence + more, fix=manual(action) if action else None)
    elif view.flag("log/complete"):
        yield passed("no Xid since boot")
    elif any("NVRM" in line for line in lines):
        yield unknown("no Xid in this part of the log")


def _one_xid(scene: Scene, events: list[Xid], programs: int) -> tuple[Verdict, str, str]:
    """Verdict, words and action for one code on one GPU."""
    first = events[0]
    code = first.code
    entry = xid_table().get(code)
    count = f" x{len(events)}" if len(events) > 1 else ""
    where = first.bdf.removeprefix("0000:").removesuffix(".0")
    if code == 154:
        code_hit = re.search(r"to (0x[0-9a-f]+)", events[-1].text, re.IGNORECASE)
        action = ACTIONS.get(int(code_hit[1], 16)) if code_hit else None
        verdict, words = action or (Verdict.WARN, "recovery action changed")
        return (
            Verdict.INFO if verdict is Verdict.PASS else verdict,
            f"Xid 154 at {where}: {words}",
            words,
        )
    if entry is None:
        return Verdict.WARN, f"Xid {code}{count} at {where}: {first.text[:80]}", ""
    verdict = Verdict(entry.verdict)
    if verdict is Verdict.WARN and programs >= scene.profile["gpu_xid_processes"]:
        verdict = Verdict.FAIL
        return (
            verdict,
            f"Xid {code} at {where} from {programs} programs: {entry.meaning}",
            ("several programs on one GPU: suspect the hardware"),
        )
    return verdict, f"Xid {code}{count} at {where}: {entry.meaning}", entry.action


@rule("gpu.recovery_action")
def recovery_action(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        key = gpu.key("recovery_action")
        text = view.text(key)
        if text is None:
            if view.error(key) == "NotSupported":
                yield not_applicable("this driver does not say", gpu.label)
            continue
        code = int(text) if text.isdecimal() and len(text) < 4 else ACTION_WORDS.get(text.lower())
        if code not in ACTIONS:
            yield unknown(f"recovery action {text[:40]!r}", gpu.label)
            continue
        verdict, words = ACTIONS[code]
        if verdict is Verdict.PASS:
            yield passed("none asked for", gpu.label)
        else:
            made = failed if verdict is Verdict.FAIL else warned
            yield made(f"the driver asks to {words}", gpu.label, fix=manual(words))


RULES = collect(globals())
