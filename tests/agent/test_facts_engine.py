"""What is told of the processes that hold GPUs, of their model and of interrupts; and what not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from backends.agent.remote import facts_engine
from backends.agent.remote.facts_engine import Holder

PID, PARENT = 4242, 4200
SECRET = "sk-do-not-tell"
ENVIRON = {
    "CUDA_VISIBLE_DEVICES": "0,1",
    "NCCL_SOCKET_IFNAME": "eth0",
    "HOME": "/home/ai",
    "HF_TOKEN": SECRET,
    "VLLM_API_KEY": SECRET,
}
SERVER = [
    "python3", "-m", "sglang.launch_server", "--model-path", "/models/GLM", "--port", "30001",
    "--tp-size", "2", "--api-key", SECRET,
]  # fmt: skip


class Told(dict[str, Any]):
    """What was kept: values by key, and which of them failed or need root."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, str] = {}

    def keep(self, key: str, value: Any, error: str | None, source: str, root: bool) -> None:
        assert source
        if error is None:
            self[key] = value
        else:
            self.errors[key] = error


def put(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def process(root: Path, pid: int, parent: int, argv: list[str], name: str = "python3") -> None:
    put(root, f"/proc/{pid}/stat", f"{pid} ({name}) S {parent} " + " ".join(["0"] * 40))
    put(root, f"/proc/{pid}/cmdline", "\0".join(argv) + "\0")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host on which a rank of a server holds two GPUs."""
    process(tmp_path, PARENT, 1, SERVER)
    process(tmp_path, PID, PARENT, ["sglang::scheduler_TP0"], "sglang::schedul")
    put(tmp_path, f"/proc/{PID}/environ", "\0".join(f"{k}={v}" for k, v in ENVIRON.items()))
    put(
        tmp_path,
        f"/proc/{PID}/maps",
        "7f00-7f01 r-xp 0 0 /x/libcudart.so.12.8.90\n7f02-7f03 rw-p 0 0\n",
    )
    put(
        tmp_path,
        f"/proc/{PID}/mountinfo",
        "20 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "21 20 259:1 / /models ro,noatime shared:2 - xfs /dev/nvme0n1p1 ro\n",
    )
    for number in range(3):
        put(tmp_path, f"/proc/{PID}/fd/{number}", "")
    (tmp_path / f"proc/{PID}/root").symlink_to(tmp_path)
    (tmp_path / f"proc/{PID}/cwd").symlink_to("/")
    put(tmp_path, "/models/GLM/a.safetensors", "x" * 1000)
    put(tmp_path, "/models/GLM/b.safetensors", "x" * 500)
    put(tmp_path, "/models/GLM/config.json", "{}")
    return tmp_path


def told(root: Path, *holders: Holder) -> Told:
    result = Told()
    facts_engine.tell(list(holders), str(root), result.keep)
    return result


RANK = (Holder(PID, 0, 70_000, "C"), Holder(PID, 1, 70_001, "C"))


def test_a_rank_its_server_and_its_model(host: Path) -> None:
    found = told(host, *RANK)
    assert found["gpu/processes"] == [
        f"0|{PID}|C|sglang::schedul|70000",
        f"1|{PID}|C|sglang::schedul|70001",
    ]
    assert found["engine/gpu_indices"] == "0,1"
    assert found[f"engine/{PID}/gpus"] == "0,1"
    assert found[f"engine/{PID}/env/CUDA_VISIBLE_DEVICES"] == "0,1"
    assert found[f"engine/{PID}/maps"] == 2
    assert found[f"engine/{PID}/cuda"] == "12.8"
    assert found[f"engine/{PID}/open_files"] == 3
    assert found["engine/port"] == 30001
    assert found["engine/load_mode"] == "default"
    assert found["engine/tensor_parallel"] == 2
    assert found["net/peers"] == []
    assert found["model/path"] == "/models/GLM"
    assert found["model/bytes"] == 1500
    assert (found["model/fs_type"], found["model/mount_options"]) == ("xfs", "ro,noatime")
    assert 0 <= found["statvfs/model/free_pct"] <= 100
    assert found.errors == {}


def test_no_secret_is_told(host: Path) -> None:
    found = told(host, *RANK)
    assert found["engine/auth"] is True
    assert SECRET not in repr(found)
    assert "HF_TOKEN" not in repr(found)


def test_nobody_on_the_gpus(tmp_path: Path) -> None:
    found = told(tmp_path)
    assert found == {"gpu/processes": [], "engine/none": True, "model/none": True}


def test_a_model_of_the_hub(host: Path) -> None:
    snapshot = "/home/ai/.cache/huggingface/hub/models--zai-org--GLM-5/snapshots/abc"
    put(host, f"{snapshot}/model.safetensors", "x" * 70)
    process(host, PARENT, 1, ["/venv/bin/vllm", "serve", "zai-org/GLM-5", "--nnodes", "2",
                              "--dist-init-addr=10.0.0.1:5000"])  # fmt: skip
    found = told(host, *RANK)
    assert found["model/path"] == snapshot
    assert found["model/bytes"] == 70
    assert found["engine/port"] == 8000
    assert found["net/peers"] == ["10.0.0.1"]


def test_a_model_that_is_gone_is_said(host: Path) -> None:
    process(host, PARENT, 1, ["python3", "-m", "sglang.launch_server", "--model", "/gone"])
    found = told(host, *RANK)
    assert "model/bytes" not in found
    assert found.errors["model/path"] == "ENOENT"


def test_a_process_that_has_ended_breaks_nothing(tmp_path: Path) -> None:
    found = told(tmp_path, Holder(77, 0, None, "C"))
    assert found["gpu/processes"] == ["0|77|C|?|"]
    assert found.errors["engine/77/maps"] == "ENOENT"


def test_whose_disk_it_is(tmp_path: Path) -> None:
    put(tmp_path, "/sys/devices/pci/nvme0n1/nvme0n1p1/partition", "1")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    target = tmp_path / "sys/devices/pci/nvme0n1/nvme0n1p1"
    (tmp_path / "sys/dev/block/259:1").symlink_to(
        os.path.relpath(target, tmp_path / "sys/dev/block")
    )
    assert facts_engine._disk(str(tmp_path), "259:1") == "nvme0n1"
    assert facts_engine._disk(str(tmp_path), "8:1") is None


def test_interrupts_of_gpus_and_network_cards(tmp_path: Path) -> None:
    for bdf, class_, irq in (
        ("0000:06:00.0", "0x030200", "90"),
        ("0000:07:00.0", "0x020000", "91"),
        ("0000:08:00.0", "0x010802", "92"),
    ):
        base = f"/sys/bus/pci/devices/{bdf}"
        put(tmp_path, f"{base}/class", class_ + "\n")
        put(tmp_path, f"{base}/local_cpulist", "0-31\n")
        put(tmp_path, f"{base}/msi_irqs/{irq}", "msix\n")
        put(tmp_path, f"/proc/irq/{irq}/effective_affinity_list", "40\n")
    found = Told()
    facts_engine.interrupts(str(tmp_path), found.keep)
    assert found["irq/90/effective_affinity_list"] == "40"
    assert found["irq/91/local_cpus"] == "0-31"
    assert not any(key.startswith("irq/92") for key in found)
