"""Random workloads on an org, made into a replica by the job window after window: the replica equals the org.

A small workload always; ``make test-all`` has a longer one on a cluster (``test_replica_cluster.py``).
``SFSTREAM_REPLICA_SEEDS=50`` runs that many of those here; ``benchmarks/replica_workload.py`` runs them all, with
figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.replica_comparison import summary
from tests.support.replica_seeds import SessionJob, run_seed

SMALL = {"runs": 2, "steps": 80}
SEEDS = range(int(os.environ.get("SFSTREAM_REPLICA_SEEDS", "0")))


@pytest.mark.parametrize(
    ("seed", "size"),
    [
        pytest.param(0, SMALL, id="small"),
        *(pytest.param(seed, {}, id=str(seed), marks=pytest.mark.extended) for seed in SEEDS),
    ],
)
def test_the_replica_equals_the_org(spark: Any, tmp_path: Path, seed: int, size: dict[str, int]) -> None:
    outcome = run_seed(seed, tmp_path, SessionJob(spark, tmp_path / "replica"), **size)
    assert not outcome.unexplained, f"before the refresh, in rows not dirty: {summary(outcome.unexplained)}"
    assert not outcome.differences, summary(outcome.differences)
    assert (outcome.dirty_after, outcome.flags_after, outcome.not_proved) == (0, [], {})
    assert outcome.dirty > 0
    assert outcome.gaps > 5
    assert outcome.windows > 3
