"""What the task of a drain tells of its windows beside its result: for its links, and for lineage."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.drain.schema_changes import compared_schemas, schema_change_error
from airflow_provider_sfstream.actions.parts import landed_stream_uri, open_landing
from airflow_provider_sfstream.actions.status import tell_of_drain
from airflow_provider_sfstream.exceptions import EventsLostError
from airflow_provider_sfstream.monitoring.lineage import TellsLineage, collect_lineage
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.drain.outlets import DrainOutlets
    from airflow_provider_sfstream.actions.drain.preparation import Prepared
    from airflow_provider_sfstream.landing.catalog import LandingCatalog
    from airflow_provider_sfstream.landing.manifest import Manifest

log = logging.getLogger(__name__)


class TellsOfDrain(TellsLineage):
    """For the drain operator: tells what it gave, and remembers it for as long as its process lives."""

    topic: str
    landing_url: str
    landing_conn_id: str | None
    accept_quiet_aging: bool
    fail_on: Sequence[str]
    skip_if_empty: bool
    _assets: DrainOutlets
    _windows: Sequence[Manifest] | None = None
    _own_windows: Sequence[Manifest] = ()
    _catalog: LandingCatalog | None = None

    def give(
        self,
        result: dict[str, Any],
        drain: Prepared,
        context: Context,
        given: Sequence[Manifest],
        own: Sequence[Manifest],
        lost: object,
        empty: str,
    ) -> dict[str, Any]:
        """Tell what the run gave, and return its result, unless the task is asked to fail or to skip.

        :param own: the windows that the run drained itself, in this try or one before.
        :param lost: the gap, or the spans that are missing.
        :param empty: what to say of a result without events.
        :raises EventsLostError: something is lost, or may be unless that was accepted, and ``fail_on`` has
            ``"gap"``.
        :raises SchemaChangedError: schemas changed, or could not be compared, and ``fail_on`` has ``"schema_change"``.
        :raises AirflowSkipException: there are no events, and ``skip_if_empty`` is set.
        """
        self.remember(drain, given, own)
        is_uncertain = isinstance(lost, Mapping) and lost.get("uncertain") is True
        changes = result["schema_changes"] = compared_schemas(drain.landed, own)
        new = own if result["drained"] else []
        tell_of_drain(self.stream_uri, context, drain.landed.stream, new, changes or (), result.get("missing", ()))
        self._assets.tell(drain.arguments, result, context)
        if result["drained"]:
            changed = schema_change_error(self.topic, changes) if "schema_change" in self.fail_on else None
            if lost and "gap" in self.fail_on and not (is_uncertain and self.accept_quiet_aging):
                also = "" if changed is None else f" Beside that, {changed.happened}"
                were_lost = "possible loss, nothing is known to be lost," if is_uncertain else "events were lost"
                raise EventsLostError(
                    f"{self.topic}: {were_lost} before this run, which is done: what is there is stored and "
                    f"recorded, with the gap {lost}. Clear the task to go on: it gives its result again and "
                    f"succeeds.{also}"
                )
            if changed is not None:
                raise changed
        if self.skip_if_empty and not result["event_count"] and not lost:
            raise AirflowSkipException(empty)
        return result

    def remember(self, drain: Prepared, given: Sequence[Manifest], own: Sequence[Manifest]) -> None:
        """Keep the windows that the task gave, and tell whoever collects lineage of them.

        :param own: those of them that it landed itself.
        """
        self._windows, self._own_windows, self._catalog = given, own, drain.landed.catalog
        collect_lineage(drain.hook, StreamUri.parse(self.stream_uri), self.window_manifests)

    @property
    def stream_uri(self) -> str:
        """The URI of the landed stream's asset.

        :raises ConfigurationError: if the arguments do not name one.
        """
        return landed_stream_uri(self)

    @property
    def window_manifests(self) -> list[str]:
        """The URLs of the manifests of the windows that the task gave."""
        return [manifest.window.manifest_url for manifest in self._windows or ()]

    def previous_manifest(self) -> Manifest | None:
        """Return the manifest of the window before the first one that the task gave; ``None`` if there is none.

        :raises SalesforceStreamError: if it cannot be read.
        """
        if not self._windows or self._catalog is None:
            return None
        first = self._windows[0]
        previous = first.window.previous_window_id
        return None if previous is None else self._catalog.read_manifest(first.stream, previous)

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the topic as input and the landed stream as output; once there are windows, with what they hold.

        A task that ended without one tells no output.
        """
        from airflow_provider_sfstream.actions.open_lineage import drain_lineage

        windows, own = (self._windows, self._own_windows) if has_ended else (None, ())
        fields = self._event_fields() if windows else {}
        return drain_lineage(StreamUri.parse(self.stream_uri), windows, own, fields, has_ended=has_ended)

    def _event_fields(self) -> dict[str, Any]:
        from airflow_provider_sfstream.actions.open_lineage import event_fields

        # Not the catalog that is there: a listener asks in a fork, which has no threads of its filesystem.
        landing = open_landing(self.landing_url, self.landing_conn_id).landing

        def read_text(url: str) -> str:
            content: bytes = landing.filesystem.cat_file(landing.path_of(url))
            return content.decode()

        try:
            return event_fields(self._own_windows, read_text)
        except Exception as error:  # the rest can be told
            log.info("The schemas of the window cannot be read for its lineage: %s", type(error).__name__)
            return {}
