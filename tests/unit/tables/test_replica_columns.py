from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from airflow_provider_sfstream.tables.rows.replica_columns import entity_of, replica_columns
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from sfstream_localorg.records.entity import Entity
from tests.support.change_events import captured_schema, flat_columns

HEADER = STANDARD_ENTITIES[0].schema()["fields"][0]
STREET = {"name": "Street", "type": ["null", "string"]}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def schema(*fields: dict[str, Any], name: str = "XChangeEvent") -> dict[str, Any]:
    return record(name, copy.deepcopy(HEADER), *fields)


def field(name: str, *branches: Any, doc: str = "") -> dict[str, Any]:
    return {"name": name, "type": ["null", *branches], "doc": doc}


def names(*fields: dict[str, Any]) -> list[str]:
    return [column.name for column in replica_columns(json.dumps(schema(*fields)))]


@pytest.mark.parametrize("entity", [one for one in STANDARD_ENTITIES if one.has_change_events], ids=lambda e: e.name)
def test_columns_have_the_names_of_the_rest_api(entity: Entity) -> None:
    columns = replica_columns(json.dumps(entity.schema()))
    assert [(c.name, c.position, c.part) for c in columns] == [
        (c.name, c.position, c.part) for c in entity.columns.values()
    ]
    assert entity_of(entity.schema()) == entity.name


@pytest.mark.parametrize("name", ["AccountChangeEvent", "ContactChangeEvent"])
def test_columns_of_a_captured_schema(name: str) -> None:
    captured = captured_schema(name)
    if captured is None:
        pytest.skip("the captured schemas are not available")
    columns = replica_columns(json.dumps(captured))
    assert [(c.name, c.position, c.part) for c in columns] == [column[:3] for column in flat_columns(captured)]
    assert len({c.name.lower() for c in columns}) == len(columns)
    types = {c.name: c.type for c in columns}
    assert (types["LastModifiedDate"], types["CreatedDate"]) == ("timestamp", "timestamp")
    if name == "AccountChangeEvent":
        assert types["PersonBirthdate"] == "date"
        assert types["Some_Time__c"] == "long"  # milliseconds since midnight
        assert types["Some_Geolocation__Latitude__s"] == "double"
        assert {"Name", "Salutation", "FirstName", "BillingStreet", "PersonOtherGeocodeAccuracy"} <= types.keys()


def test_compound_fields_of_every_kind() -> None:
    address, place = record("Address", STREET), record("Location", {"name": "Latitude", "type": ["null", "double"]})
    person = record("Switchable_PersonName", {"name": "FirstName", "type": ["null", "string"]})
    assert names(
        field("Name", "string", person),
        field("Address", address),
        field("MailingAddress", "Address"),
        field("Home__c", "Address"),
        field("Place__c", place),
        field("Spot", "Location"),
        field("Where", "Address"),
    ) == [
        "Name",
        "FirstName",
        "Street",
        "MailingStreet",
        "Home__Street__s",
        "Place__Latitude__s",
        "Spot_Latitude",
        "Where_Street",
    ]


def test_two_compound_fields_never_share_a_column() -> None:
    person = record("PersonName", {"name": "FirstName", "type": ["null", "string"]})
    assert names(field("Name", person), field("Maiden", "PersonName")) == ["FirstName", "Maiden_FirstName"]
    assert names(field("Name", person), field("firstname", "string")) == ["Name_FirstName", "firstname"]


def test_column_records_the_location_of_its_value() -> None:
    parts = [{"name": "Nothing", "type": "null"}, STREET]
    found = replica_columns(
        json.dumps(schema(field("Empty"), field("HomeAddress", record("Address", *parts)), field("a", "int")))
    )
    assert [(c.name, c.position, c.part, c.member, c.inside) for c in found] == [
        ("HomeStreet", 2, 1, 1, 0),
        ("a", 3, None, 2, None),
    ]


def test_nested_values_outside_compound_fields_are_one_column() -> None:
    deep = record("Deep", STREET)
    compound = record("Other", {"name": "Inner", "type": ["null", deep]})
    found = replica_columns(
        json.dumps(
            schema(
                field("Tags", {"type": "array", "items": "string"}),
                field("Notes", {"type": "map", "values": "long"}),
                field("Many", "int", "long"),
                field("Outer", compound),
            )
        )
    )
    assert [(c.name, c.type) for c in found] == [
        ("Tags", {"array": "string"}),
        ("Notes", {"map": "long"}),
        ("Many", "string"),
        ("Outer_Inner", {"struct": {"Street": "string"}}),
    ]


@pytest.mark.parametrize(
    ("name", "entity"),
    [("AccountChangeEvent", "Account"), ("Shipment__ChangeEvent", "Shipment__c"), ("ns__A__ChangeEvent", "ns__A__c")],
)
def test_entity_is_derived_from_the_schema_name(name: str, entity: str) -> None:
    assert entity_of(schema(name=name)) == entity
    assert entity_of(schema(name=f"com.sforce.eventbus.{name}")) == entity


@pytest.mark.parametrize("name", ["Order__e", "ChangeEvent", "", "../xChangeEvent", "1ChangeEvent"])
def test_name_other_than_a_change_event_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a change event"):
        entity_of(schema(name=name))


def _without(name: str) -> dict[str, Any]:
    broken = schema()
    inner = broken["fields"][0]["type"]["fields"]
    inner[:] = [one for one in inner if one["name"] != name]
    return broken


@pytest.mark.parametrize(
    "broken",
    [
        record("Order__e", {"name": "CreatedDate", "type": "long"}),
        record("XChangeEvent"),
        record("XChangeEvent", field("a", "int"), HEADER),
        record("XChangeEvent", {"name": "ChangeEventHeader", "type": ["null", HEADER["type"]]}),
        record("XChangeEvent", {"name": "ChangeEventHeader", "type": "string"}),
        _without("recordIds"),
        _without("changedFields"),
        _without("commitTimestamp"),
    ],
)
def test_schemas_other_than_change_events_are_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"change event|ChangeEventHeader|Avro record schema"):
        replica_columns(json.dumps(broken))
