"""What a host without python3 says and answers in the agent's place, however it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from backends.errors import AgentError
from backends.model import Lane
from backends.text import clean

METHODS: Final = ("ping", "refresh", "set_interval")
LEAST_INTERVAL_S: Final = 0.25
MOST_INTERVAL_S: Final = 60.0


def hello(
    hostname: str, boot_id: str, interval_s: float, columns: Mapping[Lane, Sequence[str]]
) -> dict[str, object]:
    """The agent's `hello`; `columns` are the readings of a GPU by lane, of the host there are none.

    Host name and boot id are as the host printed them.
    """
    lanes = (Lane.FAST, Lane.SLOW, Lane.PCIE)
    return {
        "python": "",
        "pid": 0,
        "user": "",
        "hostname": clean(hostname.strip(), 253),
        "boot_id": clean(boot_id.strip(), 64),
        "has_psutil": False,
        "nvml_version": None,
        "methods": list(METHODS),
        "columns": {lane.value: {"g": columns.get(lane, []), "h": []} for lane in lanes},
        "interval_s": interval_s,
    }


def interval_of(params: Mapping[str, object] | None) -> float:
    """Seconds that a `set_interval` asks for, within what can be had.

    Raises:
        AgentError: It names none.
    """
    seconds = (params or {}).get("seconds")
    if not isinstance(seconds, int | float):
        raise AgentError("set_interval needs `seconds`")
    return min(MOST_INTERVAL_S, max(LEAST_INTERVAL_S, float(seconds)))


def refusal(method: str) -> AgentError:
    """Why anything else can't be had."""
    return AgentError(
        f"{method} can't be done on this host", hint="it needs python3 (3.8 or newer) there"
    )
