"""A seed on a standalone cluster of a master and two workers, one of which dies with its executor in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_job import ClusterJob
from tests.support.replica_comparison import summary
from tests.support.replica_seeds import run_seed
from tests.support.standalone_cluster import standalone_cluster


@pytest.mark.timeout(1200)
def test_the_replica_equals_the_org_though_a_worker_died(spark: Any, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        job = ClusterJob(cluster, tmp_path / "replica", spark, lose_worker_in=1)
        outcome = run_seed(0, tmp_path, job)
        assert len(job.lost) == 1, "no task ran on a worker while the job did"
        assert cluster.alive_workers() <= 1 or job.lost[0] not in cluster.executors().values()
    assert outcome.is_equal, summary([*outcome.unexplained, *outcome.differences])
    assert outcome.dirty > 0
