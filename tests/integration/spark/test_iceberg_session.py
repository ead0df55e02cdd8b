"""Iceberg as far as a Spark without its classes goes. ``test_replica_iceberg`` writes real tables."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.iceberg import IcebergTable, check_session
from airflow_provider_sfstream.spark.replica.sql import add_columns, create_table, merge
from tests.support.replica_changes import COLUMNS


def test_spark_reads_the_statements(spark: Any) -> None:
    """Spark's own parser, to which Iceberg leaves all that it has no syntax of its own for."""
    table = IcebergTable.of(spark, "Account", "lake.sf", 4)
    columns = table.all_columns(COLUMNS)
    parts = f"{table.part('target.')} IN (1, 2)"
    widened = add_columns(table.name, {"Id": "string", "Place__c": {"struct": {"Latitude": "double"}}}, columns)
    plans = {
        "CreateTable": create_table(table.name, columns, table.layout(), {"sfstream.buckets": "4"}),
        "AddColumns": widened,
        "MergeIntoTable": merge(table.name, "source_rows", list(columns), f"target.`Id` = source.`Id` AND {parts}"),
    }
    parser = spark._jsparkSession.sessionState().sqlParser()
    for plan, statement in plans.items():
        assert parser.parsePlan(statement).getClass().getSimpleName() == plan


def test_a_session_without_the_classes_is_refused_with_the_package_to_add(spark: Any) -> None:
    package = r"iceberg-spark-runtime-4\.\d_2\.13"
    with pytest.raises(ConfigurationError, match=rf"{package} \(spark\.jars\.packages.*Nothing was written"):
        check_session(spark, "lake.salesforce")


def test_it_needs_a_table_prefix(spark: Any) -> None:
    with pytest.raises(ConfigurationError, match="table_prefix=None does not name"):
        check_session(spark, None)
