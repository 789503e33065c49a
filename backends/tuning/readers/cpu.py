"""`lscpu`, `cpupower frequency-info`, `cpupower idle-info` and `numactl --hardware`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt

CPU: Final = "/sys/devices/system/cpu"
NODE: Final = "/sys/devices/system/node"
_LSCPU: Final = {
    "CPU(s)": "cpu/count",
    "On-line CPU(s) list": f"{CPU}/online",
    "Off-line CPU(s) list": f"{CPU}/offline",
    "Vendor ID": "cpu/vendor",
    "Model name": "cpu/model_name",
    "CPU family": "cpu/family",
    "Thread(s) per core": "cpu/threads_per_core",
    "Socket(s)": "cpu/sockets",
    "Hypervisor vendor": "cpu/hypervisor",
    # The same in /proc/cpuinfo's words.
    "vendor_id": "cpu/vendor",
    "model name": "cpu/model_name",
    "cpu family": "cpu/family",
}
_MARKS: Final = frozenset({"NUMA node(s)", "CPU implementer"})
_HZ: Final = {"GHz": 1_000_000, "MHz": 1_000, "kHz": 1}


_LOCAL: Final = {
    # German, French, Spanish: where a shell's language was not English.
    "Architektur": "Architecture",
    "Arquitectura": "Architecture",
    "Liste der Online-CPU(s)": "On-line CPU(s) list",
    "Liste der Offline-CPU(s)": "Off-line CPU(s) list",
    "Anbieterkennung": "Vendor ID",
    "Modellname": "Model name",
    "Prozessorfamilie": "CPU family",
    "Thread(s) pro Kern": "Thread(s) per core",
    "Sockel": "Socket(s)",
    "NUMA-Knoten": "NUMA node(s)",
    "Hypervisor-Anbieter": "Hypervisor vendor",
    "Processeur(s)": "CPU(s)",
    "Liste de processeur(s) en ligne": "On-line CPU(s) list",
    "Liste de processeur(s) hors ligne": "Off-line CPU(s) list",
    "Identifiant constructeur": "Vendor ID",
    "Nom de modèle": "Model name",
    "Famille de processeur": "CPU family",
    "Thread(s) par cœur": "Thread(s) per core",
    "Nœud(s) NUMA": "NUMA node(s)",
    "Constructeur d'hyperviseur": "Hypervisor vendor",
    "Lista de la(s) CPU(s) en línea": "On-line CPU(s) list",
    "ID de fabricante": "Vendor ID",
    "Nombre del modelo": "Model name",
    "Familia de CPU": "CPU family",
    "Hilo(s) de procesamiento por núcleo": "Thread(s) per core",
    "«Socket(s)»": "Socket(s)",
    "Modo(s) NUMA": "NUMA node(s)",
}
_NODE_CPUS: Final = re.compile(
    r"(?:NUMA node|NUMA-Knoten|Nœud NUMA |CPU\(s\) del nodo NUMA )(\d{1,4})"
    r"(?:,? (?:CPU\(s\)|de processeur\(s\)))?"
)
_VULNERABILITY: Final = re.compile(
    r"(?:Vulnerability|Schwachstelle|Vulnérabilité|Vulnerabilidad) (.+)"
)


def read_lscpu(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `lscpu`'s two columns, flat or in sections, and of `/proc/cpuinfo`."""
    rows = [(line, *_row(line.text)) for line in excerpt.lines]
    if not any(value and (name in _MARKS or _LSCPU.get(name)) for _, name, value in rows):
        return
    section = ""
    for line, name, value in rows:
        if match := _NODE_CPUS.fullmatch(name):
            # Without a CPU it is memory alone, a GPU's or a card's.
            yield excerpt.fact(f"{NODE}/node{match[1]}/cpulist", value, line)
        elif not value:
            section = name or section
        elif name == "Architecture":
            yield excerpt.fact("cpu/architecture", value, line)
        elif name == "CPU implementer":
            yield excerpt.fact("cpu/architecture", "aarch64", line)
        elif key := _LSCPU.get(name):
            yield excerpt.fact(
                key,
                int(value)
                if value.isdecimal() and len(value) < 9 and not key.startswith("/")
                else value,
                line,
            )
            if name == "Hypervisor vendor":
                yield excerpt.fact("virt/kind", value.lower().split()[0], line)
        elif (match := _VULNERABILITY.fullmatch(name)) or (
            section == "Vulnerabilities"
            and re.match(r"Vulnerable|Mitigation|Not affected|Unknown", value)
        ):
            key = (match[1] if match else name).lower().replace(" ", "_")
            yield excerpt.fact(f"{CPU}/vulnerabilities/{key}", value, line)
        elif name == "Frequency boost" and value in ("enabled", "disabled"):
            yield excerpt.fact(f"{CPU}/cpufreq/boost", int(value == "enabled"), line)
        elif name == "NUMA node(s)" and value.isdecimal() and 0 < int(value[:6]) < 4096:
            count = int(value[:6])
            yield excerpt.fact(f"{NODE}/online", f"0-{count - 1}" if count > 1 else "0", line)


def _row(text: str) -> tuple[str, str]:
    """Name, in English, and value of a row; both empty where it is none."""
    name, colon, value = text.strip().partition(":")
    name = name.strip().replace("\u2019", "'")
    return (_LOCAL.get(name, name), value.strip()) if colon else ("", "")


_CPUPOWER_LOCAL: Final = (
    # German and French, as far as cpupower itself is translated.
    (re.compile(r"(?:analysiere CPU|analyse du CPU) (\d{1,5}) ?:"), r"analyzing CPU \1:"),
    (re.compile(r"(?:Treiber|pilote) ?: (?!yes|no)"), "driver: "),
    (
        re.compile(r"kein oder nicht bestimmbarer cpufreq-Treiber|pas de pilotes cpufreq reconnu"),
        "no or unknown cpufreq driver is active",
    ),
    (
        re.compile(r"(?:Hardwarebedingte Grenzen der Taktfrequenz|limitation matérielle) ?: "),
        "hardware limits: ",
    ),
    (
        re.compile(r".*(?:soll innerhalb|doit être comprise entre) (\S+ \S+) (?:und|et) "),
        r"should be within \1 and ",
    ),
    (
        re.compile(r'(?:.*Der Regler|Le régulateur) ("\w+") (?:kann|est)'),
        r"The governor \1 may decide",
    ),
)


def _in_english(text: str) -> str:
    """A row of cpupower in the words it has without translation."""
    for pattern, words in _CPUPOWER_LOCAL:
        if pattern.match(text):
            return pattern.sub(words, text, count=1)
    return text


def read_cpupower(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `cpupower frequency-info` (also `-e` of several CPUs) and `idle-info`."""
    cpu = "0"
    state, count = -1, 0
    listing = False
    idle = False
    for line in excerpt.lines:
        text = _in_english(line.text.strip())
        base = f"{CPU}/cpu{cpu}/cpufreq"
        if match := re.match(r"analyzing CPU (\d{1,5}):", text):
            cpu, state = match[1], -1
        elif match := re.match(r"driver: (\S+)$", text):
            yield excerpt.fact(f"{base}/scaling_driver", match[1], line)
        elif "no or unknown cpufreq driver is active" in text:
            yield excerpt.fact(f"{base}/scaling_driver", None, line, "ENOENT")
            yield excerpt.fact(base, None, line, "ENOENT")
        elif match := re.match(r"hardware limits: ([\d.]+) ([GMk]Hz) - ([\d.]+) ([GMk]Hz)", text):
            yield excerpt.fact(f"{base}/cpuinfo_max_freq", _khz(match[3], match[4]), line)
        elif match := re.search(
            r"should be within ([\d.]+) ([GMk]Hz) and ([\d.]+) ([GMk]Hz)", text
        ):
            yield excerpt.fact(f"{base}/scaling_max_freq", _khz(match[3], match[4]), line)
        elif match := re.match(r'The governor "(\w+)" may decide', text):
            yield excerpt.fact(f"{base}/scaling_governor", match[1], line)
        elif match := re.match(r"energy performance preference: (\w+)", text):
            yield excerpt.fact(f"{base}/energy_performance_preference", match[1], line)
        elif match := re.match(r"Supported: (yes|no)$", text):
            yield excerpt.fact("cpu/boost_supported", match[1], line)
        elif match := re.match(r"Active: (yes|no)$", text):
            yield excerpt.fact(f"{CPU}/cpufreq/boost", 1 if match[1] == "yes" else 0, line)
        elif match := re.match(r"CPUidle driver: (\S+)", text):
            idle = True
            yield excerpt.fact(f"{CPU}/cpuidle/current_driver", match[1], line)
        elif match := re.match(r"Number of idle states: (\d{1,3})", text):
            idle, state, count = True, -1, int(match[1])
        elif idle and (match := re.match(r"([A-Z][\w-]{1,16})\s*(\(DISABLED\))?\s*:$", text)):
            state += 1
            where = f"{CPU}/cpu{cpu}/cpuidle/state{state}"
            yield excerpt.fact(f"{where}/name", match[1], line)
            yield excerpt.fact(f"{where}/disable", 1 if match[2] else 0, line)
        elif idle and state >= 0 and (match := re.match(r"Latency: (\d{1,9})$", text)):
            where = f"{CPU}/cpu{cpu}/cpuidle/state{state}"
            yield excerpt.fact(f"{where}/latency", int(match[1]), line)
        elif match := re.match(rf"(?:\S*[$#>] ls )?{CPU}/cpu(\d+)/acpi_cppc/?:?$", text):
            listing = True
            cpu = match[1]
            yield excerpt.fact(f"{CPU}/cpu{cpu}/acpi_cppc", None, line, "not listed")
        elif listing and "highest_perf" in text:
            yield excerpt.fact(f"{CPU}/cpu{cpu}/acpi_cppc", text, line)
            listing = False
        elif match := re.search(rf"cannot access '?({CPU}/\S+?)'?: No such file", text):
            yield excerpt.fact(match[1], None, line, "ENOENT")
            if match[1].endswith("/cpufreq"):
                yield excerpt.fact(f"{match[1]}/scaling_driver", None, line, "ENOENT")

    for number in range(state + 1, count):
        # The list was cut before it.
        yield excerpt.fact(
            f"{CPU}/cpu{cpu}/cpuidle/state{number}/name", None, excerpt.lines[-1], "not printed"
        )


_GOVERNORS: Final = re.compile(
    r"\bcat /sys/devices/system/cpu/cpu(?:\*|\[0-9\]\*)/cpufreq/scaling_governor"
    r"(?: *\| *(?:sort|uniq)(?: -[cu])?){0,2}$"
)
_GOVERNOR: Final = re.compile(
    r"(?:(?P<count>\d{1,5})\s+)?"
    r"(?P<name>performance|powersave|schedutil|ondemand|conservative|userspace)"
)


def read_governors(excerpt: Excerpt) -> Iterator[Fact]:
    """`cat .../cpu*/cpufreq/scaling_governor`, also counted by `sort | uniq -c`."""
    cpu: int | None = None
    for line in excerpt.lines:
        text = line.text.strip()
        if _GOVERNORS.search(text):
            cpu = 0
        elif cpu is not None and (match := _GOVERNOR.fullmatch(text)):
            for number in range(cpu, min(cpu + int(match["count"] or 1), 8192)):
                key = f"{CPU}/cpu{number}/cpufreq/scaling_governor"
                yield excerpt.fact(key, match["name"], line)
                cpu = number + 1
        elif text:
            cpu = None


def read_monitor(excerpt: Excerpt) -> Iterator[Fact]:
    """`cpupower monitor`: the share of time in each idle state, the mean of the CPUs listed."""
    names: list[str] = []
    sums: dict[str, float] = {}
    rows = 0
    first = None
    for line in excerpt.lines:
        if "||" not in line.text and "|" not in line.text:
            continue
        cells = [cell.strip() for cell in line.text.replace("||", "|").split("|")]
        if "CPU" in cells and any(re.fullmatch(r"POLL|C\d\w*", cell) for cell in cells):
            names, rows, sums, first = cells, 0, {}, line
        elif names and len(cells) == len(names) and cells[names.index("CPU")].isdecimal():
            rows += 1
            for name, cell in zip(names, cells, strict=True):
                share = re.fullmatch(r"\d{1,3}\.\d{1,3}", cell)
                if share and re.fullmatch(r"C[1-9]\w*", name):
                    sums[name] = sums.get(name, 0.0) + float(cell)
    for name, total in sums.items():
        yield excerpt.fact(f"cpupower/idle_pct/{name}", round(total / rows, 1), first)


def _khz(number: str, unit: str) -> int:
    try:
        return int(float(number) * _HZ.get(unit, 1))
    except (ValueError, OverflowError):
        return 0


def read_numactl(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `numactl --hardware`, as the files of sysfs that it prints."""
    sizes: dict[str, int] = {}
    distances = False
    node, cpus = "", ""
    for line in excerpt.lines:
        text = line.text.strip()
        if node and cpus and re.fullmatch(r"[\d ]+", text):
            # The list of CPUs went on in a new line.
            cpus = f"{cpus} {text}"
            yield excerpt.fact(f"{NODE}/node{node}/cpulist", ",".join(cpus.split()), line)
            continue
        node = ""
        if match := re.match(r"available: (\d{1,4}) nodes? \(([\d,-]+)\)", text):
            yield excerpt.fact(f"{NODE}/online", match[2], line)
        elif match := re.match(r"node (\d{1,4}) cpus:\s*([\d ]*)$", text):
            node, cpus = match[1], match[2]
            yield excerpt.fact(f"{NODE}/node{node}/cpulist", ",".join(cpus.split()), line)
        elif match := re.match(r"node (\d{1,4}) size: (\d{1,12}) MB", text):
            sizes[match[1]] = int(match[2])
        elif match := re.match(r"node (\d{1,4}) free: (\d{1,12}) MB", text):
            total = sizes.get(match[1])
            if total is not None:
                told = (
                    f"Node {match[1]} MemTotal: {total * 1024} kB\n"
                    f"Node {match[1]} MemFree: {int(match[2]) * 1024} kB"
                )
                yield excerpt.fact(f"{NODE}/node{match[1]}/meminfo", told, line)
        elif text.startswith("node distances:"):
            distances = True
        elif distances and (match := re.match(r"(\d{1,4}):\s+([\d ]+)$", text)):
            yield excerpt.fact(f"{NODE}/node{match[1]}/distance", " ".join(match[2].split()), line)
