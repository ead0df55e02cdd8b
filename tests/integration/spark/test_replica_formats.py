"""Delta Lake and Iceberg as far as a Spark without their classes goes. ``test_replica_iceberg`` writes real tables."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.formats import check_session, merge_table
from airflow_provider_sfstream.spark.replica.sql import add_columns, create_table, merge
from tests.support.replica_changes import COLUMNS

BUCKETS = 4


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_spark_reads_the_statements(spark: Any, table_format: Any) -> None:
    """Spark's own parser, to which both formats leave all that they have no syntax of their own for."""
    table = merge_table(spark, table_format, "Account", output="/lake", table_prefix="lake.sf", buckets=BUCKETS)
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


@pytest.mark.parametrize(
    ("table_format", "package"),
    [("delta", r"io\.delta:delta-spark_4\.\d_2\.13"), ("iceberg", r"iceberg-spark-runtime-4\.\d_2\.13")],
)
def test_a_session_without_the_classes_is_refused_with_the_package_to_add(
    spark: Any, table_format: Any, package: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"{package} \(spark\.jars\.packages.*Nothing was written"):
        check_session(spark, table_format, "lake.salesforce")


def test_iceberg_needs_a_table_prefix(spark: Any) -> None:
    with pytest.raises(ConfigurationError, match="table_prefix=None does not name"):
        check_session(spark, "iceberg")
