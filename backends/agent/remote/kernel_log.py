"""Events in the kernel log that matter to a GPU host: Xid, SXid, AER, out of memory, NVRM.

Read from /dev/kmsg, which wakes us; else by `klogctl`, which containers without /dev/kmsg still
have; else from the file that the log daemon writes. No program is started for it.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from .outbox import Outbox

MAX_TEXT = 500
MAX_OLD = 30
MAX_NEW = 10
"""Events of one kind in one message: of the past, and of the time since the last message."""
BATCH_S = 1.0
POLL_S = 5.0
FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")

PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
XID = re.compile(r"NVRM: Xid \(" + PCI + r"\)?[^:]*: (\d+)")
SXID = re.compile(r"SXid \(" + PCI + r"\): (\d+)")
NVRM = re.compile(
    r"NVRM:.*(?:fallen off the bus|RmInitAdapter failed|rm_init_adapter failed|API mismatch"
    r"|GPU.*is lost|BAR\d? is \d+M|can't find an IRQ|probe.*failed|Failed to (?:enable|init))"
)
AER = re.compile(r"AER: (?!enabled)|PCIe Bus Error|pcieport.*DPC: (?!enabled|error containment)")
OOM = re.compile(r"Out of memory: Kill|[Mm]emory cgroup out of memory|oom-kill:|invoked oom-killer")
BUS_ID = re.compile(PCI)


def classify(line: str) -> Optional[Dict[str, Any]]:
    """An event (`kind`, `text`, `bus_id`, `xid`) if the line matters, else None."""
    bus_id: Optional[str] = None
    number: Optional[int] = None
    match = XID.search(line)
    if match:
        kind, bus_id, number = "xid", match.group(1), int(match.group(2))
    else:
        match = SXID.search(line)
        if match:
            kind, bus_id, number = "sxid", match.group(1), int(match.group(2))
        elif OOM.search(line):
            kind = "oom"
        elif AER.search(line):
            kind = "aer"
        elif NVRM.search(line):
            kind = "nvrm"
        else:
            return None
    if bus_id is None and kind != "oom":
        # A port reports for the device that it names last; 00:00.0 is no device's name.
        found = [name for name in BUS_ID.findall(line) if not name.endswith(":00:00.0")]
        bus_id = found[-1] if found else None
    text = line.strip()[:MAX_TEXT]
    return {"kind": kind, "text": text, "bus_id": normal_bus_id(bus_id), "xid": number}


def normal_bus_id(bus_id: Optional[str]) -> Optional[str]:
    """Bus ids as the kernel writes them: four digits of domain, a function, lower case."""
    if bus_id is None:
        return None
    bus_id = bus_id.lower()
    domain, _, rest = bus_id.partition(":")
    if "." not in rest:
        rest += ".0"
    return "%s:%s" % (domain[-4:] if domain.startswith("0000") else domain, rest)


class KernelLog:
    """Follows the kernel log on a thread of its own."""

    def __init__(
        self, outbox: Outbox, note: Callable[[str], None], path: Optional[str] = None
    ) -> None:
        self._outbox = outbox
        self._note = note
        self._path = path
        self._boot = time.time() - _since_boot_s()
        self._pending: Dict[str, Deque[Dict[str, Any]]] = {}
        self._dropped: Dict[str, int] = {}
        self._most = MAX_OLD

    def start(self) -> None:
        """Begin; past events of this boot come first, `MAX_OLD` of a kind."""
        threading.Thread(target=self._run, name="kernel-log", daemon=True).start()

    def _run(self) -> None:
        reasons = []
        ways = (self._follow_kmsg, self._follow_klogctl, self._follow_file)
        for follow in ways[2:] if self._path else ways:
            try:
                follow()
                return
            except Exception as error:
                reasons.append(str(error))
        self._note(
            "the kernel log can't be read here (%s): Xid, AER and out-of-memory events stay unseen"
            % "; ".join(dict.fromkeys(reasons))
        )

    def _take(self, at: float, line: str) -> None:
        event = classify(line)
        if event is not None:
            event["at"] = round(at, 3)
            kind = event["kind"]
            events = self._pending.setdefault(kind, deque())
            events.append(event)
            if len(events) > self._most:
                events.popleft()
                self._dropped[kind] = self._dropped.get(kind, 0) + 1

    def _flush(self) -> None:
        """Say what came; a storm of one kind neither hides another nor fills the wire."""
        batch: List[Dict[str, Any]] = []
        for kind, events in self._pending.items():
            left_out = self._dropped.get(kind, 0)
            if left_out:
                text = "%d earlier %s lines were left out" % (left_out, kind)
                batch.append(dict(events[0], text=text, xid=None, bus_id=None))
            batch.extend(events)
        self._pending.clear()
        self._dropped.clear()
        self._most = MAX_NEW
        if batch:
            batch.sort(key=lambda event: float(event["at"]))
            self._outbox.notify("kernel", {"events": batch})

    def _follow_kmsg(self) -> None:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        while True:
            try:
                record = os.read(fd, 16384)
            except BlockingIOError:
                self._flush()
                select.select([fd], [], [])
                time.sleep(BATCH_S)  # a burst is one message, and a storm costs two a second
                continue
            except BrokenPipeError:
                continue  # records were overwritten before we came to them
            at, line = parse_kmsg(record)
            if line is not None:
                self._take(self._boot + at, line)

    def _follow_klogctl(self) -> None:
        klogctl = ctypes.CDLL(None, use_errno=True).klogctl
        size = klogctl(10, None, 0)
        if size <= 0:
            raise OSError("klogctl: " + os.strerror(ctypes.get_errno()))
        buffer = ctypes.create_string_buffer(size)
        last: Tuple[float, str] = (-1.0, "")
        while True:
            length = klogctl(3, buffer, size)
            if length < 0:
                raise OSError("klogctl: " + os.strerror(ctypes.get_errno()))
            entries = parse_syslog(buffer.raw[:length].decode("utf-8", "replace"))
            fresh = len(entries)
            while fresh and entries[fresh - 1] != last and entries[fresh - 1][0] >= last[0]:
                fresh -= 1
            for at, line in entries[fresh:]:
                self._take(self._boot + at, line)
            if entries:
                last = entries[-1]
            self._flush()
            time.sleep(POLL_S)

    def _follow_file(self) -> None:
        files = (self._path,) if self._path else FILES
        path = next((path for path in files if os.access(path, os.R_OK)), None)
        if path is None:
            raise OSError("no readable kernel log file")
        file = open(path, "rb")
        file.seek(max(0, os.fstat(file.fileno()).st_size - 262144))
        first, rest = True, b""
        while True:
            data = file.read(262144)
            if not data:
                self._flush()
                first = False
                time.sleep(POLL_S)
                if _replaced(file, path):
                    file.close()
                    file, rest = open(path, "rb"), b""
                continue
            lines = (rest + data).split(b"\n")
            rest = lines.pop()[-65536:]
            for raw in lines:
                line = raw.decode("utf-8", "replace")
                # Only the lines since we came have a time that is known for sure.
                if " kernel: " in line and not first:
                    self._take(time.time(), line.partition(" kernel: ")[2])


def parse_kmsg(record: bytes) -> Tuple[float, Optional[str]]:
    """(seconds since boot, line) of one /dev/kmsg record; the line is None where it isn't one."""
    head, separator, body = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not separator or len(fields) < 3 or not fields[2].isdigit():
        return 0.0, None
    return int(fields[2]) / 1e6, body.split("\n", 1)[0]


def parse_syslog(text: str) -> List[Tuple[float, str]]:
    """(seconds since boot, line) of each line `<6>[   12.345678] text`."""
    entries = []
    for line in text.split("\n"):
        match = re.match(r"(?:<\d+>)?\[\s*(\d+\.\d+)\](?:\[[^\]]*\])? ?(.*)", line)
        if match:
            entries.append((float(match.group(1)), match.group(2)))
    return entries


def _replaced(file: Any, path: str) -> bool:
    try:
        there, ours = os.stat(path), os.fstat(file.fileno())
    except OSError:
        return False
    return there.st_ino != ours.st_ino or there.st_size < file.tell()


def _since_boot_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
