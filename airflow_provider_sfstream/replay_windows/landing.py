"""Drain one window into the landing: data files, then the manifest. No position is read or moved here."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest, MissingSchema
from airflow_provider_sfstream.landing.parquet import ParquetWindowWriter
from airflow_provider_sfstream.replay_windows.covered_spans import Drained, counts_from, covered_span
from airflow_provider_sfstream.replay_windows.readable_position import ReadablePosition
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind
from airflow_provider_sfstream.streams.drain.drain import drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import SeenEnd
from airflow_provider_sfstream.streams.drain.schemas import StreamSchemas
from airflow_provider_sfstream.streams.event_times import StreamEventTimes, TimeReaders
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewWindow:
    """A window to be drained.

    ``retention`` is how long Salesforce retains the events at least, ``known_retention`` what the manifest records of
    it (``None``: not known). ``previous`` is the landed window that ended at ``start``, where there is one;
    ``previous_window_id`` names it in the chain of live windows, also if it is gone. ``fence`` is that of the position
    that a live window begins from. ``begins_at`` is the time that ``start`` was chosen to precede, ``published_from``
    one before which no event after ``start`` was published, ``unbroken_since`` the newest gap or reset of the stream.
    ``readable`` is evidence that the stream was not reset since; a window of a stream that ``is_broken`` covers nothing
    that was published before it. ``gap`` is one before ``start`` that was accepted.
    """

    stream: Stream
    run: RunIdentity
    window_id: str
    kind: WindowKind
    start: bytes | StartFrom
    limits: DrainLimits
    on_invalid_replay: OnInvalidReplay
    retention: timedelta
    known_retention: timedelta | None = None
    previous: Manifest | None = None
    previous_window_id: str | None = None
    fence: int = 0
    begins_at: datetime | None = None
    published_from: datetime | None = None
    unbroken_since: datetime | None = None
    readable: ReadablePosition | None = None
    is_broken: bool = False
    gap: Gap | None = None


def land_window(
    new: NewWindow, *, source: EventSource | SeenEnd, catalog: LandingCatalog, now: Callable[[], datetime]
) -> Manifest:
    """Drain ``new`` and return its manifest, or the one that another try of the run wrote first.

    :raises SalesforceStreamError: of the drain or the landing. The window does not exist then.
    """
    stream, previous = new.stream, None if new.previous is None else new.previous.window
    schemas = StreamSchemas(source)
    started_at = now()
    attempt = f"{new.run.try_number}-{secrets.token_hex(4)}"
    writing = ParquetWindowWriter(
        catalog.landing,
        stream,
        new.window_id,
        attempt=attempt,
        schema=schemas.get,
        payload_encoding=source.payload_encoding,
    )
    with writing as writer:
        if isinstance(source, SeenEnd):
            result = source.drained(stream.topic, new.start)
        else:
            result = drain(
                source,
                writer,
                stream.topic,
                new.start,
                new.limits,
                on_invalid_replay=new.on_invalid_replay,
                gap=new.gap,
                position_time=None if previous is None else _known_end(previous),
                event_times=StreamEventTimes(TimeReaders(source.payload_encoding, schemas.get)),
                now=now,
            )
        schemas.ask_again()
        is_proven = new.readable is None or new.readable.is_read(new.limits.confirm_timeout or new.limits.idle_timeout)
        landed = writer.finish()
    finished_at = now()
    after = new.start if isinstance(new.start, bytes) else None
    drained = Drained(
        new.start,
        result,
        new.retention,
        new.begins_at,
        new.published_from,
        unbroken_since=result.contact_at if new.is_broken else new.unbroken_since,
    )
    covered_from, covered_until = covered_span(drained, previous) if is_proven else (None, None)
    window = ReplayWindow(
        window_id=new.window_id,
        kind=new.kind,
        after=after,
        through=result.through if result.through is not None else after,
        event_count=result.event_count,
        first_event_time=landed.first_event_time,
        last_event_time=landed.last_event_time,
        manifest_url=catalog.landing.manifest_url(stream, new.window_id),
        run=new.run,
        previous_window_id=new.previous_window_id,
        gap=result.gap,
        covered_from=covered_from,
        covered_until=covered_until,
        contact_at=result.contact_at,
        counts_from=counts_from(drained, previous),
    )
    return catalog.write_manifest(
        Manifest(
            stream=stream,
            window=window,
            fence=new.fence,
            files=landed.files,
            schemas=landed.schemas,
            payload_bytes=result.payload_bytes,
            stop_reason=result.stop_reason.value,
            started_at=started_at,
            finished_at=finished_at,
            provider_version=__version__,
            payload_encoding=source.payload_encoding,
            untimed_events=landed.untimed_events,
            late_before=_late_before(new.previous),
            retention=new.known_retention,
            missing_schemas=_missing(window, stream, landed.without_schema, schemas),
        )
    )


def _late_before(previous: Manifest | None) -> datetime | None:
    """Return the time up to which events may follow the window ``previous`` that its run had to deliver."""
    if previous is None or previous.stop_reason not in (StopReason.IDLE.value, StopReason.CAUGHT_UP.value):
        return None
    contact_at = previous.window.contact_at
    if previous.stop_reason == StopReason.CAUGHT_UP.value and contact_at is not None:
        return None  # its end is confirmed for a time, from which on the events of the next window count
    return contact_at or previous.finished_at


def _known_end(window: ReplayWindow) -> datetime | None:
    """Return a time before which everything up to the window's end had been published, as late as is known."""
    known = [time for time in (window.last_event_time, window.contact_at) if time is not None]
    return window.covered_until or window.covered_from or min(known, default=None)


def _missing(
    window: ReplayWindow, stream: Stream, without_schema: Mapping[str, int], schemas: StreamSchemas
) -> dict[str, MissingSchema]:
    """Return which of the landed events' schemas could not be had, and warn of them. JSON may need none."""
    missing = {
        schema_id: MissingSchema(Landing.schema_reference(schema_id) if schema_id else None, schemas.missing[schema_id])
        for schema_id in sorted(without_schema)
        if schema_id in schemas.missing
    }
    for schema_id, each in missing.items():
        log.warning(
            "%s: %d events landed without their schema %r: %s The event log quarantines them. Once the schema can be "
            "had, run it again with replay_quarantine=True on %s.",
            stream,
            without_schema[schema_id],
            schema_id,
            each.reason if each.reason.endswith(".") else f"{each.reason}.",
            window.manifest_url,
        )
    return missing
