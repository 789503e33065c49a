from __future__ import annotations

from tests.sshd import ssh_lab

__all__ = ["ssh_lab"]
