"""One GPU as the notifications of its host leave it: values, reasons, times, shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from backends.model import GpuReadings, GpuState, GpuStatus, Lane
from backends.telemetry import wire
from backends.telemetry.cells import GPU_CELLS, Cell, Value
from backends.telemetry.rates import HELD_COUNTERS, EnergyMeter, HeldShares
from backends.text import clean

_UNREAD: Final = {
    Lane.ONCE: "not read on this host",
    Lane.FAST: "not sampled yet",
    Lane.SLOW: "not sampled yet",
    Lane.PCIE: "PCIe throughput is not being sampled",
}
_COUNTER_KEYS: Final = tuple(HELD_COUNTERS.values())
_NOT_READ_HERE: Final = "not read on this host"
_NO_REASON: Final = "the host gave no reason"


def absent_reasons(
    cells: Mapping[str, Cell],
    values: Mapping[str, Value],
    told: Mapping[str, str],
    refused: Mapping[str, str],
    sampled: set[Lane],
    offered: set[str],
) -> dict[str, str]:
    """Why each reading without a value has none.

    Args:
        cells: Every reading there is.
        values: What is known; None for a null.
        told: Reasons in the host's words.
        refused: Reasons of ours, for values that cannot be.
        sampled: Lanes that have come at least once.
        offered: Keys that the host sends at all.
    """
    absent = {}
    for key, cell in cells.items():
        if values.get(key) is not None:
            continue
        if key in refused:
            absent[key] = refused[key]
        elif key in told:
            absent[key] = told[key]
        elif cell.lane not in sampled:
            absent[key] = _UNREAD[cell.lane]
        else:
            absent[key] = _NO_REASON if key in offered else _NOT_READ_HERE
    return absent


class Gpu:
    """The newest state of one GPU; what `GpuStatus` is made from.

    Attributes:
        uuid: Its identity.
        index: NVML index, as last listed.
        is_listed: Whether the driver's newest list has it.
        mig_instances: As last told.
        values: The newest values by key.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.index = 0
        self.is_listed = False
        self.mig_instances: tuple[str, ...] = ()
        self.values: dict[str, Value] = {}
        self._name = ""
        self._bus_id = ""
        self._state = GpuState.OK
        self._detail = ""
        self._once_told: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._offered: set[str] = set()
        self._read_ns: dict[Lane, int] = {}
        self._held = HeldShares()
        self._energy = EnergyMeter()

    def answered(self, lane: Lane, t: int) -> bool:
        """Whether it took part in the sample of that lane and stamp."""
        return self._read_ns.get(lane) == t

    def number(self, key: str) -> float | int | None:
        """The newest value of a reading that is a number; None where it is absent."""
        value = self.values.get(key)
        return None if isinstance(value, str) else value

    def _counters(self) -> dict[str, int | None]:
        values = ((key, self.values.get(key)) for key in _COUNTER_KEYS)
        return {key: value if isinstance(value, int) else None for key, value in values}

    def listed(self, entry: wire.GpuEntry) -> int:
        """The driver lists it: take its place, name and what is read once.

        Returns:
            How many values could not be used.
        """
        self.index = entry.index
        self.is_listed = True
        mute = entry.uuid.startswith(wire.UNREADABLE)
        if not (mute and self._name):
            self._name = clean(entry.name, 96)
            self._bus_id = clean(entry.bus_id, 32)
        if not mute:
            self._state, self._detail = GpuState.OK, ""  # the agent says at once where it is not
        elif self._state is GpuState.OK:
            self.set_state(GpuState.LOST, "it can't say who it is")
        self._once_told = wire.reasons(entry.absent, GPU_CELLS) or self._once_told
        refused = 0
        for key, raw in entry.once.items():
            cell = GPU_CELLS.get(key)
            if cell is not None:
                refused += self._take(cell, raw)
        self._read_ns.setdefault(Lane.ONCE, 0)
        return refused

    def vanished(self) -> None:
        """The driver's newest list has it no more."""
        if self.is_listed:
            self.is_listed = False
            self.set_state(GpuState.LOST, "the driver no longer lists it")

    def set_state(self, state: GpuState, detail: str) -> None:
        """Take whether it answers. Of a lost one nothing is known any more but what it was."""
        self._state, self._detail = state, detail
        if state is not GpuState.OK:
            self.forget_rates()
        if state is GpuState.LOST:
            for lane in (Lane.FAST, Lane.SLOW, Lane.PCIE):
                self._forget(lane)

    def _forget(self, lane: Lane) -> None:
        self._read_ns.pop(lane, None)
        for key, cell in GPU_CELLS.items():
            if cell.lane is lane:
                self.values.pop(key, None)
                self._refused.pop(key, None)

    def forget_rates(self) -> None:
        """What counters showed so far says nothing about what comes."""
        self._held = HeldShares()
        self._energy = EnergyMeter()

    def explain(self, reasons: dict[str, str]) -> None:
        """Take the newest reasons for values that are absent."""
        self._told = reasons

    def take(
        self, lane: Lane, cells: Sequence[Cell | None], row: Sequence[object] | None, t: int
    ) -> int:
        """Take its row of a sample with stamp `t`; None where it did not answer.

        Returns:
            How many values could not be used.
        """
        host_s = t / 1e9  # rates are of the host's own time: no jitter of the way
        if row is None:
            if lane is Lane.FAST:
                self._held.add_bits(host_s, None)
            return 0
        refused = 0
        for cell, raw in zip(cells, row, strict=False):
            if cell is not None:
                refused += self._take(cell, raw)
        self._read_ns[lane] = t
        if lane is Lane.FAST:
            bits = self.values.get("event_reasons")
            self._held.add_bits(host_s, bits if isinstance(bits, int) else None)
        elif lane is Lane.SLOW:
            self._energy.add(host_s, self.number("energy_j"))
            self._held.add_counters(host_s, self._counters())
        return refused

    def _take(self, cell: Cell, raw: object) -> bool:
        value, refused = cell.take(raw)
        key = cell.key
        self.values[key] = value
        self._offered.add(key)
        if refused:
            self._refused[key] = refused
        elif self._refused:
            self._refused.pop(key, None)
        return bool(refused)

    def status(self, here_s: Callable[[int], float]) -> GpuStatus:
        """Everything that is known of it now; `here_s` maps the host's stamps to our time."""
        told = {**self._once_told, **self._told}
        if self._state is GpuState.LOST:
            lost = self._detail or "the GPU is lost"
            told |= {key: lost for key, cell in GPU_CELLS.items() if cell.lane is not Lane.ONCE}
        return GpuStatus(
            uuid=self.uuid,
            index=self.index,
            name=self._name,
            bus_id=self._bus_id,
            state=self._state,
            state_detail=self._detail,
            readings=GpuReadings(**self.values),  # type: ignore[arg-type]
            absent=absent_reasons(
                GPU_CELLS, self.values, told, self._refused, set(self._read_ns), self._offered
            ),
            read_s={lane: here_s(t) for lane, t in self._read_ns.items() if t},
            held_pct=self._held.pct(),
            energy_average_w=self._energy.average_w(),
            mig_instances=self.mig_instances,
        )
