"""Tests that may exceed the time limit of their kind, with reasons. A test run reports other slow tests at its end."""

from __future__ import annotations

SLOW: dict[str, str] = {
    "tests/unit/replay_windows/test_bounded_reads.py::test_a_backfill_of_an_old_hour_reads_few_documents": (
        "lands two thousand windows"
    ),
    "tests/unit/landing/test_window_index.py::test_a_search_finds_the_windows_of_the_chain": (
        "forty histories, each searched at all of its times"
    ),
    "tests/unit/landing/test_window_index.py::test_no_window_is_lost_when_a_task_is_killed_at_any_write": (
        "creates a landing of a week for each of a dozen writes"
    ),
    "tests/unit/replay_windows/test_zombies.py::"
    "test_zombie_that_continues_at_any_point_returns_no_event_of_another_run": (
        "creates a landing and a store for each of a thousand orders of steps"
    ),
    "tests/unit/replay_windows/test_zombies.py::test_each_event_is_returned_once_when_runs_interrupt_each_other": (
        "runs thousands of orders of three interruptions"
    ),
    "tests/unit/cli/test_new_stream.py::test_dag_of_each_kind_of_topic_can_be_imported": (
        "imports twelve DAG files, and runs ruff twice"
    ),
    "tests/integration/cli/test_init.py::test_connection_and_dags_are_written_once": "creates an Airflow database",
    "tests/integration/cli/test_init.py::test_dags_of_answers_on_a_terminal_run": (
        "creates an Airflow database, and starts airflow or sfstream four times"
    ),
    "tests/integration/cli/test_command_line.py::test_airflow_sfstream_uses_variables_and_connections_of_airflow": (
        "creates an Airflow database, and starts airflow or sfstream five times"
    ),
    "tests/integration/streams/test_drain_from_local_org.py::test_two_hundred_thousand_events_stay_in_bounded_memory": (
        "needs many events to show whether memory grows"
    ),
    "tests/integration/streams/test_streaming_memory.py::"
    "test_fifty_thousand_events_in_one_response_use_bounded_memory": ("needs many events to show whether memory grows"),
    "tests/integration/operators/test_erase_from_replicas.py::"
    "test_a_replica_erasure_killed_at_any_step_is_completed_by_the_next_try": (
        "creates a landing and a replica for each of two dozen changes"
    ),
    "tests/integration/operators/test_erase_records.py::"
    "test_an_erasure_killed_at_any_step_is_completed_by_the_next_try": (
        "creates a landing and its tables for each of two dozen changes"
    ),
    "tests/integration/landing/test_drains_to_s3.py::test_storage_that_is_down_for_seconds_only_delays_a_drain": (
        "starts SeaweedFS twice, and waits for the retries of clients"
    ),
    "tests/integration/landing/test_drains_to_s3.py::test_windows_are_consecutive_and_contain_no_credentials": (
        "starts SeaweedFS"
    ),
    "tests/integration/landing/test_tables_on_other_storage.py::test_event_log_and_replica_equal_the_org": (
        "starts an org and Azurite, drains twice and erases a record"
    ),
    "tests/integration/live_check/test_live_check.py::test_identical_org_has_no_differences": (
        "runs about 400 checks on five orgs, and waits to show that events are absent"
    ),
    "tests/integration/live_check/test_live_check.py::test_org_with_different_behaviour_is_reported": (
        "waits as long as a slow org may need to apply changes"
    ),
    "tests/integration/live_check/test_live_check.py::test_expired_replay_id_is_probed_three_days_later": (
        "waits to show that events are absent"
    ),
    "tests/integration/notifications/test_salesforce_stream.py::test_airflow_calls_the_notifier": (
        "creates an Airflow database, and runs a DAG twice"
    ),
    "tests/integration/operators/test_concurrent_drains.py::"
    "test_one_concurrent_drain_commits_and_the_other_names_its_run": (
        "starts a database server, and two processes that load Airflow"
    ),
    "tests/integration/provider/test_install.py::test_pyspark_and_pyspark_client_have_the_same_version": (
        "builds a wheel, and pip resolves all of its dependencies"
    ),
    "tests/integration/pyspark_sfstream/test_killed_query.py::"
    "test_query_that_is_killed_repeatedly_returns_each_event_exactly_once": (
        "starts Spark three times, and kills it twice"
    ),
    "tests/integration/provider/test_tutorial.py::test_commands_of_the_tutorial_produce_a_table": (
        "runs the tutorial: ten commands of airflow, and spark-submit twice"
    ),
    "tests/integration/operators/test_managed_event_subscription.py::"
    "test_a_dag_of_managed_subscription_operators_runs_in_airflow": (
        "creates an Airflow database, and runs a DAG twice"
    ),
    "tests/integration/operators/test_refresh_replica.py::test_full_refresh_by_spark_submit": "runs spark-submit",
    "tests/integration/replay_stores/test_connections.py::"
    "test_each_documented_command_creates_the_expected_connection": ("runs Airflow's command ten times"),
    "tests/integration/tables/test_computed_fields.py::"
    "test_computed_fields_are_fetched_with_records_and_compared_separately": "runs six wide Spark jobs",
    "tests/integration/tables/test_computed_fields.py::"
    "test_computed_fields_on_change_fetches_the_records_that_an_event_changed": "runs ten wide Spark jobs",
    "tests/integration/tables/test_event_log.py::test_the_readable_copy_of_an_event_is_written": (
        "runs many Spark jobs for each order of the copies"
    ),
    "tests/integration/tables/test_event_log_delta.py::"
    "test_rows_leave_a_compacted_quarantine": "runs three Spark jobs and a compaction",
    "tests/integration/tables/test_event_log_delta.py::"
    "test_a_repeated_window_keeps_its_rows_in_compacted_files": "runs four Spark jobs and a compaction",
    "tests/integration/tables/test_hidden_fields.py::"
    "test_the_hash_key_reaches_the_driver_but_no_log_and_no_command_line": (
        "runs spark-submit, and reads the command lines of all processes meanwhile"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_an_added_checkbox_is_fetched_for_all_rows": (
        "runs five Spark jobs over a table of 90 columns, and starts an org"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_a_replica_that_is_far_behind_is_updated_in_steps": (
        "runs five Spark jobs over hundreds of windows"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_added_changed_and_removed_fields_flag_their_columns": (
        "runs eight Spark jobs"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_merged_files_of_a_history_keep_its_versions": (
        "runs as many Spark jobs as a merge combines history files"
    ),
    "tests/integration/tables/test_replica_hazards.py::"
    "test_undecodable_events_of_a_held_window_are_quarantined_and_counted_once": "runs eight Spark jobs",
    "tests/integration/tables/test_replica_pruned.py::"
    "test_a_replica_with_a_pruned_landing_equals_one_with_an_unpruned_landing": ("runs seven Spark jobs"),
    "tests/integration/tables/test_session_settings.py::test_session_settings_change_no_row_of_a_replica": (
        "builds two replicas under many Spark settings"
    ),
    "tests/integration/tables/test_event_log.py::test_every_event_is_one_typed_row_of_its_date": (
        "is the first of its folder, and starts the Spark session"
    ),
    "tests/integration/tables/test_missing_schemas.py::test_events_without_a_schema_are_quarantined_and_replayed": (
        "runs two Spark jobs, and starts an org"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_a_new_table_and_then_its_dirty_rows_are_fetched": (
        "runs four Spark jobs over a table of 90 columns, and starts an org"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_changes_during_a_refresh_are_fetched_by_the_next_refresh": (
        "runs four Spark jobs over a table of 90 columns, and starts an org"
    ),
    "tests/integration/tables/test_replica.py::"
    "test_many_windows_in_one_run_or_in_many_runs_result_in_the_same_rows": "runs six Spark jobs",
    "tests/integration/tables/test_replica_cluster.py::test_a_replica_equals_the_org_although_a_worker_was_killed": (
        "starts a Spark cluster, and runs spark-submit twice"
    ),
    "tests/integration/tables/test_replica_workload.py::test_a_replica_from_an_enriched_channel_equals_the_org": (
        "builds, refreshes and compares a replica, like the next test"
    ),
    "tests/integration/tables/test_replica_workload.py::test_a_replica_of_a_random_workload_equals_the_org": (
        "runs five Spark jobs over four tables of up to 90 columns, and starts an org"
    ),
    "tests/integration/tables/test_spark_submit.py::test_running_and_failed_jobs_are_linked_to_the_spark_master": (
        "starts a Spark cluster, and runs spark-submit twice"
    ),
    "tests/integration/tables/test_spark_submit.py::test_a_job_killed_before_its_commit_is_completed_by_the_next_run": (
        "runs spark-submit twice"
    ),
    "tests/integration/tables/test_spark_submit.py::test_the_operator_submits_windows_and_returns_the_metrics": (
        "runs spark-submit"
    ),
    "tests/integration/replay_stores/test_airflow_variables.py::"
    "test_two_runs_of_a_dag_move_the_position_in_a_variable": ("creates an Airflow database, and runs a DAG twice"),
    "tests/integration/replay_stores/test_store_model.py::test_every_store_agrees_with_the_model": (
        "runs random histories on a database server, twenty in `make test-all`"
    ),
    "tests/unit/salesforce/test_cometd_messages.py::test_messages_do_not_depend_on_the_chunks": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/salesforce/test_cometd_messages.py::test_data_is_the_slice_as_received": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/streams/test_drain.py::test_sink_receives_each_event_once_and_in_order": (
        "tests the main guarantee with a hundred streams of hundreds of events"
    ),
    "tests/unit/streams/test_drain.py::test_drains_that_end_sooner_leave_only_recent_events": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/landing/test_parquet.py::test_landing_does_not_import_pandas": "starts a process",
    "tests/unit/landing/test_parquet.py::test_full_storage_fails_the_window_early_and_publishes_nothing": (
        "starts a process with a limit on the size of its files"
    ),
    "localorg/tests/unit/test_change_events.py::test_replica_of_the_change_events_equals_the_org": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/test_reference.py::test_reference_pages_equal_the_docstrings": "imports every client and store",
    "tests/unit/actions/test_intervals.py::test_partitions_equal_those_of_the_scheduler_throughout_the_year": (
        "Airflow's timetable class needs a millisecond for each tick"
    ),
    "tests/unit/tables/test_change_batches.py::test_change_rows_of_a_batch_equal_those_of_single_events": (
        "loads the decoder, if it is the first test that needs it"
    ),
    "tests/unit/test_imports.py::test_slow_modules_are_not_imported": "starts Airflow in a process once",
    "tests/unit/test_imports.py::test_the_configuration_decides_whether_a_sensor_defers": (
        "starts the same process, if it runs first"
    ),
    "tests/unit/test_imports.py::test_missing_messaging_provider_is_reported_with_the_extra_to_install": (
        "starts the same process, if it runs first"
    ),
    "tests/unit/test_operations_guide.py::test_documented_log_lines_exist_in_the_package": (
        "produces each log line of the guide"
    ),
    "tests/unit/test_operations_guide.py::test_documented_restore_messages_exist_in_the_package": (
        "produces each message of the guide"
    ),
    "tests/unit/streams/test_wake_up_guarantees.py::test_each_event_is_reported_in_exactly_one_wake_up": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_claims.py::test_every_claim_of_every_green_run_is_true": (
        "runs dozens of drains with a landing and a store"
    ),
    "tests/unit/replay_windows/test_incremental.py::test_retry_of_a_killed_run_equals_an_undisturbed_run": (
        "repeats the run for each change at which it can be killed"
    ),
    "tests/unit/replay_windows/test_interval.py::test_retry_of_a_killed_interval_run_equals_an_undisturbed_run": (
        "repeats the run for each change at which it can be killed"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_a_drain_begins_at_the_nearest_position_that_can_be_read": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_an_interval_without_anything_unconfirmed_is_complete": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::"
    "test_each_minute_is_either_landed_drained_missing_or_unconfirmed": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_each_landed_event_counts_once_over_the_intervals_of_a_day": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::"
    "test_windows_with_countable_events_are_returned_unless_other_windows_hold_them": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_plan_results_are_sorted": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_order_of_the_input_does_not_change_the_plan": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_restoring.py::test_restored_store_equals_the_lost_store": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_covered_spans.py::test_chain_of_windows_has_no_uncovered_time": (
        "runs hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_aged_positions.py::test_one_gap_is_recorded_per_retention_period": (
        "runs 13 tasks over three days"
    ),
    "tests/integration/provider/test_install.py::test_pyspark_and_pyspark_client_do_not_overwrite_each_other": (
        "pip installs all dependencies of the package"
    ),
    "tests/integration/tables/test_replica.py::test_rows_have_the_position_and_transaction_of_their_last_event": (
        "is the first of its folder, and starts the Spark session"
    ),
    "tests/integration/tables/test_event_log.py::test_all_events_that_share_a_replay_id_become_rows": (
        "runs five Spark jobs"
    ),
    "tests/integration/replay_stores/test_table_store.py::test_exactly_one_of_many_processes_advances_in_each_round": (
        "starts three or eight processes that load the store"
    ),
    "localorg/tests/integration/test_change_workload.py::"
    "test_replica_of_landed_events_of_a_random_workload_equals_the_org": (
        "lands 160 random changes of an org in windows"
    ),
}
"""Reasons by node ID, without parameters."""
