"""No input stops a stream, takes a process down, or shows a secret. ``make fuzz`` goes on for as long as one likes."""

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
def test_a_hostile_input_is_taken_refused_or_set_aside(target: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, str(SECONDS), str(SEED)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-8_000:]
    told = json.loads(run.stdout)
    assert told["inputs"] >= 100
    assert told["mib_above_idle"] < MOST_MIB, told
