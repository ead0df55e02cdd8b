"""What a refresh has to fetch: which tables, how, and which fields for which columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators._refresh_plan import check_org, fields_of_columns, plan
from airflow_provider_sfstream.spark.replica_snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState

ORG = "00D000000000001AAA"
STREAM = StreamState(ORG, "pubsub", "/data/ChangeEvents", "", AppliedWindow("window-1", "", 1, 5), None, 5)
CLEAN = TableState("stream", "parquet", 4)
DIRTY = replace(CLEAN, dirty=3, dirty_list="_sfstream/replica/dirty/Contact/one")
FLAGGED = replace(CLEAN, flag=Flag("overflow", "2026-01-01T00:00:00+00:00", 5))
SNAPSHOT = Snapshot(7, None, {"stream": STREAM}, {"Account": CLEAN, "Contact": DIRTY, "Lead": FLAGGED})


@pytest.mark.parametrize(
    ("tables", "full", "expected"),
    [
        (None, False, {"Contact": "records", "Lead": "full"}),
        (None, True, {"Account": "full", "Contact": "full", "Lead": "full"}),
        (["Account"], False, {}),
        (["Account"], True, {"Account": "full"}),
        (["Contact"], False, {"Contact": "records"}),
        (["Contact"], ["Account"], {"Account": "full", "Contact": "records"}),
        (None, ["Contact"], {"Contact": "full", "Lead": "full"}),
        (["Lead"], [], {"Lead": "full"}),
        ([], False, {}),
    ],
)
def test_the_tables(tables: list[str] | None, full: bool | Collection[str], expected: dict[str, str]) -> None:
    assert {one.name: one.mode for one in plan(SNAPSHOT, tables, full)} == expected


@pytest.mark.parametrize(("tables", "full"), [(["Acount"], False), (None, ["Acount"])])
def test_a_table_that_the_replica_does_not_have(tables: list[str] | None, full: bool | list[str]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no table Acount; it has Account, Contact, Lead.*Nothing was fetched"
    ):
        plan(SNAPSHOT, tables, full)


def test_a_replica_that_does_not_exist_yet() -> None:
    assert plan(Snapshot(), None, True) == []
    with pytest.raises(ConfigurationError, match="it has none"):
        plan(Snapshot(), ["Account"], False)


def test_the_org_must_be_that_of_the_replica() -> None:
    plans = plan(SNAPSHOT, None, False)
    check_org(plans, ORG, "sf")
    check_org(plans, ORG[:15], "sf")
    with pytest.raises(ConfigurationError, match=rf"'sf' leads to the org 00D000000000002AAA, the replica is of {ORG}"):
        check_org(plans, "00D000000000002AAA", "sf")


def test_each_column_has_the_field_of_its_name_that_fits() -> None:
    described = {
        "Id": "id",
        "Name": "string",
        "Phone": "phone",
        "AnnualRevenue": "currency",
        "NumberOfEmployees": "int",
        "Birthdate": "date",
        "LastModifiedDate": "datetime",
        "Pickup__c": "time",
        "BillingAddress": "address",
        "Amount": "currency",
        "Changed__c": "string",
        "Now_a_number__c": "double",
    }
    columns = {
        "name": "string",
        "Phone": "string",
        "AnnualRevenue": "double",
        "NumberOfEmployees": "int",
        "Birthdate": "date",
        "LastModifiedDate": "timestamp",
        "Pickup__c": "long",
        "BillingAddress": "string",
        "Amount__c": "double",
        "Changed__c": "double",
        "Changed__c__string": "string",
        "Now_a_number__c": "string",
        "Now_a_number__c__double_2": "double",
        "Deleted__c": "string",
        "Nested": {"struct": {"a": "string"}},
    }
    expected = {name: name for name in columns} | {
        "name": "Name",
        "Changed__c__string": "Changed__c",
        "Now_a_number__c__double_2": "Now_a_number__c",
    }
    for left_out in ("BillingAddress", "Amount__c", "Changed__c", "Now_a_number__c", "Deleted__c", "Nested"):
        del expected[left_out]
    assert fields_of_columns(columns, described) == expected
