"""The patches of tests/mutants apply to the current code. `make test-all` breaks the code with them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


def test_every_mutant_patch_applies() -> None:
    tried = [subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, check=False) for patch in PATCHES]
    assert tried
    assert [patch.name for patch, done in zip(PATCHES, tried, strict=True) if done.returncode] == []


def test_every_mutant_names_a_guarantee() -> None:
    """A promise is a number of the README, ``backfill``, ``green``, or the beginning of a row of the guarantees."""
    rows = [line.removeprefix("| ") for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines()]
    promises = {patch.name: re.search("^Promise: (.+)$", patch.read_text(), re.MULTILINE) for patch in PATCHES}
    unknown = {
        name: promise and promise[1]
        for name, promise in promises.items()
        if promise is None
        or not (re.fullmatch("[1-7]|backfill|green", promise[1]) or any(row.startswith(promise[1]) for row in rows))
    }
    assert unknown == {}
