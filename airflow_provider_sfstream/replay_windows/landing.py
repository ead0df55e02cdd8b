"""Drain of one window into the landing: data files, then the manifest. No position is read or moved here.

Event times are no evidence for the span of time that a window covers, nor for the time from which its events count:
publishers set them.
"""

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
from airflow_provider_sfstream.replay_windows.positions import ReadablePosition
from airflow_provider_sfstream.salesforce.event_time import TimeReaders
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream, WindowKind
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd, DrainResult
from airflow_provider_sfstream.streams.drain.schemas import StreamSchemas
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import EventSource, StartFrom

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewWindow:
    """Description of a window to drain.

    ``retention`` is the minimum time that Salesforce retains the events, ``known_retention`` the value for the manifest
    (``None``: not known). ``previous`` is the landed window that ended at ``after``, if any; ``previous_window_id``
    names it in the chain of live windows, also if it is missing. ``fence`` is that of the position that a live window
    begins from. ``begins_at`` is the time that ``after`` was chosen to precede, ``published_from`` one before which no
    event after ``after`` was published, ``unbroken_since`` the newest gap or reset of the stream. ``readable`` is
    evidence that the stream was not reset since; a window of a stream that ``is_broken`` covers no time before its
    drain. ``gap`` is an accepted gap before ``after``; ``accepted`` is the accepted loss that ``on_invalid_replay``
    applies.
    """

    stream: Stream
    run: RunIdentity
    window_id: str
    kind: WindowKind
    after: bytes | StartFrom
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
    accepted: Gap | None = None


def land_window(
    new: NewWindow, *, source: EventSource | ConfirmedEnd, catalog: LandingCatalog, now: Callable[[], datetime]
) -> Manifest:
    """Drain ``new`` and return its manifest, or the one that another try of the run wrote first."""
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
        if isinstance(source, ConfirmedEnd):
            result = source.drained(stream.topic, new.after)
        else:
            result = Drain(
                source,
                writer,
                stream.topic,
                new.after,
                new.limits,
                on_invalid_replay=new.on_invalid_replay,
                gap=new.gap,
                loss_reason=None if new.accepted is None else new.accepted.reason,
                position_time=None if previous is None else _known_end(previous),
                event_times=TimeReaders(source.payload_encoding, schemas.get).times,
                now=now,
            ).run()
        schemas.ask_again()
        is_proven = new.readable is None or new.readable.is_read(new.limits.confirm_timeout or new.limits.idle_timeout)
        landed = writer.finish()
    finished_at = now()
    after = new.after if isinstance(new.after, bytes) else None
    covered_from, covered_until = covered_span(new, result, previous) if is_proven else (None, None)
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
        counts_from=counts_from(new, result, previous),
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
            missing_schemas=_missing_schemas(window, stream, landed.without_schema, schemas),
        )
    )


def _late_before(previous: Manifest | None) -> datetime | None:
    """Return the time before which events may be late: after ``previous``, but due for its run; ``None`` if none."""
    if previous is None or previous.stop_reason not in (StopReason.IDLE.value, StopReason.CAUGHT_UP.value):
        return None
    if previous.window.kind == "backfill":  # its run is not one for all events up to its end
        return None
    contact_at = previous.window.contact_at
    if previous.stop_reason == StopReason.CAUGHT_UP.value and contact_at is not None:
        return None  # its end is confirmed for a time, and the events of the next window count from there on
    return contact_at or previous.finished_at


def _known_end(window: ReplayWindow) -> datetime | None:
    """Return the latest known time before which everything up to the window's end had been published."""
    times = [time for time in (window.last_event_time, window.contact_at) if time is not None]
    return window.covered_until or window.covered_from or min(times, default=None)


def _missing_schemas(
    window: ReplayWindow, stream: Stream, without_schema: Mapping[str, int], schemas: StreamSchemas
) -> dict[str, MissingSchema]:
    """Return the schemas of the landed events that were unavailable, and log warnings. JSON may need none."""
    missing = {
        schema_id: MissingSchema(Landing.schema_reference(schema_id) if schema_id else None, schemas.missing[schema_id])
        for schema_id in sorted(without_schema)
        if schema_id in schemas.missing
    }
    for schema_id, schema in missing.items():
        log.warning(
            "%s: %d events landed without their schema %r: %s The event log quarantines them. When the schema is "
            "available, run the event log again with replay_quarantine=True on %s.",
            stream,
            without_schema[schema_id],
            schema_id,
            schema.reason if schema.reason.endswith(".") else f"{schema.reason}.",
            window.manifest_url,
        )
    return missing


def covered_span(
    new: NewWindow, result: DrainResult, previous: ReplayWindow | None
) -> tuple[datetime | None, datetime | None]:
    """Return ``covered_from`` and ``covered_until`` of the window that was drained; see :class:`ReplayWindow`.

    The span ends at the moment for which the end of the stream was confirmed; without confirmation, at the end of the
    span of the window before. It also begins there. From the earliest event it begins at the start of Salesforce's
    retention; after a gap, at the time the gap was detected; from the latest event, at the time its replay ID was
    received. For a replay ID of unknown origin it is not known. The span of a backfill window begins with that of the
    window that it continues.

    :param previous: the window that ended where this one begins, if known. Its times are ignored if they are ahead of
        Salesforce's clock.
    """
    until, contact_at = result.confirmed_at, result.contact_at
    before = None if previous is None or result.gap is not None else previous.covered_until
    if before is not None and (contact_at is None or before <= contact_at):
        until = before if until is None else max(until, before)
    return _begin(new, result, previous), until


def counts_from(new: NewWindow, result: DrainResult, previous: ReplayWindow | None) -> datetime | None:
    """Return the time before which no event of the window counts, ``None`` if it is not known.

    No event of the window was published before the end of what ``previous`` covered: the window that ended where this
    one begins.
    """
    if new.published_from is not None:
        return new.published_from
    if previous is not None:
        contact_at = result.contact_at
        times = [time for time in (previous.counts_from, previous.covered_until) if time is not None]
        return max((time for time in times if contact_at is None or time <= contact_at), default=None)
    # From the earliest event on it is not known: Salesforce may retain events longer than documented.
    return result.began_at if new.after is StartFrom.LATEST else None


def _begin(new: NewWindow, result: DrainResult, previous: ReplayWindow | None) -> datetime | None:
    if result.pinned_at is not None:
        return result.pinned_at
    if result.gap is not None:
        return result.gap.detected_at
    if new.begins_at is not None:
        return new.begins_at
    continued = previous if new.kind == "backfill" else None
    if continued is not None and continued.covered_from is not None:
        return continued.covered_from
    if new.after is StartFrom.EARLIEST or continued is not None:  # without evidence, it began at the earliest event too
        # An event that ages out before the request arrives is not read; the last answer proves that it has arrived.
        if result.contact_at is None:
            return None
        unbroken_since = result.contact_at if new.is_broken else new.unbroken_since
        retained_from = result.contact_at - new.retention
        return retained_from if unbroken_since is None else max(retained_from, unbroken_since)
    if previous is None:
        return None
    # A start at the latest event may be later than the moment for which its end was confirmed.
    return max((time for time in (previous.covered_from, previous.covered_until) if time is not None), default=None)
