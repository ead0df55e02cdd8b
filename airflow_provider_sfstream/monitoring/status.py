"""Status documents, which tasks write about streams and tables for users; bounded in size.

They do not control any task: positions, windows and gaps are recorded elsewhere, and a status may be outdated.

Certainty of the facts in them:

- *proven*: Salesforce showed it in a response, and the time is Salesforce's.
- *estimated*: a publisher, the worker's clock or a documented minimum suggests it.
- *unknown*: nothing shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import unquote, urlsplit

from airflow_provider_sfstream.landing.documents import to_document
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.stream_uris import SCHEME
from airflow_provider_sfstream.salesforce.streams import Gap, RunIdentity, Stream
from airflow_provider_sfstream.salesforce.topics import SHORT_RETENTION, retention_by_kind

Certainty: TypeAlias = Literal["proven", "estimated", "unknown"]
CERTAINTIES: tuple[str, ...] = get_args(Certainty)

FACTS = ("confirmed_at", "contact_at", "last_event_time", "retention")
"""Facts of the section ``drain`` that have a certainty."""


def certainty_of(drain: Mapping[str, Any]) -> dict[str, Certainty]:
    """Return the certainty of each of :data:`FACTS` in the section ``drain`` of a status.

    A section of an earlier version without certainties has estimates: its end of the stream was an empty response of
    the drain's own subscription, and its times are of the worker's clock.
    """
    recorded: Mapping[str, Any] = drain.get("certainty") or {}
    certainties: dict[str, Certainty] = {}
    for fact in FACTS:
        certainty: Any = "unknown" if drain.get(fact) is None else recorded.get(fact, "estimated")
        if certainty not in CERTAINTIES:
            raise ValueError(f"certainty={certainty!r} of {fact} must be one of {', '.join(CERTAINTIES)}.")
        certainties[fact] = certainty
    return certainties


Document: TypeAlias = dict[str, Any]
"""A JSON object. Times are ISO 8601 text with a time zone, sizes bytes, durations seconds."""
WINDOWS = 200
"""Maximum number of listed windows of a stream; the newest are listed."""
GAPS = 20
"""Maximum number of listed gaps of a stream, and of changes of its schemas; the newest are listed."""
_PARTS = 1_000
"""Maximum number of listed windows with quarantined rows; the newest are listed."""
HOURS = 72
"""Number of hours with a count of events for each."""


@dataclass(frozen=True)
class Status:
    """The last status that one kind of task wrote about its subject.

    :param subject: the URI of a landed stream (:class:`~airflow_provider_sfstream.salesforce.stream_uris.StreamUri`),
        the URL of the folder of a replica's tables, or the Airflow connection of an allocation.
    :param section: the kind of task: ``drain``, ``windows``, ``wait``, ``replica``, ``refresh``, ``tables``,
        ``failed.`` with the task, ``event_log.`` with the folder of its tables, or ``allocation.`` with its name.
    """

    subject: str
    section: str
    document: Document


def subject_key(subject: str) -> str:
    """Return the short key of a subject (32 hex digits)."""
    return hashlib.sha256(subject.encode()).hexdigest()[:32]


def failed_section(task: Mapping[str, Any]) -> str:
    """Return the section of a task's last failure, which the failure of another task does not replace."""
    return f"failed.{subject_key('{dag_id}/{task_id}/{map_index}'.format_map(task))[:16]}"


@lru_cache(maxsize=10_000)
def connection_of(subject: str) -> str | None:
    """Return the Salesforce connection of a subject; ``None`` for a folder of tables."""
    parts = urlsplit(subject)
    return unquote(parts.netloc) if parts.scheme == SCHEME else None


def task_document(run: RunIdentity) -> Document:
    """Return the identifiers of a task run, with the names of Airflow's API."""
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "task_id": run.task_id,
        "map_index": run.map_index,
        "try_number": run.try_number,
    }


def drain_document(
    before: Mapping[str, Any] | None,
    stream: Stream,
    drained: Sequence[Manifest],
    *,
    run: RunIdentity,
    at: datetime,
    schema_changes: Iterable[Mapping[str, Any]] = (),
    missing: Iterable[Mapping[str, str]] = (),
) -> Document:
    """Return the section ``drain`` after a drain.

    ``at`` is the time of the last successful task, ``drained_at`` that of the last one with facts of the stream: not of
    one that returned earlier windows, nor of a backfill beside live windows.

    :param drained: the windows that this task run drained; none if it returned windows that were landed before.
    :param schema_changes: reported changes of the schemas of these windows.
    """
    document = {"hours": {}, "gaps": [], "schema_changes": [], **(before or {})}
    if stream.api == "streaming":  # this API confirms no end; an earlier version may have recorded one
        document.pop("confirmed_at", None)
    certainty: dict[str, Certainty] = {
        fact: value for fact, value in certainty_of(document).items() if value != "unknown"
    }
    listed_gaps = {gap["detected_at"] for gap in document["gaps"]}
    for manifest in drained:
        window = manifest.window
        if window.kind == "live" and "window" not in document:  # it reads the events of the backfill windows again
            document = {name: value for name, value in document.items() if name not in _OF_BACKFILLS} | {"hours": {}}
        if window.gap is not None and window.gap.detected_at.isoformat() not in listed_gaps:
            since = _lost_since(document, window.gap)
            document["gaps"].append({**to_document(window.gap), "since": since, "task": task_document(window.run)})
        if window.kind == "live":
            events, (facts, fact_certainty) = window.event_count, _live(manifest)
        elif "window" not in document:
            events, (facts, fact_certainty) = _backfilled(document, manifest)
        else:  # its events are in live windows too, and its facts do not show how far the live windows are
            continue
        hour = f"{manifest.finished_at:%Y-%m-%dT%H}"
        document["hours"] = {**document["hours"], hour: document["hours"].get(hour, 0) + events}
        document |= {**facts, "drained_at": at.isoformat()}
        certainty |= fact_certainty
    # Otherwise a run that only returns earlier windows would list their changes a second time.
    changes = [{**change, "at": at.isoformat()} for change in schema_changes] if drained else []
    oldest = f"{at - timedelta(hours=HOURS):%Y-%m-%dT%H}"
    retention = _retention(document, drained, stream)
    has_recorded_retention = any(manifest.retention is not None for manifest in drained)
    if has_recorded_retention or retention_by_kind(stream.topic) is not None:
        certainty["retention"] = "proven"
    document |= {
        "stream": dict(vars(stream)),
        "retention": retention.total_seconds(),
        "hours": {hour: count for hour, count in document["hours"].items() if hour > oldest},
        "gaps": document["gaps"][-GAPS:],
        "schema_changes": [*document["schema_changes"], *changes][-GAPS:],
        "missing": list(missing),
        "since": document.get("since", at.isoformat()),
        "at": at.isoformat(),
        "task": task_document(run),
    }
    return document | {"certainty": certainty_of({**document, "certainty": certainty})}


def _retention(document: Document, drained: Sequence[Manifest], stream: Stream) -> timedelta:
    """Return the retention of the newest window, of the topic's kind or of the previous section; 24 hours otherwise."""
    recorded = [manifest.retention for manifest in drained if manifest.retention is not None]
    if recorded:
        return recorded[-1]
    by_kind = retention_by_kind(stream.topic)
    return by_kind or timedelta(seconds=document.get("retention", SHORT_RETENTION.total_seconds()))


def windows_document(before: Mapping[str, Any] | None, drained: Iterable[Manifest]) -> Document:
    """Return the section ``windows`` after a drain, the newest last."""
    lines = {line["window_id"]: line for line in (before or {}).get("windows", ())}
    for manifest in drained:
        lines[manifest.window.window_id] = window_line(manifest)
    return {"windows": sorted(lines.values(), key=lambda line: str(line["finished_at"]))[-WINDOWS:]}


def event_log_document(
    before: Mapping[str, Any] | None, facts: Mapping[str, Any], interval: Sequence[str] | None = None
) -> Document:
    """Return the section of an event log after a run of its job.

    ``set_aside`` has the quarantined rows of runs, and the parts of their windows that no later run has processed
    without a quarantined row; ``None`` if there is none. A run whose metrics could not be read changes nothing.

    :param interval: bounds of the event times that the run processed: another run does not process the same part.
    """
    last: Mapping[str, Any] = (before or {}).get("set_aside") or {}
    rows = facts.get("quarantined")
    if rows is None:
        return {**facts, "set_aside": dict(last) or None}
    parts = ["/".join((window, *(interval or ()))) for window in facts["windows"]]
    remaining = [part for part in last.get("parts", ()) if part not in parts]
    if not rows:
        return {**facts, "set_aside": {**last, "parts": remaining} if remaining else None}
    rows += last["rows"] if remaining else 0
    parts = [*remaining, *parts][-_PARTS:]
    return {**facts, "set_aside": {"rows": rows, "parts": parts, "at": facts["at"], "task": facts["task"]}}


_LISTED = (
    *("window_id", "kind", "started_at", "finished_at", "covered_from", "covered_until", "contact_at"),
    *("first_event_time", "last_event_time", "event_count", "payload_bytes", "stop_reason", "gap", "manifest_url"),
)


def window_line(manifest: Manifest) -> Document:
    """Return the listed facts of a window."""
    facts = manifest.facts(*_LISTED)
    return {**facts, "gap": facts["gap"] is not None, "task": task_document(manifest.window.run)}


def _live(manifest: Manifest) -> tuple[Document, dict[str, Certainty]]:
    """Return the facts of a stream after a live window, and their certainty."""
    window = manifest.window
    facts, certainty = _read(manifest)
    facts["window"] = window_line(manifest)
    if window.through is not None:
        facts["position"] = window.through.hex()
    if window.covered_until is not None:
        facts["confirmed_at"], certainty["confirmed_at"] = window.covered_until.isoformat(), "proven"
    return facts, certainty


def _backfilled(document: Document, manifest: Manifest) -> tuple[int, tuple[Document, dict[str, Certainty]]]:
    """Return the number of events that a backfill window adds to those counted, the facts, and their certainty.

    Of two windows with the same start or the same end, one contains the other.
    """
    window, counted = manifest.window, document.get("backfilled", [])
    after, through = map(replay_id_to_text, (window.after, window.through))
    known = max((count for start, end, count in counted if start == after or end == through), default=0)
    facts, certainty = _read(manifest)
    facts["backfilled"] = [*counted, [after, through, window.event_count]][-WINDOWS:]
    latest = document.get("last_event_time")
    if latest is not None and window.last_event_time is not None:
        facts["last_event_time"] = max(window.last_event_time, datetime.fromisoformat(latest)).isoformat()
    return max(window.event_count - known, 0), (facts, certainty)


_OF_BACKFILLS = ("backfilled", "last_event_time", "contact_at")
"""Facts of backfill windows, which the first live window replaces."""


def _read(manifest: Manifest) -> tuple[Document, dict[str, Certainty]]:
    """Return the facts of any window, and their certainty."""
    window = manifest.window
    # A finished drain had contact. If Salesforce's time could not be measured, use the worker's clock.
    facts: Document = {"contact_at": (window.contact_at or manifest.finished_at).isoformat()}
    certainty: dict[str, Certainty] = {"contact_at": "estimated" if window.contact_at is None else "proven"}
    if window.last_event_time is not None:
        facts["last_event_time"], certainty["last_event_time"] = window.last_event_time.isoformat(), "estimated"
    return facts, certainty


def _lost_since(document: Document, gap: Gap) -> str | None:
    """Return the time since which events may be lost, for display: that of the last stored event, or of the gap.

    A gap begins at a proven time, which may precede the last stored event by days.
    """
    since, event = gap.since, document.get("last_event_time")
    if gap.after is not None and event is not None:
        stored = min(datetime.fromisoformat(event), datetime.fromisoformat(document["contact_at"]))
        since = stored if since is None else min(max(since, stored), gap.detected_at)
    return None if since is None else since.isoformat()


def gap_loss(gap: Gap) -> str:
    """Return the loss of a gap in words."""
    return "possible, nothing is known to be lost" if gap.uncertain else "events were lost"
