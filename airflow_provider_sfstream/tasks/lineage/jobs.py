"""The lineage of the Spark job that writes the event log: landed streams in, a table for each event type out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.protocol.dataset_names import DatasetName, name_of_url
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.tasks.lineage.drains import READ_SECONDS
from airflow_provider_sfstream.tasks.lineage.event_tables import TableContents, event_columns, table_contents
from airflow_provider_sfstream.tasks.lineage.given import GivenStream, given_streams
from airflow_provider_sfstream.tasks.lineage.told import Column, Lineage, Told, types_text

log = logging.getLogger(__name__)

_QUARANTINE = "_quarantine"


@dataclass(frozen=True)
class EventLog:
    """Where a job writes its tables, and how a worker reads them."""

    output_url: str
    output_conn_id: str | None


def event_log_lineage(
    windows: Any, event_log: EventLog, metrics: Mapping[str, Any] | None, *, has_ended: bool
) -> Lineage:
    """Return the lineage of a job; its tables are known once it has told its ``metrics``.

    :raises ConfigurationError: if ``windows`` or the output cannot be used.
    """
    streams = given_streams(windows)
    inputs = [stream.told(has_ended=has_ended) for stream in streams]
    if metrics is None:
        return Lineage(inputs)
    until = time.monotonic() + READ_SECONDS
    counted = {**metrics["tables"], **({_QUARANTINE: metrics["quarantined"]} if metrics["quarantined"] else {})}
    outputs = [
        _table(name, rows, event_log, metrics["windows"], streams, until) for name, rows in sorted(counted.items())
    ]
    return Lineage(inputs, outputs, [{"window_id": window} for window in metrics["windows"]])


def only_source(streams: Sequence[GivenStream], event: str) -> DatasetName | None:
    """Return the stream that rows can have come from: the only one, or the only one of a topic of this event type."""
    of_event = [each for each in streams if each.uri is not None and each.uri.topic.rpartition("/")[2] == event]
    found = streams if len(streams) == 1 else of_event
    return found[0].name if len(found) == 1 else None


def _table(
    name: str, rows: int, event_log: EventLog, windows: Sequence[str], streams: Sequence[GivenStream], until: float
) -> Told:
    url = f"{event_log.output_url.rstrip('/')}/{name}"
    contents = TableContents()
    if time.monotonic() < until:
        try:
            contents = table_contents(url, event_log.output_conn_id, windows)
        except Exception as error:  # the job is Spark's, which may read where the worker may not
            log.info("What is in the table %s cannot be read here: %s", name, quoted(str(error)))
    source = None if name == _QUARANTINE else only_source(streams, name)
    origins = {} if source is None else event_columns(contents.columns)
    return Told(
        name_of_url(url),
        types_text(contents.columns),
        {} if source is None else {column: [Column(source, field)] for column, field in origins.items()},
        rows=rows,
        size=contents.size,
        files=contents.files,
        version=None if contents.version is None else str(contents.version),
    )
