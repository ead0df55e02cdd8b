"""Landed windows as Arrow tables, without Spark: decoded, typed, each event once.

For notebooks, tests and your own tasks, with as many events as fit into memory. Decoding, tables and columns are those
of the Spark job ``event_log``.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.windows_argument import WindowsArgument
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.salesforce.topics import Topic

if TYPE_CHECKING:
    import pyarrow as pa


def read_windows(
    windows: Any,
    *,
    landing_conn_id: str | None = None,
    event_time_from: str | None = None,
    event_time_to: str | None = None,
    verify_files: bool = True,
) -> dict[str, pa.Table]:
    """Return the events of landed windows as one Arrow table for each table that ``event_log`` would write.

    ``tables["Order__e"].to_pandas(types_mapper=pandas.ArrowDtype)`` is a data frame; without the argument, pandas
    converts integer columns with nulls to floats. Columns are those of the event log (docs/reference/formats.md):
    the envelope (``_replay_id``, ``_event_time``, ...), the event's own fields with their types, ``event_date`` and
    ``window_id``. Rows are in the order of the windows. An event of several windows is returned once. Events that
    cannot be decoded are in the table ``_quarantine`` with the reason. Needs the extra ``tables``.

    :param windows: the XCom result of a drain, a manifest URL (see :func:`manifest_urls`), or a list of these. The
        result of an interval also limits the event times.
    :param landing_conn_id: Airflow connection of the landing, as given to the drain.
    :param event_time_from: only events at or after this time (ISO 8601 text with time zone).
    :param event_time_to: only events before this time.
    :param verify_files: compare each file with the SHA-256 of its manifest.
    :return: tables by name; a name without events has no table.
    :raises ConfigurationError: an argument cannot be used, or a file differs from its manifest.
    :raises ManifestError: a manifest is missing or broken.
    :raises LandingError: a file cannot be read.
    """
    require_extra("tables")
    from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
    from airflow_provider_sfstream.tables.event_log.job import tables_in_memory
    from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

    argument = WindowsArgument.from_argument(windows, event_time_from, event_time_to)
    config = argument.added_to(EventLogConfig(output_url="", verify_files=verify_files))
    files = ObjectStorageFiles(landing_conn_id)
    with TemporaryDirectory() as folder:
        return tables_in_memory(EmbeddedEngine(files, files, folder), config)


def manifest_urls(
    landing_url: str,
    topic: str,
    *,
    first_day: date,
    last_day: date | None = None,
    subscription: str = "airflow",
    api: Literal["pubsub", "streaming"] | None = None,
    landing_conn_id: str | None = None,
) -> list[str]:
    """Return the manifests of a topic's windows whose runs were due on these days, for :func:`read_windows`.

    :param landing_url: as given to the drain.
    :param topic: as given to the drain, as are ``subscription`` and ``api``. The windows of all orgs are returned.
    :param first_day: first day on which the runs were due, in UTC. A run of an interval is due when the interval ends.
    :param last_day: last day, included. ``None``: today.
    :raises ConfigurationError: if the landing or the topic cannot be used.
    :raises LandingError: if the storage cannot be read.
    """
    parsed = Topic.parse(topic, api)
    catalog = open_landing(landing_url, landing_conn_id)
    return [
        manifest.window.manifest_url
        for stream in catalog.streams_of(parsed.api, parsed.name, subscription)
        for manifest in catalog.windows_between(stream, first_day, last_day or datetime.now(UTC).date())
    ]
