"""Printed output into facts: each reader knows one tool by what its output looks like.

A file may hold several tools' output with prose around it, and may speak of a host and of its
guest under headings such as `# host` and `# container`. Every reader looks at all of it and takes
the lines it knows; none of them guesses from a file's name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from backends.tuning.facts import Fact, FactsDocument, Vantage
from backends.tuning.readers import (
    containers,
    cpu,
    cuda_samples,
    kernel_log,
    linux,
    logs,
    lspci,
    nccl_tests,
    nvbandwidth,
    nvidia_monitor,
    nvidia_q,
    nvidia_table,
    prose,
    proxmox,
    services,
    topo,
)
from backends.tuning.readers.excerpt import Excerpt, split

Reader: TypeAlias = Callable[[Excerpt], Iterator[Fact]]

READERS: Final[tuple[Reader, ...]] = (
    prose.read,
    linux.read_dump,
    linux.read_sysctl,
    linux.read_proc_devices,
    linux.read_nodes,
    linux.read_limits,
    linux.read_opens,
    linux.read_cmdline,
    linux.read_identity,
    linux.read_units,
    kernel_log.read,
    cpu.read_lscpu,
    cpu.read_cpupower,
    cpu.read_governors,
    cpu.read_monitor,
    cpu.read_numactl,
    lspci.read,
    nvidia_q.read_text,
    nvidia_q.read_xml,
    nvidia_table.read_table,
    nvidia_table.read_csv,
    nvidia_monitor.read,
    topo.read,
    proxmox.read_config,
    proxmox.read_device_list,
    containers.read_info,
    containers.read_daemon,
    services.read_failed_units,
    services.read_tuned,
    services.read_clock,
    services.read_meminfo,
    services.read_ibstat,
    services.read_information,
    services.read_memory_modules,
    services.read_gpu_list,
    logs.read_nccl,
    logs.read_histogram,
    logs.read_fabric_manager,
    logs.read_cuda,
    cuda_samples.read,
    nccl_tests.read,
    nvbandwidth.read,
)
"""Every reader; of two that give the same fact the later one is believed."""


def read_texts(texts: Iterable[tuple[str, str]]) -> FactsDocument:
    """Facts of pasted files of one host.

    Args:
        texts: Name and content of each file.
    """
    facts: dict[tuple[Vantage, str], Fact] = {}
    for name, text in texts:
        for excerpt in split(name, text):
            for fact in read_excerpt(excerpt):
                place = (fact.vantage, fact.key)
                known = facts.get(place)
                if known is not None and fact.key == "log/kernel":
                    fact = _joined(known, fact)
                if known is None or fact.value is not None or known.value is None:
                    facts[place] = fact
    return FactsDocument(facts=list(facts.values()))


def read_excerpt(excerpt: Excerpt, readers: Sequence[Reader] = READERS) -> Iterator[Fact]:
    """Facts of one excerpt, from every reader that finds something in it."""
    for reader in readers:
        yield from reader(excerpt)


def _joined(first: Fact, second: Fact) -> Fact:
    lines = [*_lines(first), *_lines(second)]
    return Fact(
        first.key,
        lines[: kernel_log.MAX_KEPT],
        first.source,
        vantage=first.vantage,
        seen=first.seen,
    )


def _lines(fact: Fact) -> list[str]:
    return fact.value if isinstance(fact.value, list) else []
