from __future__ import annotations

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry, merge_types, type_of_spark


def test_column_keeps_its_type_and_a_conflicting_type_gets_its_own_column() -> None:
    registry = ColumnRegistry()
    assert registry.place([("Amount__c", "double")], ()) == ("Amount__c",)
    assert registry.place([("Amount__c", "string")], ()) == ("Amount__c__string",)
    assert registry.place([("Amount__c", "string")], ()) == ("Amount__c__string",)
    assert registry.place([("Amount__c", "double")], ()) == ("Amount__c",)
    assert registry.columns == {"Amount__c": "double", "Amount__c__string": "string"}


def test_a_conflict_with_a_conflict_column_gets_a_number() -> None:
    registry = ColumnRegistry({"A": "double", "A__string": "date"})
    assert registry.place([("A", "string")], ()) == ("A__string_2",)


def test_column_names_ignore_case_and_two_fields_never_share_a_column() -> None:
    registry = ColumnRegistry({"Amount__c": "double"})
    assert registry.place([("amount__C", "double")], ()) == ("Amount__c",)
    placed = registry.place([("Amount__c", "double"), ("AMOUNT__c", "double")], ())
    assert placed == ("Amount__c", "AMOUNT__c__double")


def test_reserved_names_are_not_used() -> None:
    assert ColumnRegistry().place([("Event_Date", "date")], ("event_date",)) == ("Event_Date__date",)


def test_structs_gain_members_and_never_change_them() -> None:
    old, new = {"struct": {"a": "string", "b": "long"}}, {"struct": {"b": "long", "c": {"array": "string"}}}
    assert merge_types(old, new) == {"struct": {"a": "string", "b": "long", "c": {"array": "string"}}}
    assert merge_types(old, {"struct": {"a": "long"}}) is None
    assert merge_types(old, {"struct": {"A": "string"}}) is None
    assert merge_types({"array": old}, {"array": new}) == {"array": merge_types(old, new)}
    assert merge_types({"array": "string"}, {"map": "string"}) is None
    assert merge_types("int", "long") is None
    registry = ColumnRegistry({"Address": old})
    assert registry.place([("Address", {"struct": {"a": "long"}})], ()) == ("Address__struct",)


def test_spark_types_are_converted_to_type_names() -> None:
    member = {"name": "a", "type": "integer", "nullable": True, "metadata": {}}
    array = {"type": "array", "elementType": {"type": "struct", "fields": [member]}, "containsNull": True}
    assert type_of_spark(array) == {"array": {"struct": {"a": "int"}}}
    assert type_of_spark({"type": "map", "keyType": "string", "valueType": "date"}) == {"map": "date"}
