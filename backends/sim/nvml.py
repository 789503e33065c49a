"""A simulated NVML with the interface of pynvml, as far as the agent calls it.

Eight (or sixteen) RTX PRO 6000 Blackwell cards of 600 W that follow load with inertia, warm up,
are held by power cap and temperature, and count energy and held time consistently with it. It
travels to the far side of the demo alone, in pynvml's place: standard library, Python 3.8.

Everything follows from scenario, seed and the time since the start, so that a test with a clock of
its own gets the same numbers each time.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

SCENARIO = "healthy"
SEED = 1

NVML_FEATURE_DISABLED, NVML_FEATURE_ENABLED = 0, 1
NVML_TEMPERATURE_GPU = 0
NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1
NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO = 0, 1, 2, 3
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_NVLINK_MAX_LINKS = 36
NVML_DEVICE_ARCH_BLACKWELL = 10
nvmlMemory_v2 = 0x02000028

NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP = 74
NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST = 76
NVML_FI_DEV_MEMORY_TEMP = 82
NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83
NVML_FI_DEV_POWER_AVERAGE = 185
NVML_FI_DEV_POWER_INSTANT = 186
NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN = 269
NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN = 270
NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN = 271
NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 1, 3

nvmlClocksEventReasonGpuIdle = 0x1
nvmlClocksEventReasonSwPowerCap = 0x4
nvmlClocksEventReasonHwSlowdown = 0x8
nvmlClocksEventReasonSwThermalSlowdown = 0x20
nvmlClocksEventReasonHwThermalSlowdown = 0x40

_ERRORS = {
    "UNINITIALIZED": (1, "Uninitialized"),
    "INVALID_ARGUMENT": (2, "Invalid Argument"),
    "NOT_SUPPORTED": (3, "Not Supported"),
    "NO_PERMISSION": (4, "Insufficient Permissions"),
    "ALREADY_INITIALIZED": (5, "Already Initialized"),
    "NOT_FOUND": (6, "Not Found"),
    "INSUFFICIENT_SIZE": (7, "Insufficient Size"),
    "DRIVER_NOT_LOADED": (9, "Driver Not Loaded"),
    "TIMEOUT": (10, "Timeout"),
    "LIBRARY_NOT_FOUND": (12, "NVML Shared Library Not Found"),
    "FUNCTION_NOT_FOUND": (13, "Function Not Found"),
    "GPU_IS_LOST": (15, "GPU is lost"),
    "RESET_REQUIRED": (16, "GPU requires restart"),
    "OPERATING_SYSTEM": (17, "The operating system has blocked the request."),
    "LIB_RM_VERSION_MISMATCH": (18, "RM has detected an NVML/RM version mismatch."),
    "ARGUMENT_VERSION_MISMATCH": (25, "Argument version mismatch"),
    "GPU_NOT_FOUND": (28, "GPU not found"),
    "UNKNOWN": (999, "Unknown Error"),
}
NVML_SUCCESS = 0


class NVMLError(Exception):
    """An NVML return code; `NVMLError(code)` gives an instance of the code's own subclass."""

    classes: Dict[int, Any] = {}
    value: int

    def __new__(cls, value: int) -> NVMLError:
        """Map the code to its subclass."""
        kind: Any = cls.classes.get(value, cls) if cls is NVMLError else cls
        error: NVMLError = Exception.__new__(kind)
        error.value = value
        return error

    def __str__(self) -> str:
        return dict(_ERRORS.values()).get(self.value, "NVML Error with code %d" % self.value)


for _name, (_code, _text) in _ERRORS.items():
    globals()["NVML_ERROR_" + _name] = _code
    _class = "NVMLError_" + _name.title().replace("_", "")
    NVMLError.classes[_code] = globals()[_class] = type(_class, (NVMLError,), {})


def _fail(name: str) -> NVMLError:
    return NVMLError(_ERRORS[name][0])


# The cards. Figures of an idle one are those that a real card showed (39 W in P8 at 180 MHz, 600 W
# limit, 300 W lowest, 2430 MHz, 97,887 MiB with 636 reserved); how they move is a model.

MIB = 1 << 20
MEMORY_TOTAL = 97887 * MIB
MEMORY_RESERVED = 636 * MIB
LIMIT_W, LIMIT_MIN_W = 600.0, 300.0
SM_MAX_MHZ, MEMORY_MAX_MHZ = 2430, 12481
SM_IDLE_MHZ, MEMORY_IDLE_MHZ = 180, 405
IDLE_W, CONTEXT_W, DYNAMIC_W = 39.0, 86.0, 560.0
THROTTLE_C, SLOWDOWN_C = 85.0, 87.0
AMBIENT_C, HEAT_C_PER_W, HEAT_S = 26.0, 0.078, 22.0
STEP_S = 0.1
CATCH_UP_STEPS = 900
WARM_UP_S = 90.0


class Fault(NamedTuple):
    """Something that goes wrong from `at_s` for `lasts_s`, again every `every_s`."""

    kind: str
    at_s: float
    lasts_s: float
    every_s: float
    card: int = -1

    def left_s(self, now_s: float) -> float:
        """For how much longer it lasts; 0 while it doesn't."""
        if now_s < self.at_s:
            return 0.0
        since_s = (now_s - self.at_s) % self.every_s
        return max(0.0, self.lasts_s - since_s)


class Setup(NamedTuple):
    """What a scenario consists of."""

    cards: int = 8
    load: float = 0.62
    limit_w: float = LIMIT_W
    hot_card: int = -1
    mig_cards: Tuple[int, ...] = ()
    faults: Tuple[Fault, ...] = ()


SETUPS: Dict[str, Setup] = {
    "healthy": Setup(),
    "idle": Setup(load=0.0),
    "capped": Setup(load=0.92, limit_w=450.0),
    "straggler": Setup(load=0.75, hot_card=5),
    "lost-gpu": Setup(faults=(Fault("lost", 25.0, 45.0, 150.0, card=3),)),
    "hung-driver": Setup(faults=(Fault("hung", 20.0, 30.0, 90.0),)),
    "mig": Setup(load=0.55, mig_cards=(0, 1)),
    "sixteen": Setup(cards=16),
    "reboot": Setup(load=0.0),
}


class Process(NamedTuple):
    """A process that holds cards: `sglang` schedulers of one server a group of eight."""

    pid: int
    card: int
    memory: int


SERVER_MEMORY = 89_600 * MIB
RANK_PID = 48_210
"""Of the first rank of the first server."""
MIG_MEMORY = 21_300 * MIB


def server_processes(setup: Setup) -> List[Process]:
    """Every process of a scenario; the demo's /proc is made from the same list."""
    if setup.load <= 0.0:
        return []
    found = []
    for card in range(setup.cards):
        if card in setup.mig_cards:
            found += [Process(52_310 + 2 * card + part, card, MIG_MEMORY) for part in range(2)]
        else:
            found.append(Process(RANK_PID + 400 * (card // 8) + card, card, SERVER_MEMORY))
    return found


class Card:
    """One card's state, moved on in small steps."""

    def __init__(self, index: int, setup: Setup, rng: random.Random) -> None:
        self.index = index
        self.uuid = "GPU-5a1e0000-0000-4000-8000-%012x" % (0xC0FFEE00 + index)
        self.bus = 0x06 + 0x10 * (index % 8) + 8 * (index // 8)
        self.limit_w = setup.limit_w
        self.mig = index in setup.mig_cards
        self.heat_c_per_w = HEAT_C_PER_W * rng.uniform(0.94, 1.06)
        if index == setup.hot_card:
            self.heat_c_per_w *= 2.1
        self.appetite = rng.uniform(0.98, 1.02)
        self.ambient_c = AMBIENT_C + rng.uniform(0.0, 4.0)
        self.noise = rng
        self.activity = 0.0
        self.utilization = 0.0
        self.memory_utilization = 0.0
        self.power_w = IDLE_W
        self.power_average_w = IDLE_W
        self.temperature_c = self.ambient_c + IDLE_W * self.heat_c_per_w
        self.thermal_factor = 1.0
        self.clock_mhz = float(SM_IDLE_MHZ)
        self.reasons = nvmlClocksEventReasonGpuIdle
        self.awake = False
        self.memory = 0
        self.energy_mj = rng.uniform(2e11, 6e11)
        self.held_ns = {"power": int(rng.uniform(0, 9e9)), "sw": 0, "hw": 0}

    def step(self, dt: float, target: float, busy: bool, serving: bool) -> None:
        """Move on by `dt` seconds towards the activity that the load asks for."""
        self.activity += (target - self.activity) * (1.0 - math.exp(-dt / 0.25))
        wobble = self.noise.uniform(-1.0, 1.0)
        reasons = 0
        self.awake = serving
        if not serving:
            wanted_w, factor = IDLE_W + wobble * 0.4, 1.0
            reasons = nvmlClocksEventReasonGpuIdle
        else:
            wanted_w = CONTEXT_W + DYNAMIC_W * self.appetite * self.activity * (1 + 0.02 * wobble)
            factor = 1.0 - 0.04 * self.activity  # voltage droop under load
            # Dynamic power grows with about the 2.4th power of the clock along the V/f curve.
            if self.thermal_factor < 1.0:
                factor *= self.thermal_factor
                wanted_w = CONTEXT_W + (wanted_w - CONTEXT_W) * self.thermal_factor**2.4
            if wanted_w > self.limit_w:
                room = (self.limit_w - CONTEXT_W) / (wanted_w - CONTEXT_W)
                factor *= room ** (1 / 2.4)
                wanted_w = self.limit_w * (1 - 0.008 * abs(wobble))
                reasons |= nvmlClocksEventReasonSwPowerCap
                self.held_ns["power"] += int(dt * 1e9)
        # The firmware takes clock away in proportion as the card nears its limit.
        allowed = min(1.0, max(0.35, 1.0 - 0.06 * (self.temperature_c - THROTTLE_C + 4.0)))
        self.thermal_factor += (allowed - self.thermal_factor) * (1.0 - math.exp(-dt / 2.0))
        if serving and self.thermal_factor < 0.98:
            reasons |= nvmlClocksEventReasonSwThermalSlowdown
            self.held_ns["sw"] += int(dt * 1e9)
        if self.temperature_c >= SLOWDOWN_C:
            reasons |= nvmlClocksEventReasonHwThermalSlowdown | nvmlClocksEventReasonHwSlowdown
            self.held_ns["hw"] += int(dt * 1e9)
        self.reasons = reasons
        self.clock_mhz = 15 * round(SM_MAX_MHZ * factor / 15) if serving else SM_IDLE_MHZ
        self.power_w += (wanted_w - self.power_w) * (1.0 - math.exp(-dt / 0.12))
        self.power_average_w += (self.power_w - self.power_average_w) * min(1.0, dt)
        self.energy_mj += self.power_w * dt * 1000.0
        rest_c = self.ambient_c + self.power_w * self.heat_c_per_w
        self.temperature_c += (rest_c - self.temperature_c) * (1.0 - math.exp(-dt / HEAT_S))
        settle = 1.0 - math.exp(-dt / 0.4)
        self.utilization += ((100.0 if busy else 0.0) - self.utilization) * settle
        memory_target = 100.0 * min(1.0, 0.9 * self.activity) if busy else 0.0
        self.memory_utilization += (memory_target - self.memory_utilization) * settle


class Hold(NamedTuple):
    """What the host's server holds of its cards: a share of their memory, and whether it serves."""

    memory: float
    ready: bool


ENGINE_LOAD = 0.62
"""What requests ask of a server that was started where a scenario has no load of its own."""


class World:
    """All cards of a host, their load and what goes wrong with them."""

    def __init__(
        self,
        scenario: str,
        seed: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        log: Callable[[str], None],
        engine: Callable[[], Optional[Hold]] = lambda: None,
        limits: Callable[[], Dict[int, float]] = dict,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._hold: Optional[Hold] = None
        self.setup = SETUPS[scenario]
        self.seed = seed
        self.cards = [
            Card(index, self.setup, random.Random(seed * 1000 + index))
            for index in range(self.setup.cards)
        ]
        self.processes = server_processes(self.setup)
        self._clock = clock
        self._sleep = sleep
        self._log = log
        self._was_lost = False
        self._start_s = clock()
        self._at_s = -WARM_UP_S
        self._lock = threading.Lock()
        rng = random.Random(seed)
        self._phases = [rng.uniform(0.0, 2 * math.pi) for _ in range(3)]

    def now_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start_s

    def load(self, at_s: float, mean: Optional[float] = None) -> float:
        """What the requests ask for, 0 to 1: swells, bursts of prefill, now and then a lull."""
        mean = self.setup.load if mean is None else mean
        if mean <= 0.0:
            return 0.0
        a, b, c = self._phases
        if (at_s + 10.0 * a) % 97.0 < 7.0:
            return 0.0
        swell = 0.12 * math.sin(at_s / 17.0 + a) + 0.06 * math.sin(at_s / 5.3 + b)
        burst = 0.22 if (at_s + 3.0 * c) % 11.0 < 1.6 else 0.0
        return min(1.0, max(0.08, mean + swell + burst))

    def fault(self, kind: str, at_s: float) -> Optional[Fault]:
        """The fault of that kind that is on at that time."""
        for fault in self.setup.faults:
            if fault.kind == kind and fault.left_s(at_s) > 0.0:
                return fault
        return None

    def serving(self, at_s: float) -> bool:
        """Whether the server is there: without one of its cards it dies, and is started again."""
        if self.setup.load <= 0.0:
            return False
        return self.fault("lost", at_s) is None and self.fault("lost", at_s - 12.0) is None

    def settle(self) -> None:
        """Wait while the driver hangs, then move the cards on to now."""
        while True:
            hung = self.fault("hung", self.now_s())
            if hung is None:
                break
            self._sleep(min(0.5, hung.left_s(self.now_s())))
        with self._lock:
            now_s = self.now_s()
            behind_s = now_s - self._at_s
            if behind_s < STEP_S:
                return
            self._hold = self._engine()
            limits = self._limits()
            for card in self.cards:
                card.limit_w = limits.get(card.bus, self.setup.limit_w)
            steps = min(CATCH_UP_STEPS, int(behind_s / STEP_S))
            dt = STEP_S if steps < CATCH_UP_STEPS else behind_s / steps
            for _ in range(steps):
                self._at_s += dt
                self._step(self._at_s, dt)

    def _step(self, at_s: float, dt: float) -> None:
        load = self.load(at_s)
        serving = self.serving(at_s)
        lost = self.fault("lost", at_s)
        if lost is not None and not self._was_lost:
            text = "NVRM: Xid (PCI:0000:%02x:00): 79, GPU has fallen off the bus."
            self._log(text % self.cards[lost.card].bus)
        self._was_lost = lost is not None
        slowest = 1.0
        if self.setup.hot_card >= 0:
            slowest = self.cards[self.setup.hot_card].thermal_factor
        for card in self.cards:
            # In a tensor-parallel group all wait for the slowest: they spin, at less power.
            share = load if card.index == self.setup.hot_card else load * slowest**1.5
            if card.index >= 8:
                share = self.load(at_s + 31.0)
            there, hold = serving, self._hold
            if hold is not None and card.index < 8 and not card.mig:
                there = hold.memory > 0.0 and lost is None
                if not hold.ready:
                    share = 0.0
                elif self.setup.load <= 0.0:
                    share = self.load(at_s, ENGINE_LOAD)
            card.step(dt, share if there else 0.0, there and share > 0.0, there)
            card.memory = 0
            if there and hold is not None and card.index < 8 and not card.mig:
                card.memory = int(hold.memory * (MEMORY_TOTAL - MEMORY_RESERVED))
            elif there:
                card.memory = sum(p.memory for p in self.processes if p.card == card.index)


class _Instance(NamedTuple):
    card: Card
    number: int


class _Struct:
    """A result with attributes."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


_world: Optional[World] = None


def configure(
    scenario: str,
    seed: int = 1,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    log: Callable[[str], None] = lambda line: None,
    engine: Callable[[], Optional[Hold]] = lambda: None,
    limits: Callable[[], Dict[int, float]] = dict,
) -> World:
    """Set the world up, with a clock of its own; a test's way in, and `nvmlInit`'s."""
    global _world
    _world = World(scenario, seed, clock, sleep, log, engine, limits)
    return _world


def _settled() -> World:
    if _world is None:
        raise _fail("UNINITIALIZED")
    _world.settle()
    return _world


def _card(handle: Any) -> Card:
    world = _settled()
    card: Card = handle.card if isinstance(handle, _Instance) else handle
    lost = world.fault("lost", world.now_s())
    if lost is not None and lost.card == card.index:
        raise _fail("GPU_IS_LOST")
    return card


def _kernel_log(line: str) -> None:
    """Write to what stands for the host's kernel log, where there is one."""
    try:
        from gpuroom_settings import SETTINGS

        with open(SETTINGS["kernel_log"], "a") as file:
            file.write("%s demo kernel: %s\n" % (time.strftime("%b %d %H:%M:%S"), line))
    except (ImportError, KeyError, OSError):
        pass


def _held_by_engine() -> Optional[Hold]:
    """What the simulated engine wrote down; None where none was ever started."""
    try:
        from gpuroom_settings import SETTINGS

        with open(SETTINGS["engine_state"]) as file:
            state = json.load(file)
        if not os.path.exists("/proc/%d" % state["pid"]):
            return Hold(0.0, False)  # it was killed: the driver has taken everything back
        return Hold(float(state["memory"]), bool(state["ready"]))
    except (ImportError, KeyError, OSError, ValueError, TypeError):
        return None


def _limits_set() -> Dict[int, float]:
    """Power limits by bus, as the simulated `nvidia-smi -pl` wrote them down; the last counts."""
    found: Dict[int, float] = {}
    try:
        from gpuroom_settings import SETTINGS

        with open(SETTINGS["root"] + "/usr/share/demo/limits") as file:
            for line in file:
                bus_id, watts = line.split()
                found[int(bus_id.split(":")[-2], 16)] = float(watts)
    except (ImportError, KeyError, OSError, ValueError, IndexError):
        pass
    return found


def nvmlInit() -> None:
    if _world is None:
        configure(SCENARIO, SEED, log=_kernel_log, engine=_held_by_engine, limits=_limits_set)


def nvmlInitWithFlags(flags: int) -> None:
    nvmlInit()


def nvmlShutdown() -> None:
    """Nothing to let go of: the world goes on, as cards do."""


def nvmlSystemGetDriverVersion() -> str:
    _settled()
    return "595.58.03"


def nvmlSystemGetNVMLVersion() -> str:
    return "13.595.58.03"


def nvmlSystemGetCudaDriverVersion() -> int:
    return 13020


nvmlSystemGetCudaDriverVersion_v2 = nvmlSystemGetCudaDriverVersion


def nvmlDeviceGetCount() -> int:
    return len(_settled().cards)


def nvmlDeviceGetHandleByIndex(index: int) -> Card:
    cards = _settled().cards
    if not 0 <= index < len(cards):
        raise _fail("INVALID_ARGUMENT")
    return _card(cards[index])


def nvmlDeviceGetHandleByUUID(uuid: str) -> Card:
    for card in _settled().cards:
        if card.uuid == uuid:
            return _card(card)
    raise _fail("NOT_FOUND")


def nvmlDeviceGetIndex(handle: Any) -> int:
    return _card(handle).index


def nvmlDeviceGetName(handle: Any) -> str:
    _card(handle)
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    return name + " MIG 2g.48gb" if isinstance(handle, _Instance) else name


def nvmlDeviceGetUUID(handle: Any) -> str:
    uuid = _card(handle).uuid
    return "MIG%s%d" % (uuid[3:-1], handle.number) if isinstance(handle, _Instance) else uuid


def nvmlDeviceGetPciInfo(handle: Any) -> _Struct:
    bus = _card(handle).bus
    return _Struct(busId="00000000:%02X:00.0" % bus, domain=0, bus=bus, device=0)


nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo


def nvmlDeviceGetFieldValues(handle: Any, field_ids: List[Any]) -> List[_Struct]:
    card = _card(handle)
    known = {
        NVML_FI_DEV_POWER_AVERAGE: card.power_average_w * 1000,
        NVML_FI_DEV_POWER_INSTANT: card.power_w * 1000,
        NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: card.energy_mj,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: card.held_ns["power"],
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: 0,
        NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: card.held_ns["sw"],
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: card.held_ns["hw"],
        NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 0,
    }
    answers = []
    for asked in field_ids:
        field = asked[0] if isinstance(asked, tuple) else asked
        code = NVML_SUCCESS if field in known else _ERRORS["NOT_SUPPORTED"][0]
        value = int(known.get(field, 0))
        answers.append(
            _Struct(
                fieldId=field,
                nvmlReturn=code,
                valueType=NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
                value=_Struct(ullVal=value, uiVal=value, ulVal=value, siVal=value, dVal=value),
            )
        )
    return answers


def nvmlDeviceGetPowerUsage(handle: Any) -> int:
    return int(_card(handle).power_average_w * 1000)


def nvmlDeviceGetTotalEnergyConsumption(handle: Any) -> int:
    return int(_card(handle).energy_mj)


def nvmlDeviceGetEnforcedPowerLimit(handle: Any) -> int:
    return int(_card(handle).limit_w * 1000)


nvmlDeviceGetPowerManagementLimit = nvmlDeviceGetEnforcedPowerLimit


def nvmlDeviceGetPowerManagementDefaultLimit(handle: Any) -> int:
    _card(handle)
    return int(LIMIT_W * 1000)


def nvmlDeviceGetPowerManagementLimitConstraints(handle: Any) -> List[int]:
    _card(handle)
    return [int(LIMIT_MIN_W * 1000), int(LIMIT_W * 1000)]


def nvmlDeviceGetUtilizationRates(handle: Any) -> _Struct:
    card = _card(handle)
    if card.mig:
        raise _fail("NOT_SUPPORTED")
    return _Struct(gpu=round(card.utilization), memory=round(card.memory_utilization))


def nvmlDeviceGetMemoryInfo(handle: Any, version: Optional[int] = None) -> _Struct:
    card = _card(handle)
    if isinstance(handle, _Instance):
        total, reserved = MEMORY_TOTAL // 2, MEMORY_RESERVED // 2
        used = MIG_MEMORY if card.memory else 0
    else:
        total, reserved, used = MEMORY_TOTAL, MEMORY_RESERVED, card.memory
    free = total - used - reserved
    if version is None:
        return _Struct(total=total, used=used + reserved, free=free)
    return _Struct(version=version, total=total, used=used, free=free, reserved=reserved)


def nvmlDeviceGetBAR1MemoryInfo(handle: Any) -> _Struct:
    _card(handle)
    return _Struct(bar1Total=131072 * MIB, bar1Used=2 * MIB, bar1Free=131070 * MIB)


def nvmlDeviceGetTemperature(handle: Any, sensor: int) -> int:
    return round(_card(handle).temperature_c)


def nvmlDeviceGetTemperatureV(handle: Any, sensor: int, version: int = 0) -> int:
    return nvmlDeviceGetTemperature(handle, sensor)


def nvmlDeviceGetMarginTemperature(handle: Any, version: int = 0) -> int:
    return round(THROTTLE_C - _card(handle).temperature_c)


def nvmlDeviceGetTemperatureThreshold(handle: Any, threshold: int) -> int:
    _card(handle)
    if threshold == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
        return int(SLOWDOWN_C)
    if threshold == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
        return int(SLOWDOWN_C) + 3
    raise _fail("NOT_SUPPORTED")


def nvmlDeviceGetClockInfo(handle: Any, kind: int) -> int:
    card = _card(handle)
    if kind == NVML_CLOCK_MEM:
        return MEMORY_MAX_MHZ if card.awake else MEMORY_IDLE_MHZ
    return int(card.clock_mhz)


def nvmlDeviceGetMaxClockInfo(handle: Any, kind: int) -> int:
    _card(handle)
    return MEMORY_MAX_MHZ if kind == NVML_CLOCK_MEM else SM_MAX_MHZ


def nvmlDeviceGetCurrentClocksEventReasons(handle: Any) -> int:
    return _card(handle).reasons


nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons


def nvmlDeviceGetCurrPcieLinkGeneration(handle: Any) -> int:
    return 5 if _card(handle).awake else 1  # idle cards train down, and that is well


def nvmlDeviceGetCurrPcieLinkWidth(handle: Any) -> int:
    _card(handle)
    return 16


def nvmlDeviceGetMaxPcieLinkGeneration(handle: Any) -> int:
    _card(handle)
    return 5


nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth


def nvmlDeviceGetPcieThroughput(handle: Any, counter: int) -> int:
    card = _card(handle)
    assert _world is not None
    _world._sleep(0.02)  # the real call measures for as long
    share = card.activity if counter == NVML_PCIE_UTIL_RX_BYTES else 0.8 * card.activity
    return int(600 + 14_000_000 * share)


def nvmlDeviceGetPcieReplayCounter(handle: Any) -> int:
    _card(handle)
    return 0


def nvmlDeviceGetPerformanceState(handle: Any) -> int:
    return 1 if _card(handle).awake else 8


def nvmlDeviceGetPersistenceMode(handle: Any) -> int:
    _card(handle)
    return NVML_FEATURE_ENABLED


def nvmlDeviceGetComputeMode(handle: Any) -> int:
    _card(handle)
    return 0


def nvmlDeviceGetEccMode(handle: Any) -> List[int]:
    _card(handle)
    return [NVML_FEATURE_ENABLED, NVML_FEATURE_ENABLED]


def nvmlDeviceGetTotalEccErrors(handle: Any, kind: int, counter: int) -> int:
    _card(handle)
    return 0


def nvmlDeviceGetRemappedRows(handle: Any) -> Tuple[int, int, int, int]:
    _card(handle)
    return (0, 0, 0, 0)


def nvmlDeviceGetMigMode(handle: Any) -> List[int]:
    mig = int(_card(handle).mig)
    return [mig, mig]


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    _card(handle)
    return 4


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> _Instance:
    card = _card(handle)
    if not card.mig or index >= 2:
        raise _fail("NOT_FOUND")
    return _Instance(card, index)


def nvmlDeviceGetComputeRunningProcesses(handle: Any) -> List[_Struct]:
    card = _card(handle)
    if not card.memory:
        return []
    assert _world is not None
    held = [process for process in _world.processes if process.card == card.index]
    if card.mig:
        held = held[handle.number : handle.number + 1] if isinstance(handle, _Instance) else []
    elif _world._hold is not None and card.index < 8:
        pid = held[0].pid if held else RANK_PID + card.index
        held = [Process(pid, card.index, card.memory)]
    return [_Struct(pid=process.pid, usedGpuMemory=process.memory) for process in held]


nvmlDeviceGetComputeRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses


def nvmlDeviceGetGraphicsRunningProcesses(handle: Any) -> List[_Struct]:
    _card(handle)
    return []


def nvmlDeviceGetArchitecture(handle: Any) -> int:
    _card(handle)
    return NVML_DEVICE_ARCH_BLACKWELL


def nvmlDeviceGetCudaComputeCapability(handle: Any) -> Tuple[int, int]:
    _card(handle)
    return (12, 0)


def nvmlDeviceGetGspFirmwareVersion(handle: Any) -> str:
    _card(handle)
    return nvmlSystemGetDriverVersion()


def nvmlDeviceGetVbiosVersion(handle: Any) -> str:
    _card(handle)
    return "98.02.67.00.0A"


def nvmlDeviceGetNumaNodeId(handle: Any) -> int:
    return _card(handle).index % 8 // 4


def _not_supported(handle: Any, *arguments: Any) -> Any:
    _card(handle)
    raise _fail("NOT_SUPPORTED")


nvmlDeviceGetFanSpeed = _not_supported  # no fan of its own: the chassis cools it
nvmlDeviceGetNvLinkState = _not_supported
