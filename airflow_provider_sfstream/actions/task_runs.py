"""Run of a task: its identity, and the other runs that may move the position of its stream."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.salesforce.streams import RunIdentity

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream

log = logging.getLogger(__name__)


def run_identity(context: Context) -> RunIdentity:
    """Return who this task run is. ``run_after`` is the one date that every kind of run has."""
    task_instance: Any = context["ti"]
    return RunIdentity(
        dag_id=task_instance.dag_id,
        task_id=task_instance.task_id,
        run_id=task_instance.run_id,
        run_after=context["dag_run"].run_after,
        map_index=-1 if task_instance.map_index is None else task_instance.map_index,
        try_number=task_instance.try_number,
    )


def warn_of_other_writers(landed: LandedStream, operator: BaseOperator, run: RunIdentity) -> None:
    """Warn where two runs may move one position at a time, if the store cannot see to it that they do not."""
    if landed.store.compares_and_sets:
        return
    dag, position = operator.get_dag(), landed.position()
    own, writer = str(run).partition(" run ")[0], (position.updated_by or "").partition(" run ")[0]
    if dag is not None and dag.max_active_runs != 1 and operator.max_active_tis_per_dag != 1:
        risk = f"{dag.max_active_runs} runs of {dag.dag_id} may be active at a time"
    elif position.window_id is not None and writer != own:
        risk = f"{writer} moved this one too, at {position.updated_at}"
    else:
        return
    log.warning(
        "%s: this replay store cannot detect two writers of a position, and %s. Run one drain of the stream at a time "
        "(max_active_runs=1), or use replay_store='table'.",
        landed.stream,
        risk,
    )
