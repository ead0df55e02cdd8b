"""Tests that take longer than one of their kind may, and why. The end of a run names those that are not here."""

from __future__ import annotations

SLOW: dict[str, str] = {
    "tests/unit/replay_windows/test_bounded_reads.py::test_a_backfill_of_an_old_hour_reads_few_documents": (
        "lands two thousand windows"
    ),
    "tests/unit/landing/test_window_index.py::test_a_search_finds_the_windows_of_the_chain": (
        "forty histories, each asked for all of its times"
    ),
    "tests/unit/landing/test_window_index.py::test_killed_at_any_write_no_window_is_lost": (
        "a landing of a week for each of a dozen writes"
    ),
    "tests/unit/replay_windows/test_zombies.py::test_a_task_that_goes_on_at_any_point_returns_no_event_of_another": (
        "a landing and a store for each of a thousand orders"
    ),
    "tests/unit/replay_windows/test_zombies.py::test_each_event_is_returned_once_where_they_interrupt_each_other": (
        "thousands of orders of three interruptions"
    ),
    "tests/integration/cli/test_command_line.py::test_airflow_has_it_with_its_own_variables_and_connections": (
        "makes an Airflow database, and starts airflow or sfstream five times"
    ),
    "tests/integration/salesforce/test_event_source_contract.py::TestEvents::test_resume_is_strictly_after_a_replay_id": (  # noqa: E501
        "behind the network, opens a subscription of dozens of round trips for each event"
    ),
    "tests/integration/salesforce/test_event_source_contract.py::TestEvents::test_small_answers_fill_the_pipe_too": (
        "behind the network, a round trip for every few events"
    ),
    "tests/integration/streams/test_drain_from_local_org.py::test_two_hundred_thousand_events_stay_in_bounded_memory": (
        "as many events as show whether memory grows"
    ),
    "tests/integration/streams/test_streaming_memory.py::test_fifty_thousand_events_in_one_answer": (
        "as many events as show whether memory grows"
    ),
    "tests/integration/operators/test_erase_from_replicas.py::test_killed_anywhere_the_next_try_finishes": (
        "a landing and a replica for each of two dozen changes"
    ),
    "tests/integration/operators/test_erase_records.py::test_killed_anywhere_the_next_try_finishes": (
        "a landing and its tables for each of two dozen changes"
    ),
    "tests/integration/landing/test_drains_to_s3.py::test_a_storage_that_is_gone_for_seconds_only_delays_a_drain": (
        "starts SeaweedFS twice, and waits as long as clients do"
    ),
    "tests/integration/landing/test_drains_to_s3.py::"
    "test_windows_follow_each_other_and_nothing_of_a_credential_is_landed": ("starts SeaweedFS"),
    "tests/integration/live_check/test_live_check.py::test_an_org_that_is_the_same_differs_in_nothing": (
        "asks five orgs some 400 things, and waits for what should not come"
    ),
    "tests/integration/live_check/test_live_check.py::test_an_org_that_behaves_otherwise_is_found": (
        "waits as long as an org that is slow to notice changes"
    ),
    "tests/integration/live_check/test_live_check.py::test_what_expired_is_asked_three_days_later": (
        "waits for what should not come"
    ),
    "tests/integration/notifications/test_salesforce_stream.py::test_airflow_calls_it": (
        "makes an Airflow database and runs a DAG twice"
    ),
    "tests/integration/operators/test_concurrent_drains.py::test_one_wins_and_the_other_names_it": (
        "starts a database server, and two processes that load Airflow"
    ),
    "tests/integration/operators/test_intervals.py::"
    "test_two_intervals_in_one_window_give_each_event_once_to_the_table": ("spark-submit, twice"),
    "tests/integration/provider/test_install.py::test_the_two_packages_of_spark_are_of_one_version": (
        "a wheel is built, and pip resolves all that it needs"
    ),
    "tests/integration/pyspark_sfstream/test_killed_query.py::"
    "test_a_query_that_is_killed_again_and_again_ends_with_each_event_once": (
        "starts Spark three times, and kills it twice"
    ),
    "tests/integration/provider/test_tutorial.py::test_it_leads_from_nothing_to_a_table": (
        "types a tutorial: ten commands of airflow, and spark-submit twice"
    ),
    "tests/integration/operators/test_managed_event_subscription.py::test_a_dag_of_them_runs_in_airflow": (
        "makes an Airflow database and runs a DAG twice"
    ),
    "tests/integration/operators/test_refresh_replica.py::test_by_spark_submit": "spark-submit",
    "tests/integration/replay_stores/test_connections.py::"
    "test_each_command_makes_a_connection_of_the_database_that_it_names": ("runs airflow's own command ten times"),
    "tests/integration/tables/test_computed_fields.py::"
    "test_they_come_with_what_is_fetched_and_are_compared_on_their_own": "six wide Spark jobs",
    "tests/integration/tables/test_computed_fields.py::"
    "test_records_that_an_event_changed_are_fetched_if_that_is_wanted": "ten wide Spark jobs",
    "tests/integration/tables/test_event_log.py::test_of_copies_of_an_event_one_that_can_be_read_is_written": (
        "many Spark jobs, for each order of the copies"
    ),
    "tests/integration/tables/test_event_log_delta.py::"
    "test_rows_leave_the_quarantine_though_a_compaction_has_merged_them": "three Spark jobs, and a compaction",
    "tests/integration/tables/test_event_log_delta.py::"
    "test_rows_of_a_window_that_a_compaction_has_merged_stay_as_they_are": "four Spark jobs, and a compaction",
    "tests/integration/tables/test_hidden_fields.py::test_the_key_reaches_a_driver_and_no_log_nor_command_line": (
        "a spark-submit, and the command lines of all processes meanwhile"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_a_checkbox_that_is_added_is_fetched_in_all_rows": (
        "five Spark jobs over a table of 90 columns, and an org of its own"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_a_replica_that_is_far_behind_is_brought_forward_in_steps": (
        "five Spark jobs, and hundreds of windows"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_fields_that_come_change_and_go_flag_their_columns": (
        "eight Spark jobs"
    ),
    "tests/integration/tables/test_replica_hazards.py::test_files_of_a_history_are_merged_and_its_versions_stay": (
        "as many Spark jobs as files of a history become one"
    ),
    "tests/integration/tables/test_replica_hazards.py::"
    "test_the_quarantine_of_a_held_window_is_kept_and_its_events_are_judged_once": "eight Spark jobs",
    "tests/integration/tables/test_replica_pruned.py::test_a_replica_goes_on_over_pruned_windows": "seven Spark jobs",
    "tests/integration/tables/test_session_settings.py::test_no_setting_changes_a_row_of_a_replica": (
        "two replicas, under settings of all kinds"
    ),
    "tests/integration/tables/test_event_log.py::test_every_event_is_one_typed_row_of_its_date": (
        "the first of its folder: starts the Spark session"
    ),
    "tests/integration/tables/test_missing_schemas.py::test_rows_without_a_schema_are_quarantined_and_taken_back": (
        "two Spark jobs, and an org of its own"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_a_new_table_then_dirty_rows": (
        "four Spark jobs over a table of 90 columns, and an org of its own"
    ),
    "tests/integration/tables/test_refresh_replica.py::test_what_changes_meanwhile_is_fetched_by_the_next_refresh": (
        "four Spark jobs over a table of 90 columns, and an org of its own"
    ),
    "tests/integration/tables/test_replica.py::test_one_window_for_many_or_many_for_one": "six Spark jobs",
    "tests/integration/tables/test_replica_cluster.py::test_the_replica_equals_the_org_though_a_worker_died": (
        "starts a Spark cluster, and spark-submit twice"
    ),
    "tests/integration/tables/test_replica_workload.py::test_a_replica_from_an_enriched_channel_equals_the_org": (
        "a replica made, refreshed and compared, as below"
    ),
    "tests/integration/tables/test_replica_workload.py::test_the_replica_equals_the_org": (
        "five Spark jobs over four tables of up to 90 columns, and an org of its own"
    ),
    "tests/integration/tables/test_spark_submit.py::test_a_job_at_work_and_one_that_failed_are_linked_on_their_master": (  # noqa: E501
        "a Spark cluster, and spark-submit twice"
    ),
    "tests/integration/tables/test_spark_submit.py::test_killed_in_the_middle_of_its_write_and_run_again": (
        "spark-submit, twice"
    ),
    "tests/integration/tables/test_spark_submit.py::test_the_operator_submits_windows_and_returns_the_metrics": (
        "spark-submit"
    ),
    "tests/integration/replay_stores/test_airflow_variables.py::test_two_runs_of_a_dag_move_the_position_in_a_variable": (  # noqa: E501
        "makes an Airflow database and runs a DAG twice"
    ),
    "tests/integration/replay_stores/test_store_model.py::test_every_store_behaves_as_the_model": (
        "random histories against a database server, twenty in `make test-all`"
    ),
    "tests/unit/salesforce/test_cometd_messages.py::test_any_chunks_give_the_same_messages": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/salesforce/test_cometd_messages.py::test_data_is_the_slice_as_received": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/streams/test_drain.py::test_the_sink_gets_an_exact_run_of_the_stream": (
        "the first promise of all: a hundred streams of hundreds of events"
    ),
    "tests/unit/landing/test_parquet.py::test_landing_does_not_import_pandas": "a process of its own",
    "tests/unit/landing/test_parquet.py::test_storage_that_fills_up_fails_the_window_soon_and_publishes_nothing": (
        "a process of its own, with a limit on the size of its files"
    ),
    "localorg/tests/unit/test_change_events.py::test_a_replica_of_the_events_equals_the_org": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/test_reference.py::test_the_pages_are_those_of_the_docstrings": "imports every client and store",
    "tests/unit/actions/test_intervals.py::test_partitions_are_those_of_the_scheduler_all_the_year": (
        "the scheduler's own class takes a millisecond for each tick"
    ),
    "tests/unit/tables/test_change_batches.py::test_a_batch_gives_what_its_events_give_one_by_one": (
        "the first of them loads the decoder"
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
    "tests/unit/streams/test_wake_up_guarantees.py::test_every_event_is_told_in_exactly_one_wake_up": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_claims.py::test_every_claim_of_every_green_run_is_true": (
        "some tens of runs, with a real landing and a real store"
    ),
    "tests/unit/replay_windows/test_incremental.py::test_killed_at_any_change_and_tried_again": (
        "as many runs as there are changes to be killed at"
    ),
    "tests/unit/replay_windows/test_interval.py::test_killed_at_any_change_and_tried_again": (
        "as many runs as there are changes to be killed at"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_a_drain_begins_at_the_nearest_position_that_can_be_read": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_an_interval_without_anything_unconfirmed_is_complete": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::"
    "test_each_minute_is_landed_or_drained_or_missing_or_unconfirmed_and_only_one_of_them": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::"
    "test_every_landed_event_is_given_once_over_the_intervals_of_a_day_whatever_its_time_says": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::"
    "test_every_window_with_events_that_may_count_in_the_interval_is_landed_unless_others_have_them": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_results_are_in_order": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_interval_plan.py::test_the_order_of_what_is_given_changes_nothing": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_restoring.py::test_it_holds_what_the_lost_one_held": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_covered_spans.py::test_a_chain_of_windows_leaves_no_time_out": (
        "hundreds of examples in `make test-all`, few in `make test`"
    ),
    "tests/unit/replay_windows/test_aged_positions.py::test_one_gap_is_recorded_while_what_followed_it_is_retained": (
        "13 runs of three days"
    ),
    "tests/integration/provider/test_install.py::"
    "test_the_two_packages_of_spark_are_installed_without_one_writing_over_the_other": (
        "pip installs all that the package needs"
    ),
    "tests/integration/tables/test_replica.py::test_rows_carry_where_they_come_from": (
        "the first of its folder: starts the Spark session"
    ),
    "tests/integration/tables/test_event_log.py::test_events_that_share_a_replay_id_are_all_rows": ("five Spark jobs"),
    "tests/integration/replay_stores/test_table_store.py::test_of_many_processes_exactly_one_wins_each_time": (
        "three or eight processes that load the store"
    ),
    "localorg/tests/integration/test_change_workload.py::test_a_replica_of_the_landed_events_equals_the_org": (
        "160 random changes of an org, landed in windows"
    ),
}
"""Reasons by node id, without parameters."""
