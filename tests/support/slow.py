"""Tests that take longer than one of their kind may, and why. The end of a run names those that are not here."""

from __future__ import annotations

SLOW: dict[str, str] = {
    "tests/integration/landing/test_drains_to_s3.py::"
    "test_windows_follow_each_other_and_nothing_of_a_credential_is_landed": "starts SeaweedFS",
    "tests/integration/landing/test_drains_to_s3.py::test_a_storage_that_is_gone_for_seconds_only_delays_a_drain": (
        "starts SeaweedFS twice, and waits as long as clients do by default"
    ),
    "tests/integration/operators/test_concurrent_drains.py::test_one_wins_and_the_other_names_it": (
        "starts a database server, and two processes that load Airflow"
    ),
    "tests/integration/operators/test_intervals.py::"
    "test_two_intervals_in_one_window_give_each_event_once_to_the_table": "spark-submit, twice",
    "tests/integration/operators/test_managed_event_subscription.py::test_a_dag_of_them_runs_in_airflow": (
        "makes an Airflow database and runs a DAG twice"
    ),
    "tests/integration/operators/test_refresh_dirty_records.py::test_by_spark_submit": "spark-submit",
    "tests/integration/spark/test_refresh_dirty_records.py::"
    "test_a_new_table_then_dirty_rows": "four Spark jobs over a table of 90 columns, and an org of its own",
    "tests/integration/spark/test_refresh_dirty_records.py::"
    "test_what_changes_meanwhile_is_fetched_by_the_next_refresh": (
        "four Spark jobs over a table of 90 columns, and an org of its own"
    ),
    "tests/integration/spark/test_replica_cluster.py::"
    "test_the_replica_equals_the_org_though_a_worker_died": "starts a Spark cluster, and spark-submit twice",
    "tests/integration/spark/test_replica_workload.py::"
    "test_the_replica_equals_the_org": "five Spark jobs over four tables of up to 90 columns, and an org of its own",
    "tests/integration/spark/test_spark_submit.py::"
    "test_killed_in_the_middle_of_its_write_and_run_again": "spark-submit, twice, and rows enough to be killed among",
    "tests/integration/spark/test_spark_submit.py::"
    "test_the_operator_submits_windows_and_returns_the_metrics": "spark-submit",
    "tests/integration/stores/test_airflow_variables.py::test_two_runs_of_a_dag_move_the_position_in_a_variable": (
        "makes an Airflow database and runs a DAG twice"
    ),
    "tests/unit/landing/test_parquet.py::test_landing_does_not_import_pandas": "a process of its own",
    "tests/unit/landing/test_parquet.py::test_storage_that_fills_up_fails_the_window_soon_and_publishes_nothing": (
        "a process of its own, with a limit on the size of its files"
    ),
    "tests/unit/operators/test_intervals.py::test_partitions_are_those_of_the_scheduler_all_the_year": (
        "the scheduler's own class takes a millisecond for each tick"
    ),
    "tests/unit/test_imports.py::test_nothing_that_takes_long_is_loaded": "starts Airflow in a process, once",
    "tests/unit/test_imports.py::test_the_configuration_decides_whether_a_sensor_defers": (
        "the same process, where it comes first"
    ),
    "tests/unit/test_imports.py::test_without_the_messaging_provider_airflow_is_told_what_to_install": (
        "the same process, where it comes first"
    ),
    "tests/unit/test_operations_guide.py::test_the_log_lines_are_logged": "runs each way to a log line of the guide",
    "tests/unit/test_operations_guide.py::test_the_messages_of_a_restore_are_raised": (
        "runs each way to a message of the guide"
    ),
    "tests/unit/windows/test_incremental.py::test_killed_at_any_change_and_tried_again": (
        "as many runs as there are changes to be killed at"
    ),
    "tests/unit/windows/test_interval.py::test_killed_at_any_change_and_tried_again": (
        "as many runs as there are changes to be killed at"
    ),
    "tests/unit/windows/test_silence.py::test_a_quiet_stream_goes_on_for_days_and_lands_what_comes_then_once": (
        "a run for each of 60 hours"
    ),
    "tests/unit/windows/test_silence.py::test_the_stretches_of_its_windows_do_not_overlap": (
        "a run for each of 40 hours"
    ),
}
"""Reasons by node id, without parameters."""
