"""How an operator tells its lineage to the listener of OpenLineage, where there is one."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.redaction import quoted

if TYPE_CHECKING:
    from airflow_provider_sfstream.tasks.lineage.told import Lineage

log = logging.getLogger(__name__)


class TellsLineage:
    """For operators: what Airflow's OpenLineage provider asks them, answered by :meth:`lineage`.

    Nothing happens, and nothing is imported, where nobody asks. What goes wrong is logged, never raised.
    """

    @abstractmethod
    def lineage(self, *, has_ended: bool) -> Lineage:
        """Return what the task reads and writes.

        :param has_ended: whether it has been run; it may have failed. Storage may be read then.
        """

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the lineage that is known beforehand; ``None`` where it cannot be told."""
        return self._told(has_ended=False)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage of a run that has succeeded or failed; ``None`` where it cannot be told."""
        return self._told(has_ended=True)

    def _told(self, *, has_ended: bool) -> Any:
        try:
            from airflow_provider_sfstream.tasks.lineage.facets import operator_lineage

            return operator_lineage(self.lineage(has_ended=has_ended))
        except Exception as error:  # whatever it is: the task's own work is done, or yet to be done
            log.warning("The lineage of this task cannot be told: %s (%s)", type(error).__name__, quoted(str(error)))
            return None
