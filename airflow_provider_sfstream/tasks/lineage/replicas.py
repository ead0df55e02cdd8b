"""The lineage of what writes replica tables: landed change events, or records of the org, in; tables out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.protocol.dataset_names import DatasetName, name_of_object, name_of_url
from airflow_provider_sfstream.tasks.lineage.given import given_streams
from airflow_provider_sfstream.tasks.lineage.jobs import only_source
from airflow_provider_sfstream.tasks.lineage.told import Column, Lineage, Told, types_text

if TYPE_CHECKING:
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot, TableState

_COMPOUND = frozenset({"Address", "Location", "PersonName", "SwitchablePersonName", "Switchable_PersonName"})
"""What a change event's schema says of a field that becomes several columns."""


def replica_lineage(
    windows: Any, output_url: str, metrics: Mapping[str, Any] | None, snapshot: Snapshot | None, *, has_ended: bool
) -> Lineage:
    """Return the lineage of a job that applies change events.

    :param snapshot: the replica after it; ``None`` where that is not known, or the job has not told its ``metrics``.
    :raises ConfigurationError: if ``windows`` or the output cannot be used.
    """
    streams = given_streams(windows)
    outputs = []
    for name, counted in sorted((metrics or {}).get("tables", {}).items()):
        table = None if snapshot is None else snapshot.tables.get(name)
        state = None if snapshot is None or table is None else snapshot.streams.get(table.stream)
        source = None if state is None else only_source(streams, state.topic.rpartition("/")[2])
        of_events = [] if table is None else _of_one_field(table)
        outputs.append(_table(output_url, name, table, snapshot, counted["rows"], source, of_events))
    told = [{"window_id": window} for window in (metrics or {}).get("windows", [])]
    return Lineage([stream.told(has_ended=has_ended) for stream in streams], outputs, told)


def refresh_lineage(
    salesforce_conn_id: str,
    output_url: str,
    fetched: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, Any] | None,
    snapshot: Snapshot | None,
) -> Lineage:
    """Return the lineage of a refresh: of each table, its object in the org, whose fields its columns are named after.

    :param fetched: what was fetched by table, with how many ``fetched`` records.
    :raises ConfigurationError: if the output cannot be used.
    """
    inputs, outputs = [], []
    for name, counted in sorted(fetched.items()):
        table = None if snapshot is None else snapshot.tables.get(name)
        record = {} if table is None else {"Id": "string", **table.columns.columns}
        source = name_of_object(salesforce_conn_id, name)
        inputs.append(Told(source, types_text(record), rows=counted["fetched"]))
        rows = (metrics or {}).get("tables", {}).get(name, {}).get("rows")
        outputs.append(_table(output_url, name, table, snapshot, rows, source, list(record)))
    return Lineage(inputs, outputs)


def _table(
    output_url: str,
    name: str,
    table: TableState | None,
    snapshot: Snapshot | None,
    rows: int | None,
    source: DatasetName | None,
    unchanged: Sequence[str],
) -> Told:
    from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE

    columns = {} if table is None else {**TABLE_ENVELOPE, **table.columns.columns}
    return Told(
        name_of_url(f"{output_url.rstrip('/')}/{name}"),
        types_text(columns),
        {} if source is None else {column: [Column(source, column)] for column in unchanged},
        rows=rows,
        version=None if snapshot is None or table is None else str(snapshot.number),
    )


def _of_one_field(table: TableState) -> list[str]:
    """Return the columns that are a field of the change event by themselves, not a part of a compound one."""
    said = {name: text.split(":") for name, text in (table.fields or {}).items()}
    plain = {name for name, parts in said.items() if len(parts) > 1 and parts[1] not in _COMPOUND}
    return [name for name in table.columns.columns if name in plain]
