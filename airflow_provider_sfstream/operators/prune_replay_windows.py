"""Remove landed windows that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.arguments import urls_of
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator
from airflow_provider_sfstream.actions.repairs import prune_windows
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.salesforce.topics import check_age

if TYPE_CHECKING:
    from airflow.sdk import Context


class PruneReplayWindowsOperator(LandedStreamOperator):
    """Remove the landed windows of a stream that are older than ``older_than``: files, manifests and records.

    Oldest first, and never across one that stays: what is left are the newest windows of the stream, without a hole.
    The window that the position stands on stays, and what the replicas and event logs named here have yet to read.
    What is removed cannot be had again: a backfill of its time fails, and says so. Safe to retry and to kill; nothing
    is contacted where the Salesforce connection gives ``organization_id``. Let one run at a time prune a stream
    (``max_active_runs=1``).

    The XCom result has ``windows``, ``events`` and ``bytes`` removed (with ``dry_run``: that would be),
    ``first_window`` and ``last_window``, and ``kept`` old windows with ``kept_because``, the reason.

    :param topic: the stream's topic. (templated)
    :param landing_url: the landing that the stream was drained to. (templated)
    :param older_than: how long ago a window has to have been finished; four days at least. Give more than the DAGs that
        read windows may ever be late, and than any backfill reaches back.
    :param replica_urls: the ``output_url`` of every replica that is made from the stream, ``[]`` if none is. Windows
        that one of them has not applied stay, and all if it has none yet. (templated)
    :param event_log_urls: the ``output_url`` of every event log, ``[]`` if none is to be asked: windows with events of
        which one has no row stay. (templated)
    :param output_conn_id: Airflow connection with which the worker reads those folders, where it needs one. (templated)
    :param keep_last: how many of the newest live windows stay, however old.
    :param dry_run: only say what would be removed.
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: the stream's API, as the drain has it.
    :param subscription: the stream's subscription; of a managed one its developer name or ID. (templated)
    :param landing_conn_id: Airflow connection of the landing, as given to the drain. (templated)
    :param replay_store: as given to the drain: ``"variable"``, ``"table"`` or ``"landing"``.
    :param replay_store_conn_id: database of the table store. (templated)
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
        """Remove the windows; return how many, and why older ones stay."""
        with airflow_errors(self):
            return prune_windows(
                self.open(),
                older_than=self.older_than,
                replica_urls=urls_of("replica_urls", self.replica_urls, "removed"),
                event_log_urls=urls_of("event_log_urls", self.event_log_urls, "removed"),
                output_conn_id=self.output_conn_id,
                keep_last=self.keep_last,
                dry_run=self.is_dry_run,
                pruned_by=str(run_identity(context)),
            )
