"""Remove old landed windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Context

from airflow_provider_sfstream.actions.arguments import urls_of
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator, open_landed_stream
from airflow_provider_sfstream.actions.stream_maintenance import prune_windows
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.salesforce.topics import check_age


class PruneReplayWindowsOperator(LandedStreamOperator):
    """Remove the landed windows of a stream that are older than ``older_than``: files, manifests and records.

    Windows are removed oldest first, up to the first one that must remain: the newest windows of the stream remain,
    without a missing one between. The window of the position remains, and windows that a replica or event log named
    here has not read. Removed events cannot be restored: a backfill of their time fails with an error that names the
    removal. Safe to retry and to kill. If the Salesforce connection has ``organization_id``, Salesforce is not
    contacted. Only one run at a time may prune a stream (``max_active_runs=1``).

    The XCom result has the numbers of removed ``windows``, ``events`` and ``bytes`` (with ``dry_run``: that would be
    removed), ``first_window`` and ``last_window``, and the number of ``kept`` old windows with ``kept_because``, the
    reason.

    :param older_than: minimum time since a window was finished, at least four days. Set it longer than the DAGs that
        read windows may be late, and than any backfill needs.
    :param replica_urls: the ``output_url`` of every replica of the stream, ``[]`` if there is none. Windows
        that one of them has not applied are kept, and all windows if it has applied none. (templated)
    :param event_log_urls: the ``output_url`` of every event log to check, ``[]`` for none: windows with events of
        which one has no row are kept. (templated)
    :param output_conn_id: Airflow connection with which the worker reads those folders, if they need one. (templated)
    :param keep_last: number of the newest live windows that remain, at any age.
    :param dry_run: only report the windows that would be removed.
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    template_fields: Sequence[str] = (
        *LandedStreamOperator.template_fields,
        "replica_urls",
        "event_log_urls",
        "output_conn_id",
    )

    def __init__(
        self,
        *,
        topic: str,
        landing_url: str,
        older_than: timedelta,
        replica_urls: Sequence[str] | str,
        event_log_urls: Sequence[str] | str,
        output_conn_id: str | None = None,
        keep_last: int = 1,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(topic=topic, landing_url=landing_url, **kwargs)
        self.older_than = older_than
        self.replica_urls = replica_urls
        self.event_log_urls = event_log_urls
        self.output_conn_id = output_conn_id
        self.keep_last = keep_last
        self.is_dry_run = dry_run  # dry_run is a method of operators
        check_age(older_than)
        check_positive(keep_last=keep_last)

    def execute(self, context: Context) -> dict[str, Any]:
        """Remove the windows; return their number, and the reason why older ones remain."""
        with airflow_errors(self):
            return prune_windows(
                open_landed_stream(self),
                older_than=self.older_than,
                replica_urls=urls_of("replica_urls", self.replica_urls, "removed"),
                event_log_urls=urls_of("event_log_urls", self.event_log_urls, "removed"),
                output_conn_id=self.output_conn_id,
                keep_last=self.keep_last,
                dry_run=self.is_dry_run,
                pruned_by=str(run_identity(context)),
            )
