"""What is slow to import is imported only when it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import backends.hub", ("asyncssh", "cryptography", "textual", "rich", "psutil")),
        ("import backends.doctor", ("asyncssh", "textual", "rich")),
        ("from tui.cli import main; main(['hosts', 'local'])", ("asyncssh", "textual", "rich")),
        ("from tui.cli import main; main(['doctor', '-h'])", ("asyncssh", "textual", "rich")),
    ],
)
def test_not_imported(code: str, absent: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        f"try:\n    {code}\n"
        "except SystemExit:\n    pass\n"
        f"print([name for name in {absent!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stderr.strip() == "[]"
