"""The command line. Start-up counts: a command's own module is imported only when it runs."""

from __future__ import annotations

from tui.cli.main import main

__all__ = ["main"]
