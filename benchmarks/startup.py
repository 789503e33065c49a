"""Start-up: `gpuroom --help`, and the demo host to its end, beside `python -c pass`, in one run.

Run as `python benchmarks/startup.py [--rounds 20]`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "gpuroom --help": [sys.executable, str(ROOT / "gpuroom.py"), "--help"],
    "gpuroom config path": [sys.executable, str(ROOT / "gpuroom.py"), "config", "path"],
    "demo host, up and down": [sys.executable, "-m", "backends.sim.server", "idle", "39117"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    took_ms: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):  # interleaved, so that a busy moment hits all of them
        for name, argv in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(argv, cwd=ROOT, input=b"", stdout=subprocess.DEVNULL, check=True)
            took_ms[name].append((time.perf_counter() - start) * 1000)
    base = statistics.median(took_ms["python -c pass"])
    print(f"{'command':<24}{'median ms':>10}{'best ms':>10}{'over python':>13}")
    for name, values in took_ms.items():
        median = statistics.median(values)
        print(f"{name:<24}{median:>10.0f}{min(values):>10.0f}{median - base:>+13.0f}")


if __name__ == "__main__":
    main()
