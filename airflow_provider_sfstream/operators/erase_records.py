"""Take a person's records out of a landing, event logs and replicas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, XComArg

from airflow_provider_sfstream.actions.arguments import urls_of
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streams import RunIdentity


class EraseRecordsOperator(RetriedOperator):
    """Erase records permanently from a landing, and from the Delta tables of event logs and replicas.

    The operator searches every window of the object's topic (``/data/ContactChangeEvent``) and of channels of change
    events, and every version of the tables. In the landing an event keeps its row, with an empty payload; in a table
    its row is removed. The chain of windows, positions and counts do not change, checksums are new, and ``erased`` of
    each manifest has the number of its erased events. Older versions of those tables can no longer be read.

    In a replica it removes the rows and all their versions, fetched records, reports of comparisons, metrics of jobs,
    and every snapshot but the newest.

    **Not covered**: PushTopics and platform events, records and events that refer to these records, tables without the
    IDs of their records (refused), and the list in docs/reference/personal-data.md. Later events are not changed: run
    the operator again after the deletion in Salesforce has landed. A backfill within 72 hours, or a refresh, can store
    a record again.

    ``{landing_url}/erasures/{erasure_id}.json`` records the user, the time and a keyed hash of each id;
    ``finished_at`` is null while there are ``unfinished`` folders of windows. Safe to
    retry and to kill at any line; a retry completes the erasure. No drain, prune, or job of these tables may run at the
    same time.

    The XCom result has counts, and no id: ``ids``; for the ``landing`` the numbers of ``events``, ``windows`` and
    ``streams``, of events that this try ``emptied`` or ``shortened`` (events of several records), of new ``files``, of
    remaining ``mentions``, and of ``unfinished`` folders of windows, which are not searched; for each of the
    ``event_logs``, ``rows``, ``tables`` and removed ``files``; for each of the ``replicas``, ``rows`` of the table
    and its history, rows ``listed`` to be fetched, ``quarantined`` events, and removed ``files``.

    :param entity: the object, by its API name in any case: ``Contact``, ``Visit__c``. A person account is an
        ``Account`` and a ``Contact`` with different ids: erase both. (templated)
    :param ids: IDs of the records, 15 or 18 characters each, all of that object, at most 1,000: a list, or a text with
        commas or spaces between. Templates in it are rendered when the task runs, and Airflow neither stores nor shows
        the result. Their source may be visible: the conf of a run, a Variable and an XCom are stored.
    :param landing_url: the landing. (templated)
    :param event_log_urls: the ``output_url`` of every event log, ``[]`` if there is none. (templated)
    :param replica_urls: the ``output_url`` of every replica, ``[]`` if there is none. (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    :param output_conn_id: Airflow connection of those folders' storage, if it needs one. (templated)
    """

    template_fields: Sequence[str] = (
        "entity",
        "landing_url",
        "event_log_urls",
        "replica_urls",
        "landing_conn_id",
        "output_conn_id",
    )
    ui_color = "#f8e5d8"

    def __init__(
        self,
        *,
        entity: str,
        ids: Any,
        landing_url: str,
        event_log_urls: Sequence[str] | str,
        replica_urls: Sequence[str] | str,
        landing_conn_id: str | None = None,
        output_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.ids = ids
        self.landing_url = landing_url
        self.event_log_urls = event_log_urls
        self.replica_urls = replica_urls
        self.landing_conn_id = landing_conn_id
        self.output_conn_id = output_conn_id
        XComArg.apply_upstream_relationship(self, ids)  # as Airflow does for template fields

    def execute(self, context: Context) -> dict[str, Any]:
        """Erase the records; return counts."""
        # Not among the template fields: Airflow would store what they render to, and show it.
        ids = self.render_template(self.ids, context)
        with airflow_errors(self):
            return self._erase(ids.replace(",", " ").split() if isinstance(ids, str) else ids, run_identity(context))

    def _erase(self, ids: Sequence[str], run: RunIdentity) -> dict[str, Any]:
        """Erase records: from the landing, then from event logs and replicas, recorded before and after."""
        from airflow_provider_sfstream.erasure.landing import Erasure, LandingErasure
        from airflow_provider_sfstream.erasure.records import RecordIds
        from airflow_provider_sfstream.erasure.tables import EventLogErasure, ReplicaErasure
        from airflow_provider_sfstream.tables.event_log.tables import find_tables
        from airflow_provider_sfstream.tables.replica.snapshot_store import FOLDER as SNAPSHOTS

        entity, landing_url = self.entity, self.landing_url
        event_log_urls = urls_of("event_log_urls", self.event_log_urls, "erased")
        replica_urls = urls_of("replica_urls", self.replica_urls, "erased")
        if not isinstance(entity, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", entity):
            raise ConfigurationError(
                f"entity={entity!r} must be the name of an object, for example Contact. Nothing was erased."
            )
        if not isinstance(ids, Sequence):
            raise ConfigurationError("ids must be a list of texts. Nothing was erased.")
        records = RecordIds(ids)
        catalog, files = open_landing(landing_url, self.landing_conn_id), ObjectStorageFiles(self.output_conn_id)
        landing = LandingErasure(catalog, entity)
        event_logs = {url: EventLogErasure(files, url, entity, str(run)) for url in event_log_urls}
        replicas = {url: ReplicaErasure(files, url, entity, str(run)) for url in replica_urls}
        if not landing.streams and not replicas and not any(each.tables for each in event_logs.values()):
            raise ConfigurationError(
                f"Neither {landing_url} nor an event log has change events of {entity}. Check entity, landing_url and "
                "event_log_urls. Nothing was erased."
            )
        with_replica = {url for url in event_log_urls if files.file_names(f"{url.rstrip('/')}/{SNAPSHOTS}")}
        with_event_log = {url for url in replica_urls if find_tables(files, url.rstrip("/"))}
        for content, argument, urls, named in (
            ("a replica", "replica_urls", with_replica, replica_urls),
            ("an event log", "event_log_urls", with_event_log, event_log_urls),
        ):
            if missing := sorted({url.rstrip("/") for url in urls} - {url.rstrip("/") for url in named}):
                raise ConfigurationError(
                    f"{', '.join(missing)} also holds {content}, which is not in {argument}. Add it. Nothing was "
                    "erased."
                )
        erasure = Erasure.begin(catalog.landing, run, entity, records.in_full, datetime.now(UTC))
        result: dict[str, Any] = {
            "erasure_id": erasure.erasure_id,
            "entity": entity,
            "ids": len(records),
            "landing": landing.run(records, erasure.erasure_id),
            "event_logs": {url: each.run(records) for url, each in event_logs.items()},
            "replicas": {url: each.run(records) for url, each in replicas.items()},
        }
        erasure.finish(catalog.landing, result, datetime.now(UTC))
        self.log.info("Searched for %d record IDs of %s: %s", len(records), entity, result)
        return result
