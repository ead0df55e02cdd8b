"""Write landed events to typed tables with Spark."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.event_log import EventLogJobOperator
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.monitoring.links import ManifestLink, SparkUILink, StreamLink


class SparkSubmitEventLogOperator(EventLogJobOperator, SparkJobOperator):
    """Run the ``event_log`` job with ``spark-submit`` on windows that a drain landed. It needs the extra ``spark``.

    XCom has only manifest URLs, never events. The job is idempotent by window: a retry, a clear or overlapping windows
    change nothing. Tables are Delta tables: jobs of different streams can write to one table concurrently; of two
    concurrent jobs of one stream, one fails with the name of the other, and is retried.

    The XCom result is the job's metrics: ``windows``, ``rows_in``, ``rows_written``, ``duplicates``, ``quarantined``,
    ``outside_interval``, ``tables``, ``decoders``, ``seconds`` and ``application_id`` (of Spark); ``None`` if the
    worker cannot read the metrics of this run at ``{output_url}/_sfstream/metrics/``.

    If the Spark connection does not exist, the job runs on this worker with master ``local[*]``, and a warning.

    :param hash_conn_id: Airflow connection whose password is the key of hashes. A driver that Spark runs on a cluster
        reads the key from ``SFSTREAM_HASH_KEY``, which the cluster sets: omit it there. (templated)
    :param durable: ``False`` here: with ``True``, Airflow remembers a finished driver, and a cleared or backfilled
        task returns without submitting anything.
    """

    template_fields = (*SparkJobOperator.template_fields, *EventLogJobOperator.own_template_fields)
    operator_extra_links = (StreamLink(), ManifestLink(), SparkUILink())
    name_on_spark = "sfstream-event_log"
