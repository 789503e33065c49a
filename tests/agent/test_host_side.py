"""What the agent makes of /proc, of command lines and of the kernel log: tables and recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.agent.remote import host, kernel_log, model_names, processes
from backends.agent.remote.kernel_log import KernelLog, classify, parse_kmsg, parse_syslog
from backends.agent.remote.outbox import Outbox
from backends.agent.remote.rpc import Dispatcher
from backends.agent.wire import MAX_LINE

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("python3 -m sglang.launch_server --model-path zai-org/GLM-5 --tp 8", "zai-org/GLM-5"),
        ("python -m sglang.launch_server --model /data/models/glm-5-nvfp4/ --tp 8", "glm-5-nvfp4"),
        ("/opt/venv/bin/python3.12 -X dev -m vllm.entrypoints.openai.api_server "
         "--model meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("/usr/bin/python3 /usr/local/bin/vllm serve Qwen/Qwen3-32B --port 8000", "Qwen/Qwen3-32B"),
        ("vllm serve /models/Qwen3 --served-model-name=qwen", "qwen"),
        ("/opt/llama.cpp/llama-server -m /models/gpt-oss-20b-Q4_K_M.gguf -ngl 99",
         "gpt-oss-20b-Q4_K_M.gguf"),
        ("llama-server -hf ggml-org/gemma-3-4b-it-GGUF", "ggml-org/gemma-3-4b-it-GGUF"),
        ("llama-server -m model.gguf --alias gemma", "gemma"),
        ("trtllm-serve TinyLlama/TinyLlama-1.1B --host 0.0.0.0", "TinyLlama/TinyLlama-1.1B"),
        ("python3 /usr/local/bin/trtllm-serve serve nvidia/DeepSeek-R1-FP4 --tp_size 8",
         "nvidia/DeepSeek-R1-FP4"),
        ("text-generation-launcher --model-id bigscience/bloom-560m", "bigscience/bloom-560m"),
        ("/usr/bin/ollama runner --model /root/.ollama/models/blobs/sha256-6a0746a1ec1aef3e7ec53 "
         "--port 1", "blob 6a0746a1"),
        ("python3 -u run_clm.py --model_name_or_path gpt2", "gpt2"),
        ("python3 -m vllm.entrypoints.openai.api_server --model "
         "/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0123abc", "Qwen/Qwen3-8B"),
        ("lmdeploy serve api_server internlm/internlm3-8b", "internlm/internlm3-8b"),
        ("tritonserver --model-repository=/models/ensemble", "ensemble"),
        ("python3 -m http.server", None),
        ("python3 train.py -m fast", None),
        ("python3 -c import_torch --model x", None),
        ("sglang::scheduler_TP0", None),
        ("vllm serve --port 80", None),
        ("/usr/lib/xorg/Xorg :0", None),
        ("python3", None),
        ("", None),
    ],
)  # fmt: skip
def test_model_of_a_command_line(command: str, model: str | None) -> None:
    assert model_names.model_name(command.split()) == model


@given(st.lists(st.text(max_size=20), max_size=8))
def test_no_command_line_breaks_it(argv: list[str]) -> None:
    name = model_names.model_name(argv)
    assert name is None or len(name) <= model_names.MAX_CHARS


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{HEX}.scope", "docker 0123456789ab"),
        (f"12:devices:/docker/{HEX}\n0::/docker/{HEX}", "docker 0123456789ab"),
        (f"0::/machine.slice/libpod-{HEX}.scope/container", "podman 0123456789ab"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope",
         "podman 0123456789ab"),
        ("0::/lxc/101/ns/system.slice/vllm.service", "lxc 101"),
        ("0::/lxc.payload.gpubox/init.scope", "lxc gpubox"),
        ("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
         "8f7f1b1a_7f0b_4b6e_9c6a_0a1b2c3d4e5f.slice/cri-containerd-" + HEX + ".scope",
         "k8s 0123456789ab"),
        ("11:cpu:/kubepods/besteffort/pod8f7f1b1a-7f0b-4b6e-9c6a-0a1b2c3d4e5f/" + HEX,
         "k8s 0123456789ab"),
        ("0::/system.slice/sglang.service", "systemd sglang"),
        ("0::/system.slice/system-vllm.slice/vllm@big.service", "systemd vllm@big"),
        ("0::/user.slice/user-0.slice/session-3.scope", None),
        ("0::/system.slice/ssh.service", None),
        ("0::/", None),
        ("", None),
    ],
)  # fmt: skip
def test_container_of_a_cgroup(cgroup: str, container: str | None) -> None:
    assert processes.container_of(cgroup) == container


def test_a_name_with_parentheses_and_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (folder / "stat").write_text(f"77 (a) b (c) S {fields}\n")
    stat = processes.read_stat(str(tmp_path), 77)
    assert stat == (22, 14 + 15, "a) b (c")


def test_a_worker_has_the_model_of_its_parent() -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE);"
        "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, "--model-path", "org/from-parent"], stdout=subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        table = processes.ProcessTable()
        # `-c` hides options of the parent on purpose: code may take anything.
        found = table.update(["GPU-1"], {"GPU-1": [(pid, "compute", 1)]})
        assert found is not None
        assert found[0]["model"] is None
        assert processes.parent_of("/proc", pid) == parent.pid
        os.kill(pid, 9)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()


def fake_proc(root: Path, pid: int, parent: int, argv: list[str]) -> None:
    folder = root / str(pid)
    folder.mkdir()
    rest = ["S", str(parent), *["0"] * 17, "4242", *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (python3) {' '.join(rest)}\n")
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")
    (folder / "cgroup").write_text("0::/system.slice/sglang.service\n")


def test_workers_and_news(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    fake_proc(tmp_path, 10, 1, ["python3", "-m", "sglang.launch_server", "--model", "org/m"])
    fake_proc(tmp_path, 11, 10, ["sglang::scheduler_TP0"])
    table = processes.ProcessTable(str(tmp_path))
    uuids = ["GPU-a", "GPU-b"]
    first = table.update(uuids, {"GPU-a": [(11, "compute", 2**30)], "GPU-b": []})
    assert first is not None
    (entry,) = first
    assert (entry["model"], entry["container"]) == ("org/m", "systemd sglang")
    assert entry["started"] == 1700000000 + 4242 / os.sysconf("SC_CLK_TCK")
    same = {"GPU-a": [(11, "compute", 2**30 + 4096)], "GPU-b": []}
    assert table.update(uuids, same) is None
    # A GPU that does not answer keeps its list; more memory is news.
    assert table.update(uuids, {"GPU-b": []}) is None
    more = table.update(uuids, {"GPU-a": [(11, "compute", 2**31)]})
    assert more is not None
    assert more[0]["memory_bytes"] == {"GPU-a": 2**31}
    # Another process under the same pid is another process.
    (tmp_path / "11" / "stat").write_text(
        (tmp_path / "11" / "stat").read_text().replace("4242", "9999")
    )
    again = table.update(uuids, {})
    assert again is not None
    assert again[0]["start_ticks"] == 9999


def test_psutil_and_proc_tell_the_same() -> None:
    by_psutil, by_proc = host.PsutilSource(psutil), host.ProcSource()
    for _ in range(5):
        a, b = by_psutil.memory(), by_proc.memory()
        if abs(a.available - b.available) < 64 * 2**20:
            break
    assert (a.total, a.swap_total) == (b.total, b.swap_total)
    assert abs(a.available - b.available) < 64 * 2**20
    busy, total = by_psutil.cpu_times()
    busy_2, total_2 = by_proc.cpu_times()
    assert abs(total_2 - total) < 5 * (os.cpu_count() or 1)
    assert abs(busy_2 - busy) < 5 * (os.cpu_count() or 1)
    assert set(by_psutil.links()) == set(by_proc.links())
    for name, (read, _) in by_psutil.disks().items():
        assert by_proc.disks()[name][0] >= read
    assert abs(by_psutil.uptime_s() - by_proc.uptime_s()) < 5


class Counters:
    """A source that a test sets."""

    def __init__(self) -> None:
        self.cpu = (10.0, 100.0)
        self.disk = {"sda": (1000, 0), "sda1": (1000, 0), "dm-0": (1000, 0), "nvme0n1": (0, 0)}
        self.net = {"lo": (9, 9), "eth0": (500, 600), "docker0": (7, 7)}

    def cpu_times(self) -> tuple[float, float]:
        return self.cpu

    def memory(self) -> host.Memory:
        return host.Memory(100, 30, 0, 0)

    def disks(self) -> dict[str, tuple[int, int]]:
        return self.disk

    def links(self) -> dict[str, tuple[int, int]]:
        return self.net

    def uptime_s(self) -> float:
        return 12.3

    def load(self) -> tuple[float, float, float]:
        return 1.0, 2.0, 3.0


def test_rates_count_disks_and_links_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(host.time, "monotonic", lambda: now)
    source = Counters()
    reader = host.HostReader(source)
    row, absent = reader.read("fast")
    assert row == [None, 70]
    assert absent == {"cpu_pct": "needs a second sample"}
    reader.read("slow")
    now = 60.0
    source.cpu = (15.0, 110.0)
    source.disk = {name: (read + 10_000, 0) for name, (read, _) in source.disk.items()}
    source.net = {name: (a + 50_000, b + 1_000) for name, (a, b) in source.net.items()}
    assert reader.read("fast") == ([50.0, 70], {})
    row, absent = reader.read("slow")
    values = dict(zip(host.COLUMNS["slow"], row, strict=True))
    assert values["disk_read_bytes_per_s"] == 2_000
    assert values["network_rx_bytes_per_s"] == 5_000
    assert values["network_tx_bytes_per_s"] == 100
    assert absent == {}


def test_a_part_that_fails_costs_no_other() -> None:
    source = Counters()
    source.disks = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    row, absent = host.HostReader(source).read("slow")
    values = dict(zip(host.COLUMNS["slow"], row, strict=True))
    assert values["load_1m"] == 1.0
    assert values["disk_read_bytes_per_s"] is None
    assert "ZeroDivisionError" in absent["disk_read_bytes_per_s"]


@pytest.mark.parametrize(
    ("line", "kind", "bus_id", "xid"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, pid=1, name=python3, GPU has fallen off the bus.",
         "xid", "0000:65:00.0", 79),
        ("NVRM: Xid (0000:01:00): 31, Ch 00000008", "xid", "0000:01:00.0", 31),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal", "sxid",
         "0000:c1:00.0", 12028),
        ("pcieport 0000:c0:01.1: AER: Corrected error received: 0000:c1:00.0", "aer",
         "0000:c1:00.0", None),
        ("nvidia 0000:65:00.0: PCIe Bus Error: severity=Uncorrected (Fatal)", "aer",
         "0000:65:00.0", None),
        ("pcieport 0000:00:01.0: AER: enabled with IRQ 26", None, None, None),
        ("acpi PNP0A08:00: _OSC: platform does not support [AER LTR DPC]", None, None, None),
        ("Out of memory: Killed process 4711 (python3) total-vm:1kB", "oom", None, None),
        ("Memory cgroup out of memory: Killed process 12 (sglang)", "oom", None, None),
        ("NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0x56:1463)", "nvrm",
         "0000:65:00.0", None),
        ("NVRM: API mismatch: the client has the version 1, but this kernel module", "nvrm",
         None, None),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04", None, None, None),
        ("usb 1-1: new device", None, None, None),
    ],
)  # fmt: skip
def test_lines_of_the_kernel_log(
    line: str, kind: str | None, bus_id: str | None, xid: int | None
) -> None:
    event = classify(line)
    if kind is None:
        assert event is None
        return
    assert event is not None
    assert (event["kind"], event["bus_id"], event["xid"]) == (kind, bus_id, xid)


@pytest.mark.shared
def test_recorded_kernel_logs(shared: Path) -> None:
    def events(name: str) -> list[dict[str, Any]]:
        (path,) = (shared / "captures/hosts").glob(f"{name}_*")
        found = [classify(text) for text in path.read_text().splitlines()]
        return [event for event in found if event is not None]

    assert [(e["kind"], e["xid"]) for e in events("c20")] == [
        ("xid", 154), ("xid", 149), ("xid", 154),
    ]  # fmt: skip
    assert [(e["kind"], e["xid"], e["bus_id"]) for e in events("c15")] == [
        ("xid", 63, "0000:10:1c.0")
    ]
    assert {e["kind"] for e in events("c36")} == {"aer"}
    assert {e["bus_id"] for e in events("c36")} == {"0000:00:03.1"}
    assert not [e for e in events("c08") if e["kind"] == "aer"]
    assert not [
        e
        for e in (
            classify(x) for x in (shared / "captures/h200/dmesg-nv.txt").read_text().splitlines()
        )
        if e
    ]


def test_records_of_kmsg_and_syslog() -> None:
    assert parse_kmsg(b"4,873,1234567,-;NVRM: Xid\n SUBSYSTEM=pci\n") == (1.234567, "NVRM: Xid")
    assert parse_kmsg(b"rubbish")[1] is None
    text = "<6>[    1.500000] one\n[   12.000001][ T1] two\nno time\n"
    assert parse_syslog(text) == [(1.5, "one"), (12.000001, "two")]


@pytest.fixture
def pipe() -> Iterator[tuple[Outbox, Any]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file:
        yield Outbox(write), file
        os.close(write)


def test_a_storm_hides_nothing_and_stays_small(pipe: tuple[Outbox, Any]) -> None:
    outbox, file = pipe
    log = KernelLog(outbox, lambda text: None)
    for number in range(5000):
        log._take(float(number), f"pcieport 0000:00:03.1: PCIe Bus Error: number {number}")
    log._take(2.0, "NVRM: Xid (PCI:0000:65:00): 79, gone")
    log._flush()
    assert outbox.flush(5.0)
    line = file.readline()
    assert len(line) < 10_000
    events = json.loads(line)["params"]["events"]
    assert sum(event["kind"] == "xid" for event in events) == 1
    assert sum(event["kind"] == "aer" for event in events) == kernel_log.MAX_OLD + 1
    assert any("4970 earlier aer lines" in event["text"] for event in events)


def test_the_outbox_keeps_the_newest_state_for_a_slow_reader(pipe: tuple[Outbox, Any]) -> None:
    outbox, file = pipe
    big = "x" * 300_000  # more than a pipe takes: the writer now waits for the reader
    outbox.notify("note", {"text": big})
    time.sleep(0.1)
    for number in range(1000):
        outbox.notify("fast", {"t": number}, latest="fast")
        outbox.notify("gpu_state", {"n": number}, latest="gpu_state 1")
    outbox.notify("note", {"text": "end"})
    assert not outbox.flush(0.01)
    lines = []
    for line in file:
        lines.append(json.loads(line))
        if lines[-1]["params"].get("text") == "end":
            break
    assert [line["method"] for line in lines] == ["note", "fast", "gpu_state", "note"]
    assert lines[1]["params"]["t"] == 999


def test_the_outbox_survives_a_reader_that_left() -> None:
    read, write = os.pipe()
    outbox = Outbox(write)
    os.close(read)
    for _ in range(100):
        outbox.notify("note", {"text": "x" * 100_000})
    assert outbox.flush(5.0)
    os.close(write)


def no_way(words: str) -> Any:
    def follow() -> None:
        raise PermissionError(words)

    return follow


def test_a_log_that_may_not_be_read_is_said(
    pipe: tuple[Outbox, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    log = KernelLog(pipe[0], notes.append)
    monkeypatch.setattr(log, "_follow_kmsg", no_way("Operation not permitted: '/dev/kmsg'"))
    monkeypatch.setattr(log, "_follow_klogctl", no_way("klogctl: Operation not permitted"))
    monkeypatch.setattr(log, "_follow_file", no_way("no readable kernel log file"))
    log._run()
    (note,) = notes
    assert "'/dev/kmsg'" in note
    assert "Xid" in note


def test_the_log_file_is_followed_through_rotation(
    pipe: tuple[Outbox, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, file = pipe
    path = tmp_path / "kern.log"
    path.write_text("Dec  2 host kernel: NVRM: Xid (PCI:0000:65:00): 13, old\n")
    monkeypatch.setattr(kernel_log, "FILES", (str(path),))
    monkeypatch.setattr(kernel_log, "POLL_S", 0.01)
    log = KernelLog(outbox, lambda text: None)
    monkeypatch.setattr(log, "_follow_kmsg", no_way("no"))
    monkeypatch.setattr(log, "_follow_klogctl", no_way("no"))
    log.start()
    time.sleep(0.1)
    with path.open("a") as writer:
        writer.write("Dec  2 host kernel: [1.0] NVRM: Xid (PCI:0000:65:00): 79, new\n")
    first = json.loads(file.readline())["params"]["events"]
    assert [event["xid"] for event in first] == [79]
    path.rename(tmp_path / "kern.log.1")
    path.write_text("Dec  2 host kernel: Out of memory: Killed process 1 (python3)\n")
    second = json.loads(file.readline())["params"]["events"]
    assert [event["kind"] for event in second] == ["oom"]


def test_an_answer_that_the_far_side_would_drop_becomes_an_error(
    pipe: tuple[Outbox, Any],
) -> None:
    outbox, file = pipe
    outbox.send({"jsonrpc": "2.0", "id": 7, "result": "x" * MAX_LINE})
    outbox.send({"jsonrpc": "2.0", "id": 8, "result": "short"})
    told = json.loads(file.readline())
    assert told["id"] == 7
    assert str(MAX_LINE) in told["error"]["message"]
    assert json.loads(file.readline())["result"] == "short"


@given(st.binary(max_size=300))
def test_no_request_breaks_the_dispatcher(data: bytes) -> None:
    Dispatcher(QuietOutbox()).handle(data)  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"method": st.sampled_from(["ping", "stream_ack", "stream_cancel", "", "x"]) | JSON},
        optional={"id": JSON, "params": JSON},
    )
)
def test_every_request_that_has_an_id_is_answered(message: dict[str, Any]) -> None:
    outbox = QuietOutbox()
    dispatcher = Dispatcher(outbox)  # type: ignore[arg-type]
    dispatcher.add("ping", lambda params: {"t": params["nothing"]})
    dispatcher.handle(json.dumps(message).encode())
    assert len(outbox.sent) == (message.get("id") is not None)


class QuietOutbox:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any], latest: str | None = None) -> None:
        json.dumps(message)
        self.sent.append(message)
