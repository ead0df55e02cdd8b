"""Write landed replay windows to tables in the worker's own process."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.embedded_job import EmbeddedWindowsOperator
from airflow_provider_sfstream.actions.tables.event_log import EventLogJobOperator


class EventLogOperator(EventLogJobOperator, EmbeddedWindowsOperator):
    """Write landed events to typed tables in the worker's process, for small windows, or without Spark.

    The alternative on Spark is :class:`SparkSubmitEventLogOperator`.

    The same functions write the same tables, one row group after another: columns, quarantine, metrics and the effect
    of a retry are the same, and each operator can continue the other's tables. It needs the extra ``tables``, and
    neither Java nor pyspark. One million change events of a hundred columns needed 389 MiB of memory in addition to the
    worker's. Landed files are copied to the worker's temporary folder.

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty.

    :param max_events: most events of all windows; with more, the task fails before it writes anything. Each event needs
        about 100 bytes of memory.
    :raises ConfigurationError: at construction, if ``max_events`` or a rule for fields is unusable.
    """

    template_fields = (*EmbeddedWindowsOperator.template_fields, *EventLogJobOperator.own_template_fields)
    spark_operator = "SparkSubmitEventLogOperator"
