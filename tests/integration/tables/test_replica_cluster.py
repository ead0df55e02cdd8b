"""Random workload on a standalone cluster with a master and two workers; the test kills one worker with its executor.

All sessions have unfavourable settings, and tasks run twice.
"""

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
@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_replica_equals_the_org_although_a_worker_was_killed(spark: Any, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        output = tmp_path / "replica"
        job = ClusterJob(cluster, output, spark, lose_worker_in=0, settings=HOSTILE | INTERPRETED | SPECULATIVE)
        outcome = run_seed(0, tmp_path, job, side_job=SessionJob(spark, output), runs=1)
        assert len(job.lost) == 1, "no worker ran a task during the job, so none was killed"
        assert job.lost[0] in cluster.workers
        assert not psutil.pid_exists(job.lost[0])
    assert outcome.is_equal, summary([*outcome.unexplained, *outcome.differences])
    assert outcome.dirty > 0
