"""Compact and clean Delta tables."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.actions.tables.table_job import check_output
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.maintenance.config import (
    MIN_RETENTION_HOURS,
    TARGET_FILE_BYTES,
    MaintenanceConfig,
)


class MaintainTablesOperator(SparkJobOperator):
    """Run the ``maintain`` job: compact the Delta tables of event logs and replicas, without a change of their rows.

    - Small files of event tables, of the quarantine and of replicas' histories are merged. The other tables of replicas
      keep their files, which the replica job divides.
    - Files that no version has had within ``retention`` are removed, also files of killed jobs. Versions
      that a replica's snapshot names stay readable at any age.
    - Each table gets a checkpoint, and old entries of its log are removed after 30 days.

    No row changes, and no file of a running job. Safe to retry, to kill, and during other jobs: an event log's job
    whose own files were merged meanwhile, and a replica's job that publishes second, fail with
    ``PositionConflictError``, and their retry succeeds. To avoid that, use the pool of one slot that the replica's jobs
    have. Tables of other programs, and tables of a replica that are ahead of its snapshot, are skipped.

    The XCom result: ``tables``, ``snapshot`` (of the replica, 0 where there is none) and ``seconds``; of each table
    ``files_before`` and ``files``, ``version_before`` and ``version``, ``removed_files`` and ``removed_bytes``, and
    ``left``, the reason why the table was skipped, wholly or partly, else ``None``. The result is ``None`` if the
    worker cannot read the metrics of this run at ``{output_url}/_sfstream/metrics/``.

    :param output_url: folder of the tables, as a URL that Spark can write to: the ``output_url`` of an event log, a
        replica, or both. (templated)
    :param retention: how long removed files of a table are kept, and so the age of the oldest readable version of an
        event table. At least a day, and longer than any job or reader runs.
    :param target_file_bytes: smaller files are merged into files of this size, in bytes. The driver needs a few times
        as much memory.
    :param conn_id: Airflow connection that names the Spark master. The driver does all the work: executors get none.
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    job = "maintain"
    name_on_spark = "sfstream-maintain"

    def __init__(
        self,
        *,
        output_url: str,
        retention: timedelta = timedelta(days=7),
        target_file_bytes: int = TARGET_FILE_BYTES,
        **kwargs: Any,
    ) -> None:
        if not isinstance(retention, timedelta) or retention < timedelta(hours=MIN_RETENTION_HOURS):
            raise ConfigurationError(
                f"retention={retention!r} must be a timedelta of at least one day: files of a running job cannot be "
                "distinguished from those of a killed job. Nothing was removed."
            )
        hours = math.ceil(retention / timedelta(hours=1))
        self._config = MaintenanceConfig(output_url="", retention_hours=hours, target_file_bytes=target_file_bytes)
        super().__init__(output_url=output_url, **kwargs)

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Submit the job and wait for it; return its metrics."""
        with airflow_errors(self):
            check_output(self.output_url)
            return self.run_job(context, self._config)
