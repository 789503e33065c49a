"""The scenarios of the demo host: names, what they show, and the NVML that plays them."""

from __future__ import annotations

from importlib import resources
from typing import Final, NamedTuple

from backends.errors import UsageError


class Scenario(NamedTuple):
    """One entry of the list that `gpuroom demo --help` prints."""

    name: str
    description: str


SCENARIOS: Final = (
    Scenario("healthy", "8 cards under a server's changing load"),
    Scenario("idle", "8 cards with nothing to do"),
    Scenario("capped", "somebody set a power limit of 450 W of 600 W"),
    Scenario("straggler", "GPU 5 is badly cooled, slows down, and the others wait for it"),
    Scenario("lost-gpu", "GPU 3 falls off the bus after 25 s and comes back after 70 s"),
    Scenario("hung-driver", "calls into the driver hang from 20 s to 50 s, again and again"),
    Scenario("mig", "GPUs 0 and 1 are cut into MIG instances: no utilisation, power is the truth"),
    Scenario("sixteen", "16 cards, two servers"),
    Scenario("reboot", "an idle host that somebody reboots 20 s after a change of its tuning"),
)

MODEL_FOLDER: Final = "/models/GLM-5-NVFP4"
REBOOTING: Final = "rebooting"
"""A file on a demo host's disk that says that the host boots again from it."""
DEFAULT: Final = SCENARIOS[0].name


def find(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        UsageError: There is none.
    """
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    raise UsageError(f"There is no scenario {name!r}", hint=f"Choose one of: {names}")


def nvml_source(name: str, seed: int = 1) -> str:
    """The text of a module that plays that scenario in pynvml's place, wherever it is run.

    Raises:
        UsageError: There is no such scenario.
    """
    scenario = find(name)
    source = resources.files("backends.sim").joinpath("nvml.py").read_text(encoding="utf-8")
    return f"{source}\n\nSCENARIO = {scenario.name!r}\nSEED = {seed:d}\n"
