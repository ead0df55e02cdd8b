"""A seed on a standalone cluster of a master and two workers, one of which dies with its executor in the middle; all
sessions have settings that nobody would wish for, and tasks run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.cluster_job import ClusterJob
from tests.support.replica_comparison import summary
from tests.support.replica_seeds import SessionJob, run_seed
from tests.support.spark import HOSTILE, INTERPRETED, SPECULATIVE
from tests.support.standalone_cluster import standalone_cluster


@pytest.mark.extended
@pytest.mark.timeout(3600)
def test_the_replica_equals_the_org_though_a_worker_died(spark: Any, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        output = tmp_path / "replica"
        job = ClusterJob(cluster, output, spark, lose_worker_in=0, settings=HOSTILE | INTERPRETED | SPECULATIVE)
        outcome = run_seed(0, tmp_path, job, aside=SessionJob(spark, output), runs=1)
        assert len(job.lost) == 1, "no task ran on a worker while the job did"
        assert job.lost[0] in cluster.workers
        assert not psutil.pid_exists(job.lost[0])
    assert outcome.is_equal, summary([*outcome.unexplained, *outcome.differences])
    assert outcome.dirty > 0
