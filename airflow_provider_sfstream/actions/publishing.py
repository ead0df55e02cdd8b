"""Publishing task: from its arguments to a publication and its result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.row_sources import RowSource
from airflow_provider_sfstream.actions.storage import open_folder
from airflow_provider_sfstream.exceptions import ConfigurationError, PublishError, SchemaError
from airflow_provider_sfstream.publishing.rows import Row
from airflow_provider_sfstream.salesforce.streams import RunIdentity
from airflow_provider_sfstream.salesforce.topics import slug

if TYPE_CHECKING:
    from airflow_provider_sfstream.publishing.ledger import PublishLedger
    from airflow_provider_sfstream.publishing.publication import Publication
    from airflow_provider_sfstream.salesforce.pubsub.publishing import EventEncoder


def open_ledger(results_url: str, results_conn_id: str | None, run: RunIdentity) -> PublishLedger:
    """Return the ledger of a run, in a folder of its own."""
    from airflow_provider_sfstream.publishing.ledger import PublishLedger

    results = open_folder("results", results_url, results_conn_id)
    name = f"{run.run_after.astimezone(UTC):%Y%m%dT%H%M%SZ}-{run.key[:16]}"
    folder = "/".join((slug(run.dag_id), slug(run.task_id), name))
    return PublishLedger(results.filesystem, f"{results.base}/{folder}", f"{results.url}/{folder}")


def columns_of_fields(
    source: RowSource, fields: Mapping[str, str] | None, key: str | None, encoder: EventEncoder
) -> Mapping[str, str]:
    """Return the column of each field of the events.

    :param fields: as the argument; ``None``: each column is a field of its name, the key only if that field exists.
    :raises ConfigurationError: if a column is not there, or the event has no such field. Nothing was published.
    """
    if fields is None:
        fields = {name: name for name in source.fields if name != key or name in encoder.field_names}
    missing = sorted({*fields.values(), *([] if key is None else [key])}.difference(source.columns))
    if missing and source.columns:
        columns = ", ".join(sorted(source.columns))
        raise ConfigurationError(
            f"The rows lack the columns {', '.join(missing)}. Their columns are {columns}. Nothing was published."
        )
    try:
        encoder.check_names(fields)
    except SchemaError as error:
        raise ConfigurationError(
            f"{error} Set fields={{field: column}} to select the columns. Nothing was published."
        ) from None
    return fields


def rows_to_publish(source: RowSource, fields: Mapping[str, str], key: str | None) -> Iterator[Row]:
    """Yield the rows of a source with the values of fields, identified by the column ``key``, if there is one."""
    for row in source.rows():
        if row.problem is not None:
            yield row
            continue
        values = {field: row.values[column] for field, column in fields.items() if column in row.values}
        if key is None:
            yield replace(row, values=values)
        elif (value := row.values.get(key)) is None:
            yield replace(row, values=values, problem=f"the key, column {key}, is empty")
        else:
            yield Row(f"key {json.dumps(value, default=str)}", values, str(value))


def check_source(
    ledger: PublishLedger, recorded: Mapping[str, Any] | None, described: Mapping[str, Any], *, key: str | None
) -> Mapping[str, Any]:
    """Check that all tries of a run publish the same rows, or identify them by the same key.

    :param recorded: the source of the first try, ``None`` in that.
    :return: the source of the run, with the ``trail`` of the run before.
    :raises ConfigurationError: if they differ from those of the first try.
    """
    if recorded is None:
        recorded = {**described, "trail": ledger.previous_trail()}
        ledger.record_source(recorded)
    if {**recorded, "trail": None} != {**json.loads(json.dumps(described)), "trail": None}:
        raise ConfigurationError(
            f"The rows or their key (now {key!r}) differ from the first try of this run, which "
            f"{ledger.url}/source.json records. The order of the rows does not identify the published ones. This try "
            "published nothing. Publish the rows in a new run, or set a key that identifies rows from the first try on."
        )
    return recorded


def result_of(publication: Publication, topic: str, ledger: PublishLedger) -> dict[str, Any]:
    """Return the JSON-able result of a publication: counts and places, never a value."""
    summary, recorded = asdict(publication.summary), publication.recorded
    del summary["problems"]
    ends = {"first_replay_id": recorded.first, "last_replay_id": recorded.last}
    return {
        "topic": topic,
        **summary,
        **{name: None if event is None else event.replay_id.hex() for name, event in ends.items()},
        "results_url": ledger.url,
        "failures_url": publication.failures_url,
    }


def failed_rows(publication: Publication, topic: str) -> PublishError:
    """Return the error of a task some of whose rows cannot be published, ready to raise."""
    summary = publication.summary
    reasons = ", ".join(f"{count} {name}" for name, count in summary.problems.most_common())
    return PublishError(
        f"{topic}: {summary.failed:,} rows were not published ({reasons}). {summary.published:,} were in this try, "
        f"{summary.already_published:,} before. The rows and the reasons: {publication.failures_url}. Correct them "
        "and clear the task, which publishes the rows that were not accepted; or set on_failure='continue'."
    )
