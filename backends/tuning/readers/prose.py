"""Plain sentences of a report that establish a fact: how many GPUs, what state the IOMMU is in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, kind_of

_GPUS: Final = re.compile(
    r"\b(?P<count>\d{1,2})\s?x\s+(?:NVIDIA )?"
    r"(?P<name>(?:GeForce )?(?:RTX|GTX|Tesla|Quadro|[ABHLV]\d{2,3})"
    r"[\w -]{0,40}?)(?=[,.;(\n]|$| with| on )"
)
_P2P_BY_KERNEL: Final = re.compile(
    r"kernel (?P<kernel>\d+\.\d+[\w.-]*)\s*[:,]?\s.*?topo -p2p (?P<what>[rwnap])\s*(?:->|:|=)\s*"
    r"(?P<status>OK|CNS|GNS|TNS|NS|DR)\b"
)
_FLAG: Final = re.compile(r"\b(ReqRedir|CmpltRedir|EgressCtrl|SrcValid|UpstreamFwd)([+-])")


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts that stand in words."""
    kind = kind_of(excerpt.heading)
    if kind:
        yield excerpt.fact("virt/kind", kind, excerpt.lines[0])
    for line in excerpt.lines:
        text = line.text
        if match := _GPUS.search(text):
            count = int(match["count"])
            if 1 <= count <= 64:
                yield excerpt.fact("host/gpu_count", count, line)
                yield excerpt.fact("host/gpu_name", match["name"].strip(), line)
        if match := re.match(
            r"\s*(?:CPU|Processor)s?:\s*(.{0,80}?(?:AMD|Intel|EPYC|Xeon)[\w. -]*)", text
        ):
            yield excerpt.fact("cpu/model_name", match[1].strip(), line)
        if match := _P2P_BY_KERNEL.search(text):
            key = f"p2p_by_kernel/{match['kernel']}/{match['what']}"
            yield excerpt.fact(key, match["status"], line)
        if re.search(
            r"IOMMU\b.{0,40}\b(?:translat(?:ed|ing|ion)|DMA-FQ)", text, re.IGNORECASE
        ) and not (re.search(r"default domain type|not translat|disabled", text, re.IGNORECASE)):
            yield excerpt.fact("iommu/default_domain", "Translated", line)
        elif re.search(
            r"IOMMU\b.{0,40}\b(?:passthrough|pass-through|identity)\b", text, re.IGNORECASE
        ):
            yield excerpt.fact("iommu/default_domain", "Passthrough", line)
        flags = _FLAG.findall(text)
        if flags and "ACSCtl" in text and not re.match(r"\s*ACSCtl:", text):
            told = " ".join(name + sign for name, sign in flags)
            yield excerpt.fact("pci/root-ports/acs_control", told, line)
            yield excerpt.fact("pci/root-ports/port_type", "root port", line)
        if re.search(r"\bnova_core\b", text) and re.search(r"bind|bound|grab|driver in use", text):
            yield excerpt.fact("gpu_binding/nova_core", "bound to a GPU", line)
        if re.search(r"Persistence(?:-M| Mode)?\b.{0,30}\b(?:Off|Disabled)\b", text) and not (
            "|" in text or " : " in text
        ):
            yield excerpt.fact("gpu/unnamed/persistence", "Off", line)
