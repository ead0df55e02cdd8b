"""Result of a drain: what its task reports, returns and fails for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.drain.arguments import Drain, DrainArguments
from airflow_provider_sfstream.actions.status import report_drain
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.exceptions import EventsLostError, SalesforceStreamError, SchemaChangedError
from airflow_provider_sfstream.monitoring.lineage import LineageMixin, collect_lineage
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.manifest import Manifest
    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream

log = logging.getLogger(__name__)

SchemaChanges = list[dict[str, Any]]


class DrainedWindow(TypedDict):
    """XCom result of a drain: its replay window. Replay IDs are hex text, times ISO 8601 text in UTC.

    :param window_id: ID of the window.
    :param manifest_url: URL of its manifest, for the table jobs.
    :param landing_url: URL of the landing.
    :param asset_uri: URI of the landed stream's asset.
    :param stream: ``org_id``, ``api``, ``topic`` and ``subscription``.
    :param kind: ``"live"`` or ``"backfill"``.
    :param after: replay ID after which the window begins; null if the stream began without one.
    :param through: replay ID of the new position; null if the stream has none.
    :param event_count: number of events.
    :param payload_bytes: bytes of their payloads.
    :param first_event_time: smallest event time, as set by publishers; null without events.
    :param last_event_time: greatest event time.
    :param event_hours: hours from the first to the last event time, as partition keys for Airflow in UTC
        (``"2026-11-28T05:00:00"``). They prove no complete hour. Dates after the drain, or more than a week before it,
        are wrong and add no hour; events of unknown time add the hours since the previous window.
    :param stop_reason: reason why the drain ended, for example ``"caught_up"``, ``"idle"`` or ``"max_events"``.
    :param contact_at: time of Salesforce's last response.
    :param confirmed_at: a time for which Salesforce confirmed that the position is the end of the stream, in this drain
        or the last one with a confirmation; null without a confirmation.
    :param gap: the accepted loss, or possible loss, of events before the window; null if none is recorded.
    :param drained: false for the window of an earlier try.
    :param committed: whether the position covers the window; with ``advance="manual"`` false until the commit.
    :param schema_changes: a :class:`ChangedSchema` for each new schema; null if schemas could not be compared.
    :param tables: metrics of the task's own table jobs, ``event_log`` and ``replica``; null for one without events.
    """

    window_id: str
    manifest_url: str
    landing_url: str
    asset_uri: str
    stream: dict[str, str]
    kind: str
    after: str | None
    through: str | None
    event_count: int
    payload_bytes: int
    first_event_time: str | None
    last_event_time: str | None
    event_hours: list[str]
    stop_reason: str
    contact_at: str | None
    confirmed_at: str | None
    gap: dict[str, Any] | None
    drained: bool
    committed: bool
    schema_changes: SchemaChanges | None
    tables: dict[str, Any]


class DrainedInterval(TypedDict):
    """XCom result of a drain in interval mode: the windows that have the events of the interval.

    :param mode: ``"interval"``.
    :param stream: ``org_id``, ``api``, ``topic`` and ``subscription``.
    :param landing_url: URL of the landing.
    :param asset_uri: URI of the landed stream's asset.
    :param event_time_from: start of the interval, inclusive. The table jobs select events by both times.
    :param event_time_to: end of the interval, exclusive.
    :param windows: ``window_id``, ``manifest_url``, ``kind``, ``origin`` (``"landed"`` or ``"bus"``), ``event_count``,
        ``first_event_time`` and ``last_event_time`` of each window. Windows may also have events of other intervals.
    :param event_count: sum over these windows.
    :param event_hours: as in :class:`DrainedWindow`, of these windows; only the hours of the interval, and those of
        late events that this run landed.
    :param confirmed_at: time for which Salesforce confirmed that these are all events; null without a confirmation.
    :param missing: lost spans of the interval, each with ``from`` and ``to``.
    :param drained: false for the recorded result of an earlier try.
    :param schema_changes: a :class:`ChangedSchema` for each new schema; null if schemas could not be compared.
    :param tables: as in :class:`DrainedWindow`.
    """

    mode: str
    stream: dict[str, str]
    landing_url: str
    asset_uri: str
    event_time_from: str
    event_time_to: str
    windows: list[dict[str, Any]]
    event_count: int
    event_hours: list[str]
    confirmed_at: str | None
    missing: list[dict[str, str]]
    drained: bool
    schema_changes: SchemaChanges | None
    tables: dict[str, Any]


class ChangedSchema(TypedDict):
    """Difference between the schema of drained events and the one before. Fields have ``name`` and ``type``.

    :param event: name of the event.
    :param schema_id: ID of the new schema.
    :param before: ID of the former schema.
    :param added: new fields.
    :param removed: removed fields.
    :param retyped: fields with another type: ``name``, ``from`` and ``to``.
    :param became_nullable: fields that may be null now.
    """

    event: str
    schema_id: str
    before: str
    added: list[dict[str, str]]
    removed: list[dict[str, str]]
    retyped: list[dict[str, str]]
    became_nullable: list[dict[str, str]]


@dataclass(frozen=True)
class DrainResult:
    """Result of a drain, with the windows that links and lineage describe.

    :param document: a :class:`DrainedWindow` or a :class:`DrainedInterval`, without ``schema_changes`` and ``tables``.
    :param windows: manifests of the windows in the result.
    :param own_windows: those of them that the run drained, in this try or an earlier one.
    :param empty: message of a task that is skipped because the windows have no events.
    """

    document: dict[str, Any]
    windows: Sequence[Manifest]
    own_windows: Sequence[Manifest]
    catalog: LandingCatalog
    empty: str

    @property
    def manifest_urls(self) -> list[str]:
        """URLs of the manifests of the windows."""
        return [manifest.window.manifest_url for manifest in self.windows]

    def previous_manifest(self) -> Manifest | None:
        """Return the manifest of the window before the first one; ``None`` if there is none."""
        previous = self.windows[0].window.previous_window_id if self.windows else None
        return None if previous is None else self.catalog.read_manifest(self.windows[0].stream, previous)


def _check_fail_on(arguments: DrainArguments, lost: object, changes: SchemaChanges | None) -> None:
    changed = schema_change_error(arguments.topic, changes) if "schema_change" in arguments.fail_on else None
    is_uncertain = isinstance(lost, Mapping) and lost.get("uncertain") is True
    if lost and "gap" in arguments.fail_on and not (is_uncertain and arguments.accept_quiet_aging):
        also = "" if changed is None else f" Beside that, {changed.happened}"
        were_lost = "possible loss, nothing is known to be lost," if is_uncertain else "events were lost"
        raise EventsLostError(
            f"{arguments.topic}: {were_lost} before this run. The run is complete: the retained events are stored and "
            f"recorded, with the gap {lost}. Clear the task to continue: it returns the same result and succeeds.{also}"
        )
    if changed is not None:
        raise changed


def _schema_changes(landed: LandedStream, manifests: Sequence[Manifest]) -> SchemaChanges | None:
    """Log and return the schema changes of landed windows; ``None`` if none is known and not all schemas could be
    compared."""
    from airflow_provider_sfstream.replay_windows.schema_changes import schema_changes

    try:
        changes = schema_changes(landed, manifests)
    except SalesforceStreamError as error:  # the windows are stored and recorded
        log.warning("%s: schema changes could not be determined: %s", landed.stream, error)
        return None
    for change in changes:
        log.warning(
            "%s: a schema changed: %s (%s before, %s now)", landed.stream, change, change.before, change.schema_id
        )
    missing = sorted({schema_id for manifest in manifests for schema_id in manifest.missing_schemas})
    if missing and not changes:
        text = "%s: schema changes could not be determined: events landed without the schemas %s."
        log.warning(text, landed.stream, ", ".join(map(repr, missing)))
        return None
    return [change.document() for change in changes]


def schema_change_error(topic: str, changes: SchemaChanges | None) -> SchemaChangedError | None:
    """Return the error for schemas that changed, or could not be compared; ``None`` if no schema changed."""
    done = "All events are stored. Clear the task to continue: it returns the same result and succeeds."
    if changes is None:
        error = SchemaChangedError(f"{topic}: schema changes could not be determined. {done}")
        error.lost = "Nothing: all events are stored, maybe not with their schemas."
        return error
    if not changes:
        return None
    return SchemaChangedError(f"{topic}: schemas changed ({'; '.join(map(_change_text, changes))}). {done}")


_KINDS = {"added": "added", "removed": "removed", "retyped": "retyped", "became_nullable": "became nullable"}
_MOST_NAMES = 10
"""Fields of a kind that an error names. The result has all."""


def _change_text(change: dict[str, Any]) -> str:
    kinds = (
        f"{len(change[kind])} fields {word}: {_names(change[kind])}" for kind, word in _KINDS.items() if change[kind]
    )
    return f"{change['event']}, {', '.join(kinds)}"


def _names(fields: list[dict[str, str]]) -> str:
    names = [field["name"] for field in fields[:_MOST_NAMES]]
    return " ".join([*names, "..."] if len(fields) > _MOST_NAMES else names)


class DrainOperator(LineageMixin, DrainArguments):
    """Base of the drain operator: reports the result of the task, and stores it for links and lineage."""

    _result: DrainResult | None = None

    def report(self, result: DrainResult, drain: Drain, context: Context) -> dict[str, Any]:
        """Report a drain to lineage, status and assets, run its table jobs, and return the result of the task.

        :raises EventsLostError: events are lost, or may be unless that is accepted, and ``fail_on`` has ``"gap"``.
        :raises SchemaChangedError: schemas changed, or could not be compared, and ``fail_on`` has ``"schema_change"``.
        :raises AirflowSkipException: there are no events, none are lost, and ``skip_if_empty`` is set.
        """
        self._result = result  # the links and the lineage of a task that fails need it too
        asset_uri, stream = result.document["asset_uri"], drain.landed.stream
        collect_lineage(drain.hook, StreamUri.parse(asset_uri), result.manifest_urls)
        changes = _schema_changes(drain.landed, result.own_windows)
        document = {**result.document, "schema_changes": changes}
        drained = result.own_windows if document["drained"] else []
        report_drain(asset_uri, context, stream, drained, changes or (), document.get("missing", ()))
        self._assets.emit(self, document, context)
        lost = document["missing"] if "missing" in document else document["gap"]
        if document["drained"]:
            _check_fail_on(self, lost, changes)
        if self.skip_if_empty and not document["event_count"] and not lost:
            raise AirflowSkipException(result.empty)
        return {**document, "tables": self.run_table_jobs(document, context)}

    @property
    def window_manifests(self) -> list[str]:
        """The URLs of the manifests of the windows in the result."""
        return [] if self._result is None else self._result.manifest_urls

    def previous_manifest(self) -> Manifest | None:
        """Return the manifest of the window before the first one in the result; ``None`` if there is none."""
        return None if self._result is None else self._result.previous_manifest()

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the topic as input; as outputs the landed stream, with the content of the windows in the result, and
        the tables of the task's jobs."""
        from airflow_provider_sfstream.actions.open_lineage import drain_lineage

        windows, own = (self._result.windows, self._result.own_windows) if self._result and has_ended else (None, ())
        fields = self._event_fields(own) if windows else {}
        lineage = drain_lineage(StreamUri.parse(self.stream_uri), windows, own, fields, has_ended=has_ended)
        for job in self.table_jobs:
            tables = job.get_openlineage_facets_on_complete(None)
            lineage.outputs.extend(tables.outputs if tables else ())
        return lineage

    def _event_fields(self, manifests: Sequence[Manifest]) -> dict[str, Any]:
        from airflow_provider_sfstream.actions.open_lineage import event_fields

        # Not the catalog of the result: a listener calls this in a fork, which has no threads of its filesystem.
        landing = open_landing(self.landing_url, self.landing_conn_id).landing

        def read_text(url: str) -> str:
            content: bytes = landing.filesystem.cat_file(landing.path_of(url))
            return content.decode()

        try:
            return event_fields(manifests, read_text)
        except Exception as error:  # the lineage is of use without them
            log.info("The schemas of the window cannot be read for its lineage: %s", type(error).__name__)
            return {}
