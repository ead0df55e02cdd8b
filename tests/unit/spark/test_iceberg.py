from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.iceberg import IcebergTable, check_settings
from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def iceberg(prefix: str | None = "lake.salesforce") -> IcebergTable:
    return IcebergTable.of(None, "Account", prefix, 16)


def test_a_table_is_in_a_catalog_and_partitioned_out_of_sight() -> None:
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


def test_a_configured_session_is_accepted() -> None:
    settings = {"spark.sql.catalog.lake": CATALOG}
    for extensions in (EXTENSION, f"a.b.C , {EXTENSION}"):
        check_settings("lake", (settings | {"spark.sql.extensions": extensions}).get)


@pytest.mark.parametrize("given", [None, "org.example.OtherCatalog"])
def test_another_catalog_is_refused(given: str | None) -> None:
    settings = {"spark.sql.catalog.lake": given, "spark.sql.extensions": EXTENSION}
    with pytest.raises(ConfigurationError, match=rf"spark\.sql\.catalog\.lake is not {CATALOG}.*Nothing"):
        check_settings("lake", settings.get)


@pytest.mark.parametrize("given", [None, "", "a.b.C"])
def test_a_session_without_the_extension_is_refused(given: str | None) -> None:
    settings = {"spark.sql.catalog.lake": CATALOG, "spark.sql.extensions": given}
    with pytest.raises(ConfigurationError, match=f"MERGE needs {EXTENSION} .*Nothing was written"):
        check_settings("lake", settings.get)
