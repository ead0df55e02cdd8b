"""Fuzzing: no input stops a stream, ends a process or exposes a secret. ``make fuzz`` runs it for a chosen time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = 5
SEED = 20_260_101
MOST_MIB = 256


@pytest.mark.extended
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_inputs_are_read_refused_or_quarantined(target: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, str(SECONDS), str(SEED)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-8_000:]
    summary = json.loads(run.stdout)
    assert summary["inputs"] >= 100
    assert summary["mib_above_idle"] < MOST_MIB, summary
