"""Tests that take longer than one of their kind may, and why. The end of a run names those that are not here."""

from __future__ import annotations

SLOW: dict[str, str] = {}
"""Reasons by node id, without parameters."""
