"""Airflow names that only the tests import, from their location in each supported Airflow version."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import airflow.sdk
from airflow.sdk import Variable

if TYPE_CHECKING:
    from airflow._shared.plugins_manager import is_valid_plugin as is_valid_plugin
    from airflow.dag_processing.dagbag import DagBag as DagBag
    from airflow.dag_processing.dagbag import sync_bag_to_db as sync_bag_to_db
    from airflow.sdk import lineage as lineage
    from airflow.sdk.exceptions import AirflowRescheduleException as AirflowRescheduleException
    from airflow.sdk.exceptions import AirflowSensorTimeout as AirflowSensorTimeout
    from airflow.sdk.exceptions import TaskAwaitingInput as TaskAwaitingInput
    from airflow.sdk.exceptions import TaskDeferralError as TaskDeferralError
    from airflow.sdk.exceptions import TaskDeferred as TaskDeferred
    from airflow.serialization.serialized_objects import DagSerialization as DagSerialization
else:
    try:
        from airflow.sdk import lineage
        from airflow.sdk.exceptions import (
            AirflowRescheduleException,
            AirflowSensorTimeout,
            TaskDeferralError,
            TaskDeferred,
        )
    except ImportError:  # Airflow 3.1
        from airflow.exceptions import AirflowRescheduleException, AirflowSensorTimeout, TaskDeferralError, TaskDeferred
        from airflow.lineage import hook as lineage

    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:  # before Airflow 3.3
        TaskAwaitingInput = TaskDeferred

    try:
        from airflow._shared.plugins_manager import is_valid_plugin
    except ImportError:  # Airflow 3.1
        from airflow.plugins_manager import AirflowPlugin

        def is_valid_plugin(plugin):
            plugin.validate()
            return issubclass(plugin, AirflowPlugin)

    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # Airflow 3.1
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

    try:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag, sync_bag_to_db

PARTITIONS = hasattr(airflow.sdk, "CronPartitionTimetable")
"""True if this Airflow version has partitioned DAG runs."""

PARTITION_MAPPERS = hasattr(airflow.sdk, "StartOfHourMapper")
"""True if this Airflow version has the mappers of hours to partitions."""

REPORTS_MISSING_VARIABLES = hasattr(Variable, "keys")
"""True if this Airflow version distinguishes a missing Variable from an unreadable one."""

SHARED_STREAMS = find_spec("airflow.triggers.shared_stream") is not None
"""True if this Airflow version has the shared streams that asset watchers need."""

__all__ = [
    "PARTITIONS",
    "PARTITION_MAPPERS",
    "REPORTS_MISSING_VARIABLES",
    "SHARED_STREAMS",
    "AirflowRescheduleException",
    "AirflowSensorTimeout",
    "DagBag",
    "DagSerialization",
    "TaskAwaitingInput",
    "TaskDeferralError",
    "TaskDeferred",
    "is_valid_plugin",
    "lineage",
    "sync_bag_to_db",
]
