"""Publish rows as platform events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow.sdk import Context

from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.hooks.salesforce_allocations import PUBLISHED_EVENTS, AllocationReserve
from airflow_provider_sfstream.salesforce.topics import Topic

_OUTCOMES = ("fail", "publish_again", "skip")


class PublishEventsOperator(RetriedOperator):
    """Publish rows as platform events through the Pub/Sub API, each once, and record the result of each event.

    Rows are sent in order, in requests within Salesforce's limits. A request is recorded below ``results_url`` before
    it is sent, and the results of its events after the response. A retry, also after ``kill -9`` and of a cleared task,
    reads these records and publishes the events that were not accepted. Transient faults are retried eight times in a
    row within the task. Events that Salesforce rejects permanently, and rows that are no event of the topic, are
    written to files of JSON lines with row, key, reason and values; the others are published, and the task then fails.

    **Events in doubt.** If a request had no response, its events may have been published: Salesforce does not detect
    duplicates, so that a second request may publish them twice. The task then reads the topic from the preceding
    event, for which the user needs read access. Events that it finds were published. Events that it does not find are
    published, if Salesforce confirmed the end of the stream later than twice the connection's
    ``call_timeout_seconds`` (30) after the search began, and the search found an event of this task by its ID. In all
    other cases, and in the first run of a task, which has no preceding event, ``on_unknown_outcome`` decides. The
    default fails the task, because only you can decide whether a duplicate or a missing event is worse.

    An event's ID is a UUID of org, topic, run and key, the same in each try: subscribers can recognise a duplicate by
    it, and this package's event log does. Two runs that publish one key publish two events.

    The XCom result: ``topic``; the number of rows ``published`` in this try, ``already_published`` before, ``failed``
    and ``in_doubt``; ``first_replay_id`` and ``last_replay_id`` (hex) of the run; ``results_url``, the run's
    folder, and ``failures_url``, that of the failed rows, else ``None``.

    :param topic: a platform event's own topic, ``/event/Name__e``. (templated)
    :param results_url: folder of the results, a URL of Airflow's object storage. If it is deleted, a retry publishes
        again. (templated)
    :param rows: the rows, a list of dicts. They are in XCom and in the task's rendered fields: use ``table`` for large
        or confidential data. Exactly one of ``rows``, ``windows`` and ``table`` is required. (templated)
    :param windows: or the events of landed windows: results of drains or manifest URLs, as for ``EventLogOperator``.
        ``CreatedDate`` and ``CreatedById`` are those of the publication. Needs the extra ``tables``, like ``table``.
        (templated)
    :param table: or the URL of a Delta table, or of Parquet files. All its rows are published, file by file in the
        order of their names; columns that begin with ``_`` are omitted. Without ``key``, a retry reads the version of
        the first try. (templated)
    :param key: the column that identifies rows. The second row of a run with the same key is an error.
        ``None``: the row's place in the source, so that a retry with other rows, corrected ones too, is refused.
    :param fields: the column of each field of the event. ``None``: columns have the names of fields; the key need not.
    :param on_failure: ``"fail"``, or ``"continue"`` to succeed although rows failed.
    :param on_unknown_outcome: action for events in doubt. ``"fail"``; ``"publish_again"``: subscribers may receive an
        event twice; ``"skip"``: an event may be missing. (templated)
    :param allocation_reserve: before the first request: fail (``AllocationReserveError``, without retry) if less than
        this of the org's hourly publishing would remain. A number of events (``int``), a share (``float`` from
        0.0 to 1.0), or a dict of these by the names of allocations. docs/sizing.md#allocations
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param results_conn_id: Airflow connection for ``results_url``, if it needs one. (templated)
    :param landing_conn_id: Airflow connection of the windows' landing. (templated)
    :param table_conn_id: Airflow connection of the table's storage. (templated)
    :raises ConfigurationError: at construction, if the number of sources is not one, or an argument is unusable.
    """

    template_fields: Sequence[str] = (
        "topic",
        "results_url",
        "rows",
        "windows",
        "table",
        "on_unknown_outcome",
        "salesforce_conn_id",
        "results_conn_id",
        "landing_conn_id",
        "table_conn_id",
    )

    def __init__(
        self,
        *,
        topic: str,
        results_url: str,
        rows: Any = None,
        windows: Any = None,
        table: str | None = None,
        key: str | None = None,
        fields: Mapping[str, str] | None = None,
        on_failure: Literal["fail", "continue"] = "fail",
        on_unknown_outcome: Literal["fail", "publish_again", "skip"] = "fail",
        allocation_reserve: float | Mapping[str, float] | None = None,
        salesforce_conn_id: str = "salesforce_default",
        results_conn_id: str | None = None,
        landing_conn_id: str | None = None,
        table_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        if [rows, windows, table].count(None) != 2:
            raise ConfigurationError("Set exactly one of rows, windows and table. Nothing was published.")
        if rows is None:
            require_extra("tables")
        check_choice("on_failure", on_failure, ("fail", "continue"))
        if not is_template(on_unknown_outcome):
            check_choice("on_unknown_outcome", on_unknown_outcome, _OUTCOMES)
        if not is_template(topic):
            _check_topic(topic)
        super().__init__(**kwargs)
        self.topic = topic
        self.results_url = results_url
        self.rows = rows
        self.windows = windows
        self.table = table
        self.key = key
        self.fields = fields
        self.on_failure = on_failure
        self.on_unknown_outcome = on_unknown_outcome
        self.allocation_reserve = allocation_reserve
        self.salesforce_conn_id = salesforce_conn_id
        self.results_conn_id = results_conn_id
        self.landing_conn_id = landing_conn_id
        self.table_conn_id = table_conn_id
        self._reserve = AllocationReserve(allocation_reserve)

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the rows; return their counts and result URLs."""
        with airflow_errors(self):
            _check_topic(self.topic)
            check_choice("on_unknown_outcome", self.on_unknown_outcome, _OUTCOMES)
            return self._publish(context)

    def _publish(self, context: Context) -> dict[str, Any]:
        from airflow_provider_sfstream.actions.publishing import (
            check_source,
            columns_of_fields,
            failed_rows,
            open_ledger,
            result_of,
            rows_to_publish,
        )
        from airflow_provider_sfstream.actions.row_sources import open_source
        from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
        from airflow_provider_sfstream.publishing.publication import Publication
        from airflow_provider_sfstream.publishing.rows import EventIds

        run = run_identity(context)
        ledger = open_ledger(self.results_url, self.results_conn_id, run)
        before = ledger.source()
        source_of_run = open_source(
            self.rows,
            self.windows,
            self.table,
            landing_conn_id=self.landing_conn_id,
            table_conn_id=self.table_conn_id,
            pinned=(before or {}).get("pinned", {}),
        )
        hook = SalesforcePubSubHook(self.salesforce_conn_id)
        with source_of_run as source, hook.get_conn() as client:
            encoder = client.encoder(self.topic)
            fields = columns_of_fields(source, self.fields, self.key, encoder)
            described = {"key": self.key, "pinned": {} if self.key else source.pinned}
            if before is None:
                what = f"{self.topic}: nothing is published"
                least = 1 if source.count is None else source.count
                self._reserve.check(self.salesforce_conn_id, allocation=PUBLISHED_EVENTS, least=least, what=what)
            document = check_source(ledger, before, described, key=self.key)
            recorded = ledger.read(document["trail"])
            ids = EventIds(hook.org_id, self.topic, run.key)
            publication = Publication(
                client, encoder, ids, ledger, recorded, on_unknown_outcome=self.on_unknown_outcome
            )
            publication.run(rows_to_publish(source, fields, self.key))
        ledger.write_trail(recorded.latest)
        result = result_of(publication, self.topic, ledger)
        self.log.info("Published to %s: %s", self.topic, result)
        if publication.summary.failed and self.on_failure == "fail":
            raise failed_rows(publication, self.topic)
        return result


def _check_topic(topic: str) -> None:
    if not topic.startswith("/event/") or Topic.parse(topic).api != "pubsub":
        raise InvalidTopicError(
            f"topic={topic!r} does not accept events. Set the topic of a platform event: /event/Name__e. Nothing "
            "was read."
        )
