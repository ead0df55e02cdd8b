"""Differences of the supported Airflow versions, 3.1.1 and later. No other module depends on the version.

They are detected by features, never by a version number. The newest name is first, so that a branch for an old Airflow
can be removed with its support.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from airflow.sdk import ObjectStoragePath
    from sqlalchemy.orm import Session

try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralTimeout,
    )
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowOptionalProviderFeatureException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralTimeout,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowOptionalProviderFeatureException",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "MissingExtraError",
    "TaskDeferralTimeout",
    "authorized_connections",
    "await_answer",
    "conf",
    "connection_teams",
    "dag_exists",
    "dag_teams",
    "delete_variable",
    "existing_dags",
    "gauge",
    "get_variable",
    "has_database",
    "hook_lineage_collector",
    "of_team",
    "require_human_in_the_loop",
    "require_shared_streams",
    "set_variable",
    "storage_conn_id",
    "use_database",
    "variable_keys",
]


class MissingExtraError(ConfigurationError, AirflowOptionalProviderFeatureException):
    """A module is missing that an extra of this distribution installs."""


def require_shared_streams() -> None:
    """Check that asset watchers can guarantee delivery: before Airflow 3.3 the triggerer confirms no event to a
    trigger."""
    if find_spec("airflow.triggers.shared_stream") is None:
        raise ConfigurationError(
            "Watching a topic to start DAGs needs Airflow 3.3: an older version does not report to a watcher whether "
            "it has stored an event, so a wake-up could be lost. Nothing was contacted. Schedule the DAG by time, and "
            "set deferrable=True on its drain or use a SalesforceEventSensor; both wait on the triggerer."
        )


def require_human_in_the_loop() -> None:
    """Check that a task can wait for an answer of a user."""
    if find_spec("airflow.providers.standard.operators.hitl") is None:
        raise ConfigurationError(
            'on_invalid_replay="ask" needs the HITLOperator of apache-airflow-providers-standard 1.9 or later. Nothing '
            'was read or moved. Install it, or set "fail": AcceptReplayLossOperator then accepts a loss.'
        )


def await_answer(
    context: Any, *, method_name: str, kwargs: dict[str, Any], timeout: timedelta | None, **question: Any
) -> None:
    """Ask a question and its reason in Airflow's *Required actions*, and leave the worker; the answer resumes the task.

    Airflow 3.3 parks the task, earlier versions defer it to a trigger.

    :param method_name: the method that resumes the task, with ``kwargs`` and the argument ``event``.
    :param timeout: after it the task resumes without an answer; ``None``: never.
    :param question: arguments of Airflow's ``HITLOperator``.
    """
    from airflow.providers.standard.operators.hitl import HITLOperator
    from airflow.sdk import Param

    reason = Param("", type="string", description="Why, for the record.")
    operator: Any = HITLOperator(task_id="question", params={"reason": reason}, **question)
    # Added later, because earlier versions of the operator refuse an empty value when they are constructed.
    operator.params.get_param("reason").schema["minLength"] = 1
    operator.response_timeout = operator.execution_timeout = timeout  # earlier versions have only the latter
    try:
        unwrap(HITLOperator.execute)(operator, context)  # without Airflow's warning of nested operators
    except BaseException as error:
        wait: Any = error
        if hasattr(wait, "method_name"):
            wait.method_name, wait.kwargs = method_name, kwargs
        raise


def gauge(name: str, value: float, tags: dict[str, str]) -> None:
    """Emit a gauge through Airflow."""
    try:
        from airflow.sdk.observability import stats
    except ImportError:  # Airflow 3.1
        from airflow import stats  # type: ignore[no-redef]
    # Airflow 3.1 and 3.2 have the function on a class.
    (stats if hasattr(stats, "gauge") else stats.Stats).gauge(name, value, tags=tags)


def hook_lineage_collector() -> Any:
    """Return Airflow's collector of the lineage of hooks."""
    try:
        from airflow.sdk.lineage import get_hook_lineage_collector
    except ImportError:  # Airflow 3.1
        from airflow.lineage.hook import get_hook_lineage_collector  # type: ignore[import-not-found, no-redef]

    return get_hook_lineage_collector()


def storage_conn_id(path: ObjectStoragePath) -> str | None:
    """Return the Airflow connection of a path's storage; ``None`` without one."""
    if hasattr(path, "conn_id"):
        return path.conn_id
    return path.storage_options.get("conn_id")  # Airflow 3.1


_database: list[bool] = []
"""Not empty after :func:`use_database`."""


def use_database() -> None:
    """Let this process find connections and Variables in Airflow's database, as ``airflow connections`` does."""
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    _database.append(True)


def has_database() -> bool:
    """Return whether :func:`use_database` was called here.

    Airflow's environment variable does not show this: a task inherits it from the scheduler that started it.
    """
    return bool(_database)


def get_variable(key: str) -> str | None:
    """Return the value of a Variable; ``None`` also if it could not be read."""
    value: str | None
    if has_database():
        from airflow.models.variable import Variable as Row

        value = Row.get(key, default_var=None)
    else:
        from airflow.sdk import Variable

        value = Variable.get(key, default=None)
    return value


def set_variable(key: str, value: str, description: str) -> None:
    """Create or replace a Variable in Airflow's database."""
    if has_database():
        from airflow.models.variable import Variable
    else:
        from airflow.sdk import Variable  # type: ignore[assignment]
    Variable.set(key, value, description=description)


def variable_keys(prefix: str) -> list[str] | None:
    """Return the keys of the Variables in Airflow's database that begin with ``prefix``; ``None`` in a task before
    Airflow 3.3.

    Only the list distinguishes a missing Variable from an unreadable one: for one key, the API server of every version
    swallows the errors of its database and answers "not found".
    """
    if has_database():
        from airflow.models.variable import Variable as Row
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            return list(session.scalars(select(Row.key).where(Row.key.startswith(prefix, autoescape=True))))
    from airflow.sdk import Variable

    list_keys = getattr(Variable, "keys", None)
    return None if list_keys is None else list(list_keys(prefix=prefix))


def delete_variable(key: str) -> None:
    """Delete a Variable in Airflow's database."""
    if has_database():
        from airflow.models.variable import Variable
    else:
        from airflow.sdk import Variable  # type: ignore[assignment]
    Variable.delete(key)


def dag_exists(task_instance: Any, dag_id: str) -> bool:
    """Return ``False`` only if Airflow has no DAG with this ID; in a task before Airflow 3.3, always ``True``."""
    get_dag = getattr(task_instance, "get_dag", None)
    if get_dag is None:
        return True
    try:
        get_dag(dag_id)
    except Exception as error:
        detail = getattr(getattr(error, "error", None), "detail", None) or {}
        return detail.get("status_code") != 404
    return True


def existing_dags(dag_ids: Collection[str], session: Session) -> dict[str, bool]:
    """Return those of the DAGs that Airflow has, and whether it allows backfills of them, in the API server.

    Airflow marks a DAG as stale if its file no longer defines it; one whose file cannot be imported counts as existing.
    """
    from airflow.models.dag import DagModel
    from airflow.models.errors import ParseImportError
    from sqlalchemy import and_, or_, select

    same_file = and_(
        ParseImportError.bundle_name == DagModel.bundle_name, ParseImportError.filename == DagModel.relative_fileloc
    )
    is_broken = select(ParseImportError.id).where(same_file).exists()
    query = select(DagModel).where(DagModel.dag_id.in_(dag_ids), or_(~DagModel.is_stale, is_broken))
    return {dag.dag_id: _allows_backfills(dag) for dag in session.scalars(query)}


def _allows_backfills(dag: Any) -> bool:
    run_types = getattr(dag, "allowed_run_types", None)
    has_periods = dag.timetable_summary is not None and dag.asset_expression is None
    is_periodic = getattr(dag, "timetable_periodic", has_periods)  # Airflow 3.1 has neither
    return bool(is_periodic) and (run_types is None or "backfill" in run_types)


def dag_teams(dag_ids: Collection[str], session: Session) -> dict[str, str | None]:
    """Return the team of each DAG, in the API server; empty before Airflow 3.2."""
    from airflow.models.dag import DagModel

    teams = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    return {} if teams is None else teams(list(dag_ids), session=session)


def connection_teams(conn_ids: Collection[str], session: Session) -> dict[str, str | None]:
    """Return the team of each connection, in the API server; empty before Airflow 3.2."""
    from airflow.models import Connection

    teams = getattr(Connection, "get_conn_id_to_team_name_mapping", None)
    return {} if teams is None else teams(list(conn_ids), session=session)


def of_team(team: str | None) -> dict[str, str]:
    """Return the team argument of an auth manager; Airflow 3.1 has neither the argument nor teams."""
    return {} if team is None else {"team_name": team}


def authorized_connections(manager: Any, conn_ids: set[str], user: Any, team: str | None) -> set[str]:
    """Return which of the connections of a team an auth manager lets a user read."""
    if hasattr(manager, "filter_authorized_connections"):
        allowed: set[str] = manager.filter_authorized_connections(conn_ids=conn_ids, user=user, **of_team(team))
        return allowed
    from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

    # The auth manager of Airflow 3.1 has no method for several connections.
    return {
        conn_id
        for conn_id in conn_ids
        if manager.is_authorized_connection(method="GET", details=ConnectionDetails(conn_id=conn_id), user=user)
    }
