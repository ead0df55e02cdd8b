"""The patches of tests/mutants fit the code as it is, which `make test-all` then breaks with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


def test_every_patch_fits() -> None:
    tried = [subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, check=False) for patch in PATCHES]
    assert tried
    assert [patch.name for patch, done in zip(PATCHES, tried, strict=True) if done.returncode] == []
