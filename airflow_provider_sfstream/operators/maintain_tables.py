"""Keep Delta tables small."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.actions.tables.table_job import check_output
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.maintenance.config import (
    MIN_RETENTION_HOURS,
    TARGET_FILE_BYTES,
    MaintenanceConfig,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class MaintainTablesOperator(SparkJobOperator):
    """Run the ``maintain`` job: Delta tables of event logs and replicas get fewer files, and keep their rows.

    - Small files of event tables, of the quarantine and of replicas' histories are merged. The other tables of replicas
      keep their files, which divide by themselves.
    - Files that no version has had within ``retention`` are removed, those that killed jobs have left too. Versions
      that a replica's snapshot names stay readable, however old.
    - Each table gets a checkpoint, and old entries of its log are removed after 30 days.

    No row changes, and no file of a job that is at work. Safe to retry, to kill, and beside jobs that write: an event
    log's job whose own files were merged meanwhile, and a replica's job that publishes second, fail with
    ``PositionConflictError`` and are right when tried again. To spare them that, give this the pool of one slot that
    the replica's jobs have. Tables of others, and those of a replica that are ahead of its snapshot, are left alone.

    The XCom result: ``tables``, ``snapshot`` (of the replica, 0 where there is none) and ``seconds``; of each table
    ``files_before`` and ``files``, ``version_before`` and ``version``, ``removed_files`` and ``removed_bytes``, and
    ``left``, why it, or the rest of the work on it, was left, else ``None``. ``None`` as a whole where the worker
    cannot read the metrics file at ``{output_url}/_sfstream/metrics/``.

    :param output_url: folder of the tables, as a URL that Spark can write to: the ``output_url`` of an event log, a
        replica, or both. (templated)
    :param retention: how long files stay that a table does not have any longer, and so how far back readers may look
        at older versions of an event table. A day at least, and longer than any job or reader takes.
    :param target_file_bytes: smaller files are merged into such. The driver holds about as much in memory, a few times.
    :param output_conn_id: Airflow connection with which the worker reads the metrics file, where it needs one. The job
        itself uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master. The driver does all the work: executors get none.
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    def __init__(
        self,
        *,
        output_url: str,
        retention: timedelta = timedelta(days=7),
        target_file_bytes: int = TARGET_FILE_BYTES,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(retention, timedelta) or retention < timedelta(hours=MIN_RETENTION_HOURS):
            raise ConfigurationError(
                f"retention={retention!r} must be a timedelta of at least one day: the files of a job that is still at "
                "work look like those that a killed one has left. Nothing was removed."
            )
        hours = math.ceil(retention / timedelta(hours=1))
        self._config = MaintenanceConfig(output_url="", retention_hours=hours, target_file_bytes=target_file_bytes)
        super().__init__(script="maintain.py", output_url=output_url, name=name or "sfstream-maintain", **kwargs)

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Submit the job and wait for it; return its metrics."""
        with airflow_errors(self):
            check_output(self.output_url)
            return self.submit(context, self._config)
