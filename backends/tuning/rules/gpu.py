"""GPU settings: persistence, power, clocks, modes, memory management, RDMA, resets."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.context import Gpu, Kind
from backends.tuning.findings import Columns, Judgement
from backends.tuning.fixes import Command, Fix, Risk, at_boot, commands, manual, module_option
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

COMPUTE_MODES: Final = {"Prohibited": "2", "Exclusive_Process": "3"}
"""What `nvidia-smi -c` takes, by the words it prints."""
ACTIVE: Final = frozenset({"active", "activating"})


@rule("gpu.persistence")
def persistence(scene: Scene) -> Judgements:
    view = scene.view
    daemon = view.text("unit/nvidia-persistenced/active")
    fix = commands(
        ("systemctl", "enable", "--now", "nvidia-persistenced"),
        summary="enable nvidia-persistenced",
        undo_argvs=(("systemctl", "disable", "--now", "nvidia-persistenced"),),
        persistent=(Command(("systemctl", "enable", "nvidia-persistenced")),),
    )
    view.drain()
    for gpu in scene.gpus:
        mode = view.flag(gpu.key("persistence"))
        if model := view.text(gpu.key("driver_model")):
            yield not_applicable(f"a driver of Windows ({model[:12]}) has none", gpu.label)
        elif mode:
            yield passed("persistence is on", gpu.label)
        elif mode is False and daemon in ACTIVE:
            view.text("unit/nvidia-persistenced/active")
            yield passed("nvidia-persistenced is active", gpu.label)
        elif mode is False and view.flag("engine/resident"):
            yield info("off, with an engine that never leaves", gpu.label, fix=fix)
        elif mode is False:
            yield warned("persistence is off", gpu.label, fix=fix)
        elif view.has(gpu.key("persistence")):
            yield unknown("persistence not read", gpu.label)


@rule("gpu.power_limit")
def power_limit(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        enforced = view.number(gpu.key("power_enforced_w"), 1, 20_000)
        limit = view.number(gpu.key("power_limit_w"), 1, 20_000)
        requested = view.number(gpu.key("power_requested_w"), 1, 20_000)
        default = view.number(gpu.key("power_default_w"), 1, 20_000)
        most = view.number(gpu.key("power_max_w"), 1, 20_000)
        now = enforced if enforced is not None else limit
        asked = requested if requested is not None else limit
        if now is None:
            if view.error(gpu.key("power_limit_w")) == "NotSupported":
                yield not_applicable("no power limit", gpu.label)
            elif view.has(gpu.key("power_limit_w")):
                yield unknown("power limit not read", gpu.label)
            continue
        plan = numbers.number(scene.expected.get("gpu.power_limit"))
        columns = Columns(f"{now:g} W", f"{asked:g} W" if asked else None)
        if asked is not None and now < asked - 1:
            yield warned(
                f"{now:g} W in force, {asked:g} W asked for: chassis or BMC caps it",
                gpu.label,
                columns=columns,
                fix=manual("look at the BMC's power cap"),
            )
        elif plan is not None:
            if abs(now - plan) <= 1:
                yield passed(f"{now:g} W as planned", gpu.label, columns=columns)
            else:
                yield warned(
                    f"{now:g} W, planned {plan:g} W",
                    gpu.label,
                    columns=columns,
                    fix=_set_power(gpu, plan, now),
                )
        elif default is None:
            if most is None:
                continue
            if now < most - 1:
                yield unknown(
                    f"{now:g} W of {most:g} W at most; the default was not read", gpu.label
                )
            else:
                yield passed(f"{now:g} W, the most the card takes", gpu.label, columns=columns)
        elif now < default - 1:
            yield warned(
                f"{now:g} W of {default:g} W by default, and no plan says so",
                gpu.label,
                columns=columns,
                fix=_set_power(gpu, default, now),
            )
        elif most is not None and now > most + 1:
            yield unknown(f"{now:g} W above the most of {most:g} W: not believed", gpu.label)
        else:
            yield passed(f"{now:g} W", gpu.label, columns=columns)


def _set_power(gpu: Gpu, wanted_w: float, now_w: float) -> Fix:
    card = ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label, "-pl")
    return commands(
        (*card, f"{wanted_w:.0f}"),
        summary=f"power limit of GPU {gpu.label} to {wanted_w:.0f} W (a driver reload resets it)",
        undo_argvs=((*card, f"{now_w:.0f}"),),
        persistent=(at_boot(*card, f"{wanted_w:.0f}"),),
    )


@rule("gpu.clocks")
def clocks(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        memory = view.number(gpu.key("clock_mem_mhz"), 1, 100_000)
        most = view.number(gpu.key("clock_mem_max_mhz"), 1, 100_000)
        pstate = view.text(gpu.key("pstate"))
        busy = view.number(gpu.key("util_pct"), 0, 100)
        locked = view.number(gpu.key("app_clock_sm_mhz"), 1, 100_000)
        top = view.number(gpu.key("clock_sm_max_mhz"), 1, 100_000)
        usual = view.number(gpu.key("app_clock_sm_default_mhz"), 1, 100_000)
        if (
            locked is not None
            and top
            and locked != usual
            and 100 * locked / top < scene.profile["gpu_sm_clock_lock_pct"]
        ):
            yield info(f"SM clock set to {locked:g} of {top:g} MHz", gpu.label, fix=_free(gpu))
            continue
        if memory is None or most is None:
            if memory is not None or most is not None:
                yield unknown("clocks not read", gpu.label)
            continue
        share = 100 * memory / most
        told = f"memory clock {memory:g} of {most:g} MHz ({share:.0f} % of the bandwidth)"
        if share >= scene.profile["gpu_mem_clock_pct"] and share <= 110:
            yield passed(told, gpu.label)
        elif view.flag(gpu.key("under_load")) or (
            pstate in ("P0", "P1", "P2") and (_drawing(scene, gpu) if busy is None else busy >= 50)
        ):
            yield warned(told, gpu.label, fix=_free(gpu))
        elif pstate is not None:
            yield _at_rest(told, gpu.label)
        else:
            yield unknown(told + "; state not known", gpu.label)


def _drawing(scene: Scene, gpu: Gpu) -> bool:
    """Whether its draw and the driver's word say that it works, where utilisation was not read."""
    view = scene.view
    reasons = view.peek_integer(gpu.key("reasons"))
    draw, limit = view.peek_number(gpu.key("power_w")), view.peek_number(gpu.key("power_limit_w"))
    idle = reasons is None or reasons & 1
    return not idle and draw is not None and limit is not None and draw >= 0.4 * limit


def _at_rest(told: str, label: str) -> Judgement:
    return inconclusive(f"{told}, at rest", label, hint="read again under load")


def _free(gpu: Gpu) -> Fix:
    id_ = gpu.id if ":" in gpu.id else gpu.label
    return commands(
        ("nvidia-smi", "-i", id_, "-rgc"),
        ("nvidia-smi", "-i", id_, "-rmc"),
        ("nvidia-smi", "-i", id_, "-rac"),
        summary=f"unlock the clocks of GPU {gpu.label}",
        undo="nothing takes it back: the driver does not tell which clocks were locked",
    )


@rule("gpu.ecc_mode")
def ecc_mode(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        now = view.flag(gpu.key("ecc_current"))
        next_ = view.flag(gpu.key("ecc_pending"))
        if now is None:
            if view.error(gpu.key("ecc_current")) == "NotSupported":
                yield not_applicable("no ECC", gpu.label)
            elif view.has(gpu.key("ecc_current")):
                yield unknown("ECC mode not read", gpu.label)
            continue
        words = "on" if now else "off"
        if next_ is None:
            if view.has(gpu.key("ecc_pending")) or not now:
                yield unknown(f"ECC {words}; the pending mode was not read", gpu.label)
        elif now != next_:
            yield warned(
                f"ECC {words}, {'on' if next_ else 'off'} after the next reset",
                gpu.label,
                columns=Columns(words, "on" if next_ else "off"),
                fix=manual("reset the GPU at the next drain, or reboot"),
            )
        elif not now:
            yield info("ECC off", gpu.label)
        else:
            yield passed("ECC on", gpu.label)


@rule("gpu.compute_mode")
def compute_mode(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        mode = view.text(gpu.key("compute_mode"))
        if mode is None:
            continue
        card = ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label)
        fix = commands(
            (*card, "-c", "0"),
            summary="compute mode to Default",
            undo_argvs=((*card, "-c", COMPUTE_MODES.get(mode, mode)),),
        )
        if mode in ("Default", "0"):
            yield passed("Default", gpu.label)
        elif mode in ("Prohibited", "2"):
            yield failed("Prohibited: no CUDA context can be made", gpu.label, fix=fix)
        elif mode in ("Exclusive_Process", "3"):
            yield warned("Exclusive_Process: one process only", gpu.label, fix=fix)
        else:
            yield unknown(f"compute mode {mode[:40]!r}", gpu.label)


@rule("gpu.mig")
def mig(scene: Scene) -> Judgements:
    view = scene.view
    plan = (scene.expected.get("gpu.mig") or "").lower()
    for gpu in scene.gpus:
        now = view.flag(gpu.key("mig_current"))
        next_ = view.flag(gpu.key("mig_pending"))
        if now is None:
            if view.error(gpu.key("mig_current")) == "NotSupported":
                yield not_applicable("no MIG", gpu.label)
            elif view.has(gpu.key("mig_current")):
                yield unknown("MIG mode not read", gpu.label)
            continue
        card = ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label)
        fix = commands(
            (*card, "-mig", "0"),
            summary="MIG off (idle GPU, then a reset)",
            undo_argvs=((*card, "-mig", "1"),),
            risk=Risk.MEDIUM,
        )
        if next_ is None:
            yield unknown("pending MIG mode not read", gpu.label)
        elif now != next_:
            yield warned("changes at the next reset", gpu.label, fix=manual("reset the GPU"))
        elif not now:
            if plan == "on":
                yield warned("MIG is off, planned on", gpu.label)
            else:
                yield passed("MIG is off", gpu.label)
        elif told := _spanning(scene, gpu):
            yield failed(
                f"MIG is on: its instances have no peer access, and {told}", gpu.label, fix=fix
            )
        elif plan == "off":
            yield warned("MIG is on, planned off", gpu.label, fix=fix)
        elif plan == "on":
            yield passed("MIG is on, as planned", gpu.label)
        else:
            told = "" if scene.context.gpu_count == 1 else ": no tensor parallelism over these GPUs"
            yield info(f"MIG is on{told}", gpu.label)


def _spanning(scene: Scene, gpu: Gpu) -> str:
    """What serves on this GPU and on others at once; empty where nothing does."""
    index = scene.view.peek_integer(gpu.key("index"))
    if index is None:
        return ""
    view = scene.view
    ranks = view.peek_integer("engine/tensor_parallel") or 1
    if ranks > 1 and str(index) in (view.peek("engine/gpu_indices") or "").split(","):
        view.integer("engine/tensor_parallel")
        return f"the server splits its model over {ranks} GPUs"
    for reading in view.peek_each("engine/*/gpus"):
        held = (reading.text or "").split(",")
        if len(held) > 1 and str(index) in held:
            view.text(f"engine/{reading.name}/gpus")
            return f"process {reading.name} holds {len(held)} GPUs"
    return ""


@rule("gpu.hmm")
def hmm(scene: Scene) -> Judgements:
    view = scene.view
    path = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
    disabled = view.flag(path)
    if disabled:
        yield passed("uvm_disable_hmm is set")
        return
    fix = module_option("nvidia_uvm", "uvm_disable_hmm=1", summary="switch HMM off")
    seen = False
    for gpu in scene.gpus:
        mode = view.text(gpu.key("addressing_mode"))
        if mode is None:
            continue
        seen = True
        if mode in ("None", "ATS"):
            yield passed(f"addressing mode {mode}", gpu.label)
        elif mode == "HMM":
            many = scene.context.gpu_count is None or scene.context.gpu_count > 1
            card = gpu.model is None or gpu.model.consumer or not gpu.model.nvlinks
            if many and card:
                yield warned("HMM is active", gpu.label, fix=fix)
            else:
                yield info("HMM is active", gpu.label, fix=fix)
        else:
            yield unknown(f"addressing mode {mode[:40]!r}", gpu.label)
    if not seen and disabled is False:
        yield unknown(
            "HMM is not switched off; whether it is active was not read",
            hint="nvidia-smi -q shows the addressing mode",
        )
    elif not seen and view.absent(path):
        yield not_applicable("the module has no such parameter")


@rule("gpu.peermem", rdma=True)
def peermem(scene: Scene) -> Judgements:
    view = scene.view
    named = [m for m in view.peek_items("/proc/modules") if re.match(r"\w+ \d+ ", m)]
    loaded = any(m.startswith("nvidia_peermem ") for m in named) if named else None
    if named:
        view.lines("/proc/modules")
    release = view.find("/proc/sys/kernel/osrelease", r"^\d+\.\d+\S*")
    kernel = numbers.release(release[0]) if release else None
    is_open = view.flag("nvrm/open")
    gdr = view.flag("nccl/gdr")
    dma_buf = None if kernel is None or is_open is None else kernel >= (5, 12) and is_open
    if gdr:
        yield passed("NCCL says GPU Direct RDMA is enabled")
    elif dma_buf and loaded:
        yield info("DMA-BUF is available and nvidia_peermem is loaded")
    elif dma_buf or loaded:
        yield passed("DMA-BUF" if dma_buf else "nvidia_peermem is loaded")
    elif dma_buf is False and loaded is False:
        if scene.context.rdma:
            yield warned(
                "neither DMA-BUF nor nvidia_peermem",
                fix=commands(
                    ("modprobe", "nvidia_peermem"),
                    summary="load nvidia_peermem",
                    undo_argvs=(("modprobe", "-r", "nvidia_peermem"),),
                ),
            )
        else:
            yield unknown("neither DMA-BUF nor nvidia_peermem; RDMA cards were not looked for")
    elif gdr is False:
        yield warned("NCCL says GPU Direct RDMA is disabled")


@rule("gpu.reset_capable", kinds=(Kind.BARE_METAL, Kind.LXC, Kind.VM))
def reset_capable(scene: Scene) -> Judgements:
    view = scene.view
    processes = view.items("gpu/processes")
    wants = [
        g
        for g in scene.gpus
        if str(view.peek(g.key("recovery_action"))).lower() in ("1", "gpu reset", "reset")
    ]
    if processes is None and not view.flag("gpu/complete"):
        return
    if wants and processes:
        yield failed(
            f"a reset is asked for, and {len(processes)} processes hold the GPUs",
            fix=manual("stop the engine, then nvidia-smi --gpu-reset"),
        )
    else:
        yield info(f"{len(processes or [])} processes hold GPUs")


RULES = collect(globals())
