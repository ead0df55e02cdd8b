"""Plan of a refresh: the tables to fetch, the mode of each table, and the field of each column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import FieldRules
from airflow_provider_sfstream.tables.refresh.plan import (
    ComputedFields,
    RefreshPlan,
    check_org,
    fields_of_columns,
    plan_all,
    plan_dirty,
)
from airflow_provider_sfstream.tables.replica.snapshots import (
    AppliedWindow,
    ComputedColumns,
    Flag,
    Snapshot,
    StreamState,
    TableState,
)

ORG, SINCE = "00D000000000001AAA", "2026-01-01T00:00:00+00:00"
STREAM = StreamState(ORG, "pubsub", "/data/ChangeEvents", "", AppliedWindow("window-1", "", 1, 5), None, 5)
CLEAN = TableState("stream")
DIRTY = replace(CLEAN, dirty=3, dirty_list="_sfstream/replica/dirty/Contact/one")
FLAGGED = replace(CLEAN, flag=Flag("overflow", "2026-01-01T00:00:00+00:00", 5))
SNAPSHOT = Snapshot(7, None, {"stream": STREAM}, {"Account": CLEAN, "Contact": DIRTY, "Lead": FLAGGED})


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (None, {"Contact": "records", "Lead": "full"}),
        (["Account"], {}),
        (["Contact"], {"Contact": "records"}),
        (["Lead", "Contact", "Lead"], {"Contact": "records", "Lead": "full"}),
        ([], {}),
    ],
)
def test_dirty_and_flagged_tables_are_planned(tables: list[str] | None, expected: dict[str, str]) -> None:
    assert [(one.name, one.mode) for one in plan_dirty(SNAPSHOT, tables)] == list(expected.items())


COLUMN_FLAG = Flag("schema", SINCE, 5, ("Name", "Secret__c"))
FLAGGED_COLUMNS = replace(
    CLEAN, columns={"Name": "string", "Secret__c": "string"}, flag=COLUMN_FLAG,
    fields={"Name": "Data:Text", "Secret__c": "Data:Text"},
)  # fmt: skip


def visible_mode(table: TableState, described: dict[str, str], computed_fields: ComputedFields) -> str | None:
    (plan,) = plan_dirty(replace(SNAPSHOT, tables={"Lead": table}), None, computed_fields)
    visible = plan.resolve(described)
    return None if visible is None else visible.mode


def test_a_flag_of_columns_fetches_them_unless_rows_are_dirty() -> None:
    for dirty, mode in ((0, "columns"), (3, "full")):
        table = replace(FLAGGED_COLUMNS, dirty=dirty)
        assert visible_mode(table, {"Name": "string", "Secret__c": "string"}, "on_fetch") == mode
        assert visible_mode(table, {"Name": "string"}, "on_fetch") == mode


@pytest.mark.parametrize(
    ("table", "computed_fields", "mode"),
    [
        (FLAGGED_COLUMNS, "on_fetch", None),
        (replace(FLAGGED_COLUMNS, dirty=3), "on_fetch", "records"),
        (FLAGGED_COLUMNS, "on_change", "computed"),
        (replace(FLAGGED_COLUMNS, computed=ComputedColumns(on_change=True)), "on_change", None),
        (replace(FLAGGED_COLUMNS, computed=ComputedColumns(on_change=True, changed=2)), "on_change", "records"),
    ],
)
def test_flag_with_only_hidden_columns_does_not_change_the_plan(
    table: TableState, computed_fields: ComputedFields, mode: str | None
) -> None:
    assert visible_mode(table, {"Id": "id"}, computed_fields) == mode


def test_deleted_column_is_fetched_beside_hidden_columns() -> None:
    table = replace(FLAGGED_COLUMNS, fields={"Secret__c": "Data:Text"})
    assert visible_mode(table, {"Id": "id"}, "on_fetch") == "columns"


def test_all_records_are_fetched_whether_columns_are_hidden_or_not() -> None:
    plans = plan_all(replace(SNAPSHOT, tables={"Lead": FLAGGED_COLUMNS}), None, "full")
    assert [plan.resolve({"Id": "id"}) for plan in plans] == plans


def test_table_missing_in_the_replica_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"no table Acount\. Its tables: Account, Contact, Lead.*Nothing was fetched"
    ):
        plan_dirty(SNAPSHOT, ["Acount"])


def test_missing_replica_has_no_plan() -> None:
    assert plan_dirty(Snapshot(), None) == []
    with pytest.raises(ConfigurationError, match="Its tables: none"):
        plan_dirty(Snapshot(), ["Account"])


def test_the_org_must_be_that_of_the_replica() -> None:
    plans = plan_dirty(SNAPSHOT, None)
    check_org(plans, ORG, "sf")
    check_org(plans, ORG[:15], "sf")
    with pytest.raises(ConfigurationError, match=rf"'sf' connects to the org 00D000000000002AAA, .* belongs to {ORG}"):
        check_org(plans, "00D000000000002AAA", "sf")


def test_each_column_has_the_compatible_field_of_its_name() -> None:
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


@pytest.mark.parametrize("described", [{"Size__c": "int"}, {"Size__c": "date"}])
def test_field_is_assigned_to_the_column_of_the_newest_schema(described: dict[str, str]) -> None:
    """An int fits into a column for doubles, and a date into one for times."""
    types = {"int": ("double", "int"), "date": ("long", "date")}[described["Size__c"]]
    columns = dict(zip(("Size__c", f"Size__c__{types[1]}"), types, strict=True))
    assert fields_of_columns(columns, described, {f"Size__c__{types[1]}": ""}) == {f"Size__c__{types[1]}": "Size__c"}
    assert fields_of_columns(columns, described, {"Size__c": ""}) == {"Size__c": "Size__c"}
    assert fields_of_columns(columns, described) == {"Size__c": "Size__c"}


def test_only_columns_that_the_newest_schema_lacks_may_become_null() -> None:
    """A field that is in events but hidden from the user keeps its values."""
    flag = Flag("schema", "2026-01-01T00:00:00+00:00", 1, ("Came__c", "Gone__c"))
    columns = dict.fromkeys(("Came__c", "Gone__c", "Older__c"), "string")
    table = TableState("stream", columns=columns, flag=flag, fields={"Came__c": "Data:Text"})
    assert RefreshPlan("Account", "columns", table, STREAM).may_be_gone == ("Gone__c",)
    assert RefreshPlan("Account", "full", table, STREAM).may_be_gone == ("Gone__c", "Older__c")
    assert RefreshPlan("Account", "records", table, STREAM).may_be_gone == ("Gone__c", "Older__c")


def test_hidden_columns_are_listed_by_mode() -> None:
    flag = Flag("schema", "2026-01-01T00:00:00+00:00", 1, ("Came__c", "Gone__c", "Secret__c", "Typed__c__string"))
    fields = {name: "Data:Text" for name in flag.columns if name != "Gone__c"}
    address = {"BillingCity": "Data:Address", "BillingStateCode": "Data:Address"}
    columns = dict.fromkeys((*flag.columns, *address), "string")
    table = TableState("stream", columns=columns, flag=flag, fields=fields)
    described = {"came__C": "string", "Typed__c": "string"}
    for mode, hidden in (("columns", ("Secret__c",)), ("full", ("Secret__c",)), ("records", ())):
        assert RefreshPlan("Account", mode, table, STREAM).hidden(described) == hidden
    damaged = replace(table, flag=Flag("undecodable", SINCE, 1), fields=fields | address)
    hidden = RefreshPlan("Account", "full", damaged, STREAM).hidden({"came__C": "string", "BillingCity": "string"})
    assert hidden == ("Secret__c", "Typed__c__string")


LISTED = replace(CLEAN, computed=ComputedColumns(("Sum__c",), "2026-01-01T00:00:00+00:00", on_change=True, changed=2))


@pytest.mark.parametrize(
    ("table", "computed_fields", "expected"),
    [
        (CLEAN, "on_change", "computed"),
        (CLEAN, "on_fetch", None),
        (CLEAN, "never", None),
        (DIRTY, "on_change", "records"),
        (FLAGGED, "on_change", "full"),
        (LISTED, "on_change", "records"),
        (LISTED, "on_fetch", None),
        (replace(LISTED, computed=replace(LISTED.computed, changed=0)), "on_change", None),
    ],
)
def test_plan_of_changed_rows_depends_on_computed_fields(
    table: TableState, computed_fields: ComputedFields, expected: str | None
) -> None:
    plans = plan_dirty(replace(SNAPSHOT, tables={"Account": table}), None, computed_fields)
    assert [one.mode for one in plans] == ([] if expected is None else [expected])
    if table is LISTED and plans:
        assert plans[0].on_change


def test_all_records_are_planned_for_all_or_for_named_tables() -> None:
    assert {one.name: one.mode for one in plan_all(SNAPSHOT, None, "computed")} == dict.fromkeys(
        SNAPSHOT.tables, "computed"
    )
    assert [one.name for one in plan_all(SNAPSHOT, ["Lead"], "computed")] == ["Lead"]
    assert plan_all(Snapshot(), None, "computed") == []
    with pytest.raises(ConfigurationError, match="no table Acount"):
        plan_all(SNAPSHOT, ["Acount"], "computed")


def test_comparison_preserves_the_on_change_setting() -> None:
    for table in (CLEAN, LISTED):
        (one,) = plan_all(replace(SNAPSHOT, tables={"Account": table}), None, "computed")
        assert one.on_change == table.computed.on_change


DESCRIBED = {
    "Id": "id",
    "IsDeleted": "boolean",
    "SystemModstamp": "datetime",
    "LastViewedDate": "datetime",
    "LastReferencedDate": "datetime",
    "Name": "string",
    "Amount__c": "string",
    "BillingAddress": "address",
    "Sum__c": "double",
    "When__c": "datetime",
    "Day__c": "date",
    "Flag__c": "boolean",
    "Text__c": "picklist",
}
COLUMNS = {"Name": "string", "Amount__c": "double", "Sum__c": "string", "Text__c": "string"}


def test_computed_fields_are_described_fields_outside_the_newest_schema() -> None:
    carried = {"Name": "Data:Text", "Amount__c": "Data:Double"}
    table = replace(CLEAN, columns=COLUMNS, fields=carried, computed=ComputedColumns(("Text__c",)))
    assert RefreshPlan("Account", "full", table, STREAM).computed_columns(DESCRIBED) == {
        "Sum__c__double": ("Sum__c", "double"),
        "When__c": ("When__c", "timestamp"),
        "Day__c": ("Day__c", "date"),
        "Flag__c": ("Flag__c", "boolean"),
        "Text__c": ("Text__c", "string"),
    }
    assert (RefreshPlan("Account", "records", table, STREAM).computed_columns(DESCRIBED) or {}).keys() == {"Text__c"}
    assert RefreshPlan("Account", "columns", table, STREAM).computed_columns(DESCRIBED) is None
    assert RefreshPlan("Account", "full", table, STREAM, "never").computed_columns(DESCRIBED) is None
    assert "Text__c" not in RefreshPlan("Account", "full", table, STREAM).columns


def test_excluded_field_is_not_a_computed_field() -> None:
    rules = FieldRules.from_arguments(["BillingAddress.Street", "When__c"], [], ["Text__c"]).recorded()
    table = replace(CLEAN, fields={"Name": "Data:Text"}, rules=rules, hidden={"billingstreet": "exclude"})
    described = DESCRIBED | {"BillingStreet": "textarea"}
    found = RefreshPlan("Account", "full", table, STREAM).computed_columns(described) or {}
    assert "Text__c" in found
    assert not found.keys() & {"BillingStreet", "When__c"}
