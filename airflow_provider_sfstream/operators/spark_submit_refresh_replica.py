"""Fetch records of the org and merge them into a replica with Spark, or compare them with it."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.refresh import RefreshJobOperator
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator


class SparkSubmitRefreshReplicaOperator(RefreshJobOperator, SparkJobOperator):
    """Fetch records of a replica's org, and merge them with the ``replica`` job, or compare them with the tables.

    ``scope="dirty"`` fetches data that events lack: dirty rows by id, through the REST API; all records of a flagged
    table (``new``, ``overflow``, ``gap``...), through the Bulk API if there are many; for the flag ``schema`` the
    columns that it names. Deleted records of the recycle bin are included; a row whose record the org no longer has is
    deleted. A row with an event during the fetch stays dirty for the next refresh (docs/replica-refresh.md). Fields
    that no event carries, such as formulas and roll-up summaries, are fetched with each record.

    ``scope="all"`` fetches all records of all tables in the same way, flagged or not.

    ``scope="computed"`` fetches, of all records, ``Id`` and the fields that no event carries, and merges the values
    that differ. Formula fields and roll-up summaries change without an event and without ``SystemModstamp``: when a
    parent record changes, a child, or the day. These fields are those of describe that the schema of the change events
    lacks; a table gets a column for each. Other columns of a row, and its dirty state, do not change. A column becomes
    null if its field was deleted or is hidden from the user. The replica's snapshot names the columns and the time of
    the comparison (``computed``: ``columns``, ``compared_at``).

    ``scope="all"`` with ``verify=True`` fetches all records with the columns that events carry, and compares them with
    the tables, value by value: it proves that table and object are equal in these columns, or reports the differences.
    It merges no value. Each record is ``equal``, or

    - ``different``: its row has another value, or only one of them is deleted;
    - ``missing``: it has no row; ``gone``: the org has no record for a row, not even in its recycle bin;
    - ``changed_since``: it was changed after the last change that the table has, or while records were fetched;
    - ``dirty``: the replica has marked the row to be fetched.

    Rows that are different, missing or gone become dirty (``differs``), so that the next refresh fetches them. The
    report, ``report`` below the output folder, has the counts for each range of ids. Reports are kept until records of
    the object are erased.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry fetches everything again.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``records``, ``columns``, ``full``,
    ``computed`` or ``compare``), the numbers of ``fetched`` records and of ``deleted`` ones, the ``seconds`` to fetch
    them, and by scope

    - ``"dirty"`` and ``"all"``: rows ``still_dirty`` and the remaining ``flag``;
    - ``"computed"``: the number of rows that ``differed``;
    - ``verify=True``: the ``flag``, ``records`` of each kind, ``as_of`` (the time of the last change that the table
      has), the ``uncompared`` columns, for which the user can read no field, the number of ``ranges`` of ids, the
      first ten ``differing_ranges``, and ``report``.

    ``snapshot`` and these are ``None`` where the worker cannot read the metrics of this run. If there is nothing to
    fetch, the task is skipped.
    """

    template_fields = (*SparkJobOperator.template_fields, *RefreshJobOperator.own_template_fields)
    name_on_spark = "sfstream-refresh"
