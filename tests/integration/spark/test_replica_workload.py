"""Random workloads on an org, made into a replica by the job window after window: the replica equals the org.

``SFSTREAM_REPLICA_SEEDS=50`` runs that many seeds; ``benchmarks/replica_workload.py`` runs them all, with figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.replica_comparison import summary
from tests.support.replica_seeds import SessionJob, run_seed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(int(os.environ.get("SFSTREAM_REPLICA_SEEDS", "1"))))
def test_the_replica_equals_the_org(spark: Any, tmp_path: Path, seed: int) -> None:
    outcome = run_seed(seed, tmp_path, SessionJob(spark, tmp_path / "replica"))
    assert not outcome.unexplained, f"before the refresh, in rows not dirty: {summary(outcome.unexplained)}"
    assert not outcome.differences, summary(outcome.differences)
    assert (outcome.dirty_after, outcome.flags_after) == (0, [])
    assert outcome.dirty > 0
    assert outcome.gaps > 5
    assert outcome.windows > 3
