"""Lineage of tasks, for Airflow's OpenLineage provider and for Airflow's own collector, which other catalogues read."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import hook_lineage_collector
from airflow_provider_sfstream.monitoring.dataset_names import stream_folder
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

log = logging.getLogger(__name__)


class TellsLineage:
    """For operators: the methods that Airflow's OpenLineage provider calls, answered by :meth:`lineage`.

    Nothing is imported before the provider calls them. Errors are logged, never raised.
    """

    @abstractmethod
    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return what the task reads and writes.

        :param has_ended: whether it has been run; it may have failed. Storage may be read then.
        """

    def get_openlineage_facets_on_start(self) -> OperatorLineage | None:
        """Return the lineage that is known before the run; ``None`` after an error."""
        return self._lineage_or_none(has_ended=False)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """Return the lineage of a run that has succeeded or failed; ``None`` after an error."""
        return self._lineage_or_none(has_ended=True)

    def _lineage_or_none(self, *, has_ended: bool) -> OperatorLineage | None:
        try:
            return self.lineage(has_ended=has_ended)
        except Exception as error:  # lineage must not fail the task
            log.warning("The lineage of this task cannot be told: %s (%s)", type(error).__name__, quoted(str(error)))
            return None


def collect_lineage(hook: Any, landed: StreamUri, manifests: Sequence[str]) -> None:
    """Add the topic as input and the folder of the landed stream as output to Airflow's collector.

    Errors are logged, never raised.

    :param hook: that read the topic.
    :param manifests: URLs of the manifests of the landed windows; without one, nothing was written.
    """
    topic = StreamUri(landed.salesforce_conn_id, landed.topic, api=landed.api)
    try:
        collector = hook_lineage_collector()
        collector.add_input_asset(context=hook, uri=str(topic))
        for folder in sorted(set(map(stream_folder, manifests))):
            collector.add_output_asset(context=hook, uri=folder)
    except Exception as error:  # the window is landed
        log.info("The lineage of this drain cannot be collected: %s", type(error).__name__)
