"""Erasure of a person's records: from the landing, then from event logs and replicas, recorded before and after."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streams import RunIdentity

log = logging.getLogger(__name__)


def erase_records(
    entity: str,
    ids: Sequence[str],
    *,
    landing_url: str,
    landing_conn_id: str | None,
    event_log_urls: Sequence[str],
    replica_urls: Sequence[str],
    output_conn_id: str | None,
    run: RunIdentity,
) -> dict[str, Any]:
    """Erase records; return counts, and where the record of it is. The arguments are those of the operator."""
    from airflow_provider_sfstream.landing.landing_erasure import Erasure, erase_from_streams, streams_to_search
    from airflow_provider_sfstream.privacy.record_ids import RecordIds
    from airflow_provider_sfstream.tables.erasure.event_log_and_replica import EventLogErasure, ReplicaErasure
    from airflow_provider_sfstream.tables.replica.snapshot_store import FOLDER as SNAPSHOTS

    if not isinstance(entity, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,79}", entity):
        raise ConfigurationError(
            f"entity={entity!r} must be the name of an object, for example Contact. Nothing was erased."
        )
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        raise ConfigurationError("ids must be a list of texts. Nothing was erased.")
    records = RecordIds(ids)
    catalog, files = open_landing(landing_url, landing_conn_id), ObjectStorageFiles(output_conn_id)
    streams = streams_to_search(catalog, entity)
    event_logs = {url: EventLogErasure(files, url, entity, str(run)) for url in event_log_urls}
    replicas = {url: ReplicaErasure(files, url, entity, str(run)) for url in replica_urls}
    if not streams and not replicas and not any(each.tables for each in event_logs.values()):
        raise ConfigurationError(
            f"Neither {landing_url} nor an event log has change events of {entity}. Check entity, landing_url and "
            "event_log_urls. Nothing was erased."
        )
    with_replica = [url for url in event_log_urls if files.file_names(f"{url.rstrip('/')}/{SNAPSHOTS}")]
    missing = sorted({url.rstrip("/") for url in with_replica} - {url.rstrip("/") for url in replica_urls})
    if missing:
        raise ConfigurationError(
            f"{', '.join(missing)} also holds a replica, which is not in replica_urls. Add it. Nothing was erased."
        )
    erasure = Erasure.begin(catalog.landing, run, entity, records.in_full, datetime.now(UTC))
    result: dict[str, Any] = {
        "erasure_id": erasure.erasure_id,
        "entity": entity,
        "ids": len(records),
        "landing": erase_from_streams(catalog, streams, records, erasure.erasure_id),
        "event_logs": {url: each.run(records) for url, each in event_logs.items()},
        "replicas": {url: each.run(records) for url, each in replicas.items()},
    }
    erasure.finish(catalog.landing, result, datetime.now(UTC))
    log.info("Erased %d records of %s: %s", len(records), entity, result)
    return result
