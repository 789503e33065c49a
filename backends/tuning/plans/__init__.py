"""Planners: the new text of a file from its old text. Pure, idempotent, and refusing to guess."""

from __future__ import annotations
