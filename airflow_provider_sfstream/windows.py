"""Landed windows as Arrow tables, without Spark: decoded, typed, each event once.

For notebooks, tests and tasks of your own, on as many events as fit into memory. It is the decoding of the Spark job
``event_log``, and its tables and columns.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.protocol.topics import Topic
from airflow_provider_sfstream.tasks.landed import Landed
from airflow_provider_sfstream.tasks.parts import open_landing, time_from_text
from airflow_provider_sfstream.tasks.storage import storage_path

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

    ``tables["Order__e"].to_pandas()`` is a data frame. Columns are those of the event log (docs/reference/formats.md):
    the envelope (``_replay_id``, ``_event_time``, ...), the event's own fields with their types, ``event_date`` and
    ``window_id``. Rows are in the order of the windows, an event that is in several of them is there once, and what
    cannot be decoded is in the table ``_quarantine`` with its reason.

    :param windows: the XCom result of a drain, a manifest URL (see :func:`manifest_urls`), or a list of these. The
        result of an interval bounds the events by itself.
    :param landing_conn_id: Airflow connection of the landing, as given to the drain.
    :param event_time_from: only events at or after this time (ISO 8601 text with time zone).
    :param event_time_to: only events before this time.
    :param verify_files: compare each file with the SHA-256 of its manifest.
    :return: tables by name; none for a name without events.
    :raises ConfigurationError: an argument cannot be used, or a file is not what its manifest says.
    :raises ManifestError: a manifest is missing or broken.
    :raises LandingError: a file cannot be read.
    """
    from airflow_provider_sfstream.spark.event_log.in_memory import decoded_tables, landed_rows
    from airflow_provider_sfstream.spark.event_log.table_plans import read_schemas
    from airflow_provider_sfstream.spark.rows.event_batches import WindowReference
    from airflow_provider_sfstream.spark.storage.landed_windows import read_windows as windows_of

    landed = Landed.of(windows, event_time_from, event_time_to)
    files = _Files(landing_conn_id)
    found = [window for window in windows_of(files, landed.manifests) if window.files]
    references = tuple(
        WindowReference(
            window.window_id,
            window.org_id,
            window.topic,
            _microseconds(window.covered_from),
            window.window_id in landed.whole_windows,
        )
        for window in found
    )
    batches = [
        landed_rows(files.table(url, sum_ if verify_files else None), window, number)
        for number, window in enumerate(found)
        for url, sum_ in zip(window.files, window.sums, strict=True)
    ]
    bounds = (_parsed("event_time_from", landed.event_time_from), _parsed("event_time_to", landed.event_time_to))
    return decoded_tables(batches, references, read_schemas(files, found), bounds)


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
    :param topic: as given to the drain, as are ``subscription`` and ``api``. Of several orgs, all are returned.
    :param first_day: of the runs, in UTC. A run of an interval is due when that has ended.
    :param last_day: included. ``None``: today.
    :raises ConfigurationError: if the landing or the topic cannot be used.
    :raises LandingError: if the storage cannot be read.
    """
    wanted = Topic.parse(topic, api)
    catalog = open_landing(landing_url, landing_conn_id)
    return [
        manifest.window.manifest_url
        for stream in catalog.streams_of(wanted.api, wanted.name, subscription)
        for manifest in catalog.windows_between(stream, first_day, last_day or datetime.now(UTC).date())
    ]


class _Files:
    """The files of a landing, through Airflow's object storage."""

    def __init__(self, conn_id: str | None) -> None:
        self._conn_id = conn_id

    def url(self, url: str) -> str:
        return url

    def read_text(self, url: str) -> str:
        return self._read(url).decode()

    def table(self, url: str, sha256: str | None) -> pa.Table:
        """Return the rows of a file, compared with its checksum if there is one."""
        import pyarrow.parquet as pq

        content = self._read(url)
        found = hashlib.sha256(content).hexdigest()
        if sha256 is not None and found != sha256:
            raise ConfigurationError(
                f"{url} is not what its window's manifest says: its SHA-256 is {found}. It was changed after it "
                "landed, or damaged. Restore it, or drain the interval again while Salesforce has its events. Nothing "
                "was read."
            )
        return pq.read_table(BytesIO(content))

    def _read(self, url: str) -> bytes:
        try:
            return bytes(storage_path(url, self._conn_id).read_bytes())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LandingError(f"{url} cannot be read: {error}. Nothing was read.") from error


def _parsed(argument: str, text: str | None) -> int | None:
    return _microseconds(time_from_text(argument, text))


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
