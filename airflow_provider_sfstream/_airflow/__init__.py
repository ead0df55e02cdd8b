"""Differences of the supported Airflow versions, 3.1.1 and later, and uses of Airflow's internals. No other module
depends on either.

Differences are detected by features, never by a version number. The newest name is first, so that a branch for an old
Airflow can be removed with its support.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import ObjectStoragePath

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

__all__ = [  # the imported names that other modules import from here
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "TaskDeferralTimeout",
    "conf",
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
        execute_within(operator, context)
    except BaseException as error:
        wait: Any = error
        if hasattr(wait, "method_name"):
            wait.method_name, wait.kwargs = method_name, kwargs
        raise


def execute_within(operator: Any, context: Any) -> Any:
    """Execute an operator in the task of another one, without Airflow's warning of nested operators."""
    return unwrap(type(operator).execute)(operator, context)


def gauge(name: str, value: float, tags: dict[str, str]) -> None:
    """Emit a gauge through Airflow."""
    try:
        from airflow.sdk.observability import stats
    except ImportError:  # Airflow 3.1
        from airflow import stats  # type: ignore[no-redef]
    # Airflow 3.1 and 3.2 have the function on a class.
    (stats if hasattr(stats, "gauge") else stats.Stats).gauge(name, value, tags=tags)


def sends_lineage() -> bool:
    """Return whether Airflow's OpenLineage provider is installed and sends events."""
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    return not is_disabled()


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


def _variables() -> Any:
    """Return Airflow's class of Variables, with the methods that its two versions share."""
    if has_database():
        from airflow_provider_sfstream._airflow.database import Variable
    else:
        from airflow.sdk import Variable  # type: ignore[assignment]
    return Variable


def get_variable(key: str) -> str | None:
    """Return the value of a Variable; ``None`` also if it could not be read."""
    value: str | None = _variables().get(key, **{"default_var" if has_database() else "default": None})
    return value


def set_variable(key: str, value: str, description: str) -> None:
    """Create or replace a Variable in Airflow's database."""
    _variables().set(key, value, description=description)


def delete_variable(key: str) -> None:
    """Delete a Variable in Airflow's database."""
    _variables().delete(key)


def variable_keys(prefix: str) -> list[str] | None:
    """Return the keys of the Variables in Airflow's database that begin with ``prefix``; ``None`` in a task before
    Airflow 3.3.

    Only the list distinguishes a missing Variable from an unreadable one: for one key, the API server of every version
    swallows the errors of its database and answers "not found".
    """
    if has_database():
        from sqlalchemy import select

        from airflow_provider_sfstream._airflow.database import Variable as Row
        from airflow_provider_sfstream._airflow.database import create_session

        with create_session() as session:
            return list(session.scalars(select(Row.key).where(Row.key.startswith(prefix, autoescape=True))))
    from airflow.sdk import Variable

    list_keys = getattr(Variable, "keys", None)
    return None if list_keys is None else list(list_keys(prefix=prefix))


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
