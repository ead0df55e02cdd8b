from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.formats import MergeTable, check_settings, merge_table
from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE


def delta() -> MergeTable:
    return merge_table(None, "delta", "Account", output="s3a://lake/replica", table_prefix=None, buckets=16)


def iceberg(prefix: str | None = "lake.salesforce") -> MergeTable:
    return merge_table(None, "iceberg", "Account", output="s3a://lake/replica", table_prefix=prefix, buckets=16)


def test_a_delta_table_is_at_a_path_and_partitioned_by_the_bucket() -> None:
    table = delta()
    assert table.name == "delta.`s3a://lake/replica/Account`"
    assert table.layout() == "USING DELTA PARTITIONED BY (`_bucket`)"
    assert table.part("target.") == "target.`_bucket`"
    assert list(table.all_columns({"Name": "string"})) == [*TABLE_ENVELOPE, "_bucket", "Name"]


def test_an_iceberg_table_is_in_a_catalog_and_partitioned_out_of_sight() -> None:
    table = iceberg()
    assert table.name == "`lake`.`salesforce`.`Account`"
    assert table.layout() == "USING iceberg PARTITIONED BY (bucket(16, `Id`))"
    assert table.part("target.") == "`lake`.system.bucket(16, target.`Id`)"
    renamed = ["_is_deleted" if name == "_deleted" else name for name in TABLE_ENVELOPE]
    assert list(table.all_columns({"Name": "string"})) == [*renamed, "Name"]


@pytest.mark.parametrize("prefix", [None, "", "lake", "lake.", ".sf", "lake.sf;DROP", "lake.`sf`", "lake.my space"])
def test_a_prefix_names_a_catalog_and_a_namespace(prefix: str | None) -> None:
    with pytest.raises(ConfigurationError, match="does not name an Iceberg catalog"):
        iceberg(prefix)


def test_a_namespace_may_have_levels() -> None:
    assert iceberg("lake.crm.sales-force").name == "`lake`.`crm`.`sales-force`.`Account`"


CATALOG = {
    "delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "org.apache.iceberg.spark.SparkCatalog",
}
EXTENSION = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_configured_session_is_accepted(table_format: Any) -> None:
    settings = {"spark.sql.catalog.lake": CATALOG[table_format]}
    for extensions in (EXTENSION[table_format], f"a.b.C , {EXTENSION[table_format]}"):
        check_settings(table_format, "lake", (settings | {"spark.sql.extensions": extensions}).get)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("given", [None, "org.example.OtherCatalog"])
def test_another_catalog_is_refused(table_format: Any, given: str | None) -> None:
    settings = {"spark.sql.catalog.lake": given, "spark.sql.extensions": EXTENSION[table_format]}
    with pytest.raises(ConfigurationError, match=rf"spark\.sql\.catalog\.lake is not {CATALOG[table_format]}.*Nothing"):
        check_settings(table_format, "lake", settings.get)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("given", [None, "", "a.b.C"])
def test_a_session_without_the_extension_is_refused(table_format: Any, given: str | None) -> None:
    settings = {"spark.sql.catalog.lake": CATALOG[table_format], "spark.sql.extensions": given}
    with pytest.raises(ConfigurationError, match=f"MERGE needs {EXTENSION[table_format]} .*Nothing was written"):
        check_settings(table_format, "lake", settings.get)
