"""Records of interval runs: immutable JSON documents, so that a repeated run returns the same windows."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from airflow_provider_sfstream.exceptions import LandingError, ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.replaced_files import StoredDocument
from airflow_provider_sfstream.landing.storage import storage_errors, write_once
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span, Stream

log = logging.getLogger(__name__)

Origin = Literal["landed", "bus"]
"""Origin of a window: landed before the run that returns it, or drained from Salesforce by that run."""


@dataclass(frozen=True)
class RecordedWindow:
    """One window that an interval run returned."""

    window_id: str
    manifest_url: str
    origin: Origin


@dataclass(frozen=True)
class IntervalRecord:
    """Result of ``run`` for ``interval``: the windows to read, in order, and the lost parts of the interval.

    ``confirmed_at`` is the moment for which the server confirmed that these are all the events; without it no record is
    written.
    """

    stream: Stream
    run: RunIdentity
    interval: Span
    windows: tuple[RecordedWindow, ...]
    missing: tuple[Span, ...]
    confirmed_at: datetime | None
    created_at: datetime
    provider_version: str

    @property
    def interval_id(self) -> str:
        return interval_id_for(self.run, self.interval)


_REMEDY = (
    "No window and no position was changed. Remove the file and run the task again: the task determines the windows "
    "of the interval again."
)

INTERVAL_DOCUMENT = StoredDocument(
    IntervalRecord,
    format="sfstream-interval",
    version=2,
    noun="interval record",
    remedy=f", or another version of this package wrote it. {_REMEDY}",
)


def interval_id_for(run: RunIdentity, interval: Span) -> str:
    """Return the ID of the result of ``run`` for ``interval``: equal for every try, sorted by the interval's start.

    Two runs never share an ID, nor do two intervals of a run. The time zone does not affect it.
    """
    start, end = interval.start.astimezone(UTC), interval.end.astimezone(UTC)
    identity = "\0".join((run.key, start.isoformat(), end.isoformat()))
    return f"{start:%Y%m%dT%H%M%SZ}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def write_interval(
    catalog: LandingCatalog, record: IntervalRecord, *, replaces: Callable[[IntervalRecord], bool] = lambda _: False
) -> IntervalRecord:
    """Record the result of a run, and return the valid record: ``record``, or that of an earlier try of the run.

    :param replaces: returns whether ``record`` replaces an earlier one.
    :raises LandingError: if it could not be written. No record is written then.
    :raises ManifestError: if the run has a record that cannot be read.
    """
    landing = catalog.landing
    path = landing.interval_path(record.stream, record.interval_id)
    with storage_errors(f"The record of interval {record.interval} of {record.stream} could not be written"):
        written = write_once(landing.filesystem, path, INTERVAL_DOCUMENT.to_json(record).encode())
    if written:
        return record
    existing = read_interval(catalog, record.stream, record.run, record.interval)
    if existing is None:
        raise LandingError(
            f"The record of interval {record.interval} of {record.stream} was removed while this run tried to write "
            "it. Its windows are landed, and no position is affected. Run the task again."
        )
    if replaces(existing):
        what = f"The record of interval {record.interval} of {record.stream}"
        INTERVAL_DOCUMENT.write(landing.filesystem, path, record, what)
        return record
    log.info("The result of %s for %s remains valid; %s returns it too.", existing.run, record.interval, record.run)
    return existing


def read_interval(catalog: LandingCatalog, stream: Stream, run: RunIdentity, interval: Span) -> IntervalRecord | None:
    """Return the record that any try of ``run`` wrote for ``interval`` of ``stream``, ``None`` if there is none.

    Never lists a folder.

    :raises ManifestError: if the record is broken, or belongs to another stream, run or interval.
    :raises LandingError: if the storage could not be read.
    """
    path = catalog.landing.interval_path(stream, interval_id_for(run, interval))
    record = INTERVAL_DOCUMENT.read(catalog.landing.filesystem, path)
    if record is not None and (record.stream, record.run.key, record.interval) != (stream, run.key, interval):
        raise ManifestError(
            f"{path} contains the result of {record.run} for {record.interval} of {record.stream}. The file was copied "
            f"or moved. {_REMEDY}"
        )
    return record
