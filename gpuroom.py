"""Console entry: put this folder first on the path, then hand over to the command line."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run `gpuroom` and return its exit status.

    The packages are named `tui`, `backends` and `screens`. A folder of the same name that a
    PYTHONPATH brings along must not win over them.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    if not sys.path or sys.path[0] != here:
        sys.path.insert(0, here)
    from tui.cli import main as command_line

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
