"""`gpuroom logs` on files of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from backends.servers.engines import Phase
from tui.cli.logs import PHASES

ROOT = Path(__file__).resolve().parents[2]
LOG = "".join(
    f"[2026-03-14 09:{n // 60:02d}:{n % 60:02d} TP{n % 4}] step {n} done\n" for n in range(600)
)


def logs(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = tmp_path / "config.toml"
    config.write_text("")
    command = [sys.executable, str(ROOT / "gpuroom.py"), "logs", "local", *arguments]
    return subprocess.run(
        [*command, "--config", str(config)], capture_output=True, text=True, timeout=90, check=False
    )


def test_since_and_grep_as_json(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    done = logs(tmp_path, str(path), "--since", "09:09", "--grep", r"step 5[45]0 ", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["message"] for line in found] == ["step 540 done", "step 550 done"]
    assert found[0]["rank"] == 0
    assert LOG.encode()[found[0]["offset"] :].startswith(b"[2026-03-14 09:09:00 TP0]")


START = """\
[2026-03-14 09:00:01] server_args=ServerArgs(model_path='/models/m', tp_size=2, port=30000)
[2026-03-14 09:00:09 TP0] Init torch distributed begin.
[2026-03-14 09:00:13 TP0] Load weight begin. avail mem=138.50 GB
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]
[2026-03-14 09:00:14 TP1] WARNING: a shard is slow
[2026-03-14 09:01:41 TP0] Load weight end. type=LlamaForCausalLM, avail mem=104.10 GB
[2026-03-14 09:01:43 TP0] Capture cuda graph begin. This can take up to several minutes.
[2026-03-14 09:02:00 TP0] The server is fired up and ready to roll!
[2026-03-14 09:02:01 TP0] Decode batch. #running-req: 1
"""


def test_phases_levels_and_ranks_without_a_screen(tmp_path: Path) -> None:
    """All runs in the log count; the other filters narrow further."""
    path = tmp_path / "server.log"
    path.write_text(START + START.replace("09:0", "10:0"))

    def printed(*arguments: str) -> list[str]:
        return logs(tmp_path, str(path), *arguments).stdout.splitlines()

    loading = printed("--phase", "loading-weights")
    lines = path.read_text().splitlines()
    assert loading == [*lines[2:6], *lines[11:15]]
    assert printed("--phase", "loading-weights", "--level", "warning") == [lines[4], lines[13]]
    assert printed("--phase", "loading-weights", "--rank", "1", "-n", "1") == [lines[13]]
    assert printed("--phase", "ready", "--since", "10:00") == lines[16:]
    assert logs(tmp_path, str(path), "--phase", "downloading").returncode == 1
    assert tuple(PHASES) == tuple(Phase)


def test_nothing_fits_and_hostile_bytes(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"\x1b]0;title\x07\x1b[2Jone\n" + b"x" * 10_000_000 + b"\nlast\n")
    done = logs(tmp_path, str(path), "-n", "2000")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "one" in lines[0]
    assert lines[-1] == "last"
    assert not {"\x1b", "\x07"} & set(done.stdout)
    assert logs(tmp_path, str(path), "--grep", "absent").returncode == 1
    assert logs(tmp_path, str(tmp_path / "none.log")).returncode == 2


def test_follow_prints_what_is_appended_and_nothing_twice(tmp_path: Path) -> None:
    path, config = tmp_path / "server.log", tmp_path / "config.toml"
    path.write_text(LOG)
    config.write_text("")
    command = [
        sys.executable,
        str(ROOT / "gpuroom.py"),
        "logs",
        "local",
        str(path),
        "-f",
        "-n",
        "2",
    ]
    with subprocess.Popen(
        [*command, "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        watchdog = threading.Timer(90, running.kill)
        watchdog.start()
        try:
            assert running.stdout is not None
            seen = [running.stdout.readline() for _ in range(2)]
            with path.open("a") as file:
                file.write("one more\nand another\n")
            seen += [running.stdout.readline() for _ in range(2)]
        finally:
            watchdog.cancel()
            running.kill()
    assert seen == [*LOG.splitlines(keepends=True)[-2:], "one more\n", "and another\n"]
