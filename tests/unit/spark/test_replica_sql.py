from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.sql import add_columns, create_table, merge, quoted, sql_type

TABLE = "`lake`.`salesforce`.`Account`"


@pytest.mark.parametrize(
    ("parts", "name"),
    [(("Account",), "`Account`"), (("lake", "sf", "Account"), "`lake`.`sf`.`Account`"), (("a`b",), "`a``b`")],
)
def test_names_are_quoted(parts: tuple[str, ...], name: str) -> None:
    assert quoted(*parts) == name


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("string", "string"),
        ("long", "bigint"),
        ("timestamp", "timestamp"),
        ({"array": "long"}, "array<bigint>"),
        ({"map": {"array": "int"}}, "map<string, array<int>>"),
        ({"struct": {"City": "string", "Geo": {"struct": {"x": "double"}}}}, "struct<`City`: string, `Geo`: "
         "struct<`x`: double>>"),
    ],
)  # fmt: skip
def test_types_are_those_of_sql(type_: object, text: str) -> None:
    assert sql_type(type_) == text


def test_a_table_is_created_with_its_layout_and_properties() -> None:
    statement = create_table(TABLE, {"Id": "string", "_sequence": "long"}, "USING iceberg", {"sfstream.buckets": "4"})
    assert statement == (
        f"CREATE TABLE {TABLE} (`Id` string, `_sequence` bigint) USING iceberg TBLPROPERTIES ('sfstream.buckets' = '4')"
    )


STORED = {"Id": "string", "Place": {"struct": {"x": "double"}}, "Places": {"array": {"struct": {"x": "double"}}}}


def test_nothing_is_added_to_a_table_that_has_all() -> None:
    assert add_columns(TABLE, STORED | {"Remark": "string"}, {"ID": "string", "Place": STORED["Place"]}) is None


def test_what_a_table_lacks_is_added_at_every_depth() -> None:
    wanted = {
        "Id": "string",
        "Place": {"struct": {"x": "double", "y": "double"}},
        "Places": {"array": {"struct": {"x": "double", "Note": "string"}}},
        "Amount__c": "double",
    }
    assert add_columns(TABLE, STORED, wanted) == (
        f"ALTER TABLE {TABLE} ADD COLUMNS (`Place`.`y` double, `Places`.`element`.`Note` string, `Amount__c` double)"
    )


@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        ({"Id": "long"}, "Id"),
        ({"Place": {"struct": {"x": "string"}}}, r"Place\.x"),
        ({"Place": {"array": "double"}}, "Place"),
        ({"Places": {"array": {"struct": {"x": "long"}}}}, r"Places\.element\.x"),
    ],
)
def test_a_column_of_another_type_is_refused(wanted: dict, column: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Column {column} of .* Nothing was written"):
        add_columns(TABLE, STORED, {"New__c": "string"} | wanted)


def test_a_merge_deletes_updates_and_inserts() -> None:
    statement = merge(TABLE, "rows", ["Id", "_sequence", "Name"], "target.`Id` = source.`Id`")
    assert statement == (
        f"MERGE INTO {TABLE} AS target USING rows AS source ON target.`Id` = source.`Id` "
        "WHEN MATCHED AND source.`_dropped` THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET target.`_sequence` = source.`_sequence`, target.`Name` = source.`Name` "
        "WHEN NOT MATCHED AND NOT source.`_dropped` THEN INSERT (`Id`, `_sequence`, `Name`) "
        "VALUES (source.`Id`, source.`_sequence`, source.`Name`)"
    )
