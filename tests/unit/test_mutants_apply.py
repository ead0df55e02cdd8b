"""The patches of tests/mutants apply to the current code. `make test-all` breaks the code with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


def test_every_mutant_patch_applies() -> None:
    tried = [subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, check=False) for patch in PATCHES]
    assert tried
    assert [patch.name for patch, done in zip(PATCHES, tried, strict=True) if done.returncode] == []
