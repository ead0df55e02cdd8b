"""Inputs and outputs of tasks as datasets of OpenLineage.

Imported only when a listener asks: the provider of OpenLineage is optional.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet

from airflow_provider_sfstream.actions.object_storage_files import newest_version
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.windows_argument import flat_windows, manifests_in
from airflow_provider_sfstream.monitoring.datasets import input_dataset, output_dataset
from airflow_provider_sfstream.monitoring.lineage import (
    DatasetName,
    name_of_landed,
    name_of_object,
    name_of_stream,
    name_of_url,
)
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

log = logging.getLogger(__name__)

_READ_SECONDS = 5.0
"""Limit of all reads for one event: the listener stops the method after ten seconds, by default."""
_MOST_WINDOWS = 100
"""Limit of the windows of a drain in one event, which is a single document."""
_WINDOW_FACTS = (
    *("manifest_url", "window_id", "kind", "after", "through", "event_count", "payload_bytes"),
    *("first_event_time", "last_event_time", "covered_from", "covered_until", "stop_reason", "gap"),
)
"""Attributes of a manifest that the run facet repeats."""
_QUARANTINE = "_quarantine"


@attrs.define
class ReplayWindowsRunFacet(RunFacet):
    """The replay windows that a run landed or read."""

    windows: list[dict[str, Any]]


def drain_lineage(
    landed: StreamUri,
    windows: Sequence[Manifest] | None,
    own: Sequence[Manifest],
    fields: Mapping[str, Any],
    *,
    has_ended: bool,
) -> OperatorLineage:
    """Return the lineage of a drain: the topic as input, the landed stream as output.

    The landed stream has the columns of the landing, and the fields of the event, which lie in its payload unchanged.
    A drain that ended without a window has not written to it, so it is no output then.

    :param windows: manifests of the windows that the drain returned; ``None`` before it, and after a failure before it
        had a window.
    :param own: the manifests among them that the drain landed itself.
    :param fields: column type of each field of the events, as far as it is known.
    """
    source = name_of_stream(StreamUri(landed.salesforce_conn_id, landed.topic, api=landed.api))
    target = name_of_stream(landed)
    if windows is None:
        return OperatorLineage([input_dataset(source)], [] if has_ended else [output_dataset(target)])
    from airflow_provider_sfstream.landing.row_groups import SCHEMA

    files = [file for manifest in own for file in manifest.files]
    rows = sum(manifest.window.event_count for manifest in own)
    output = output_dataset(
        target,
        {**{field.name: str(field.type) for field in SCHEMA}, **fields},
        rows=rows,
        size=sum(file.bytes for file in files),
        files=len(files),
        version=own[-1].window.window_id if own else None,
        folder=name_of_landed(windows[0].window.manifest_url) if windows else None,
    )
    size = sum(manifest.payload_bytes for manifest in own)
    facts = [manifest.facts(*_WINDOW_FACTS) for manifest in windows[:_MOST_WINDOWS]]
    return OperatorLineage([input_dataset(source, fields, rows=rows, size=size)], [output], _run_facets(facts))


def event_fields(manifests: Iterable[Manifest], read_text: Callable[[str], str]) -> dict[str, Any]:
    """Return the column type of each field in the Avro schemas of windows; no field if they are of several event types
    or the time for reads is over."""
    from airflow_provider_sfstream.salesforce.schemas import parse
    from airflow_provider_sfstream.tables.decode.avro_columns import members_of

    until = time.monotonic() + _READ_SECONDS
    urls = {schema_id: each.url_of(name) for each in manifests for schema_id, name in each.schemas.items()}
    types: set[str] = set()
    fields: dict[str, Any] = {}
    for url in urls.values():
        if time.monotonic() > until:
            return {}  # a part would look like the whole
        text = read_text(url)
        types.add(str(parse(text)["name"]))
        fields.update((member.name, member.value.type) for member in members_of(text))
    return fields if len(types) == 1 else {}


def event_log_lineage(
    windows: Any, output_url: str, output_conn_id: str | None, metrics: Mapping[str, Any] | None, *, has_ended: bool
) -> OperatorLineage:
    """Return the lineage of an ``event_log`` job: the landed streams as inputs, its tables as outputs.

    :param metrics: of the job; ``None`` while metrics and tables are unknown.
    """
    inputs = _streams(windows, has_ended=has_ended)
    if metrics is None:
        return OperatorLineage(inputs)
    until = time.monotonic() + _READ_SECONDS
    rows = {**metrics["tables"], **({_QUARANTINE: metrics["quarantined"]} if metrics["quarantined"] else {})}
    outputs = []
    for name in sorted(rows):
        url = f"{output_url.rstrip('/')}/{name}"
        contents = _event_table(url, output_conn_id, metrics["windows"]) if time.monotonic() < until else {}
        outputs.append(output_dataset(name_of_url(url), rows=rows[name], **contents))
    return OperatorLineage(inputs, outputs, _run_facets([{"window_id": window} for window in metrics["windows"]]))


def replica_lineage(
    windows: Any, output_url: str, metrics: Mapping[str, Any] | None, snapshot: Snapshot | None, *, has_ended: bool
) -> OperatorLineage:
    """Return the lineage of a job that applies change events: the landed streams as inputs, its tables as outputs.

    :param metrics: of the job; ``None`` while metrics and tables are unknown.
    :param snapshot: the replica after the job; ``None`` where it cannot be read.
    """
    metrics = metrics or {}
    tables = sorted(metrics.get("tables", {}).items())
    return OperatorLineage(
        _streams(windows, has_ended=has_ended),
        [_replica_table(output_url, name, snapshot, merged["rows"]) for name, merged in tables],
        _run_facets([{"window_id": window} for window in metrics.get("windows", [])]),
    )


def refresh_lineage(
    salesforce_conn_id: str,
    output_url: str,
    fetched: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, Any] | None,
    snapshot: Snapshot | None,
) -> OperatorLineage:
    """Return the lineage of a refresh: the objects of the org as inputs, their tables as outputs.

    :param fetched: for each table, the number of ``fetched`` records.
    :param snapshot: the replica after the job; ``None`` where it cannot be read.
    """
    merged = (metrics or {}).get("tables", {})
    inputs, outputs = [], []
    for name, counts in sorted(fetched.items()):
        table = snapshot.tables.get(name) if snapshot else None
        columns = {"Id": "string", **table.columns} if table else {}
        inputs.append(input_dataset(name_of_object(salesforce_conn_id, name), columns, rows=counts["fetched"]))
        outputs.append(_replica_table(output_url, name, snapshot, merged.get(name, {}).get("rows")))
    return OperatorLineage(inputs, outputs)


def _streams(windows: Any, *, has_ended: bool) -> list[InputDataset]:
    """Return the landed streams of windows. Manifest URLs do not name the connection: their stream is the folder."""
    results: dict[DatasetName, list[Mapping[str, Any]]] = {}
    folders: dict[DatasetName, DatasetName] = {}
    for window in flat_windows(windows):
        result = window if isinstance(window, dict) else {}
        folder = next(map(name_of_landed, manifests_in(window, with_empty=True)), None)
        name = name_of_stream(StreamUri.parse(result["asset_uri"])) if result.get("asset_uri") else folder
        if name is None:
            continue
        results.setdefault(name, []).append(result)
        if folder is not None and folder != name:
            folders.setdefault(name, folder)
    return [
        input_dataset(
            name,
            rows=_total(found, "event_count") if has_ended else None,
            size=_total(found, "payload_bytes") if has_ended else None,
            folder=folders.get(name),
        )
        for name, found in results.items()
    ]


def _total(results: Iterable[Mapping[str, Any]], count: str) -> int | None:
    """Return the sum of a count over results; ``None`` if one of them does not have it."""
    counts: list[Any] = [result.get(count) for result in results]
    return None if None in counts else sum(counts)


def _event_table(url: str, conn_id: str | None, windows: Collection[str]) -> dict[str, Any]:
    """Return the facts of the newest version of an event log's table, with the files of ``windows``, as arguments of
    :func:`output_dataset`; nothing where it cannot be read."""
    from airflow_provider_sfstream.tables.delta.column_registry import type_of_spark
    from airflow_provider_sfstream.tables.delta.table_files import window_of
    from airflow_provider_sfstream.tables.quarantine import is_of_replica

    try:
        table = newest_version(storage_path(url, conn_id))
        fields = json.loads(table.schema_json)["fields"] if table.schema_json else []
        partitions = ((window_of(path) or "", file) for path, file in table.files.items())
        # A part of a window is in a partition of its own: the window's id, a dot, and the bounds of its times.
        written = [file for name, file in partitions if name.split(".")[0] in windows and not is_of_replica(name)]
        return {
            "columns": {each["name"]: type_of_spark(each["type"]) for each in fields},
            "size": sum(int(file["size_bytes"]) for file in written),
            "files": len(written),
            "version": str(table.number),
        }
    except Exception as error:  # the job is Spark's, which may read where the worker may not
        log.info("The worker cannot read the table %s: %s", url.rpartition("/")[2], quoted(str(error)))
        return {}


def _replica_table(output_url: str, name: str, snapshot: Snapshot | None, rows: int | None) -> OutputDataset:
    from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE

    dataset = name_of_url(f"{output_url.rstrip('/')}/{name}")
    table = snapshot.tables.get(name) if snapshot else None
    if not snapshot or not table:
        return output_dataset(dataset, rows=rows)
    return output_dataset(dataset, {**TABLE_ENVELOPE, **table.columns}, rows=rows, version=str(snapshot.number))


def _run_facets(windows: list[dict[str, Any]]) -> dict[str, RunFacet]:
    return {"sfstream_windows": ReplayWindowsRunFacet(windows)} if windows else {}
