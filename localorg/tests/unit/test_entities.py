from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import fastavro
import pytest

from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import TopicRegistry
from sfstream_localorg.records.entities import STANDARD_ENTITIES, Entities
from sfstream_localorg.records.fields import Field

CAPTURED = Path(__file__).parents[3].parent / "shared" / "schemas"
ENTITIES = {entity.name: entity for entity in STANDARD_ENTITIES}


def without_field_id(field: dict[str, Any]) -> dict[str, Any]:
    """Remove the id of a custom field from ``doc`` (``Data:Text:00NDp…``), because it differs between orgs."""
    return {**field, "doc": ":".join(field["doc"].split(":")[:2])}


@pytest.mark.parametrize("name", ["Account", "Contact"])
def test_entity_schema_equals_the_schema_captured_from_a_real_org(name: str) -> None:
    path = CAPTURED / f"{name}ChangeEvent.avsc"
    if not path.exists():
        pytest.skip(f"no captured schema at {path.name}")
    captured, built = json.loads(path.read_text()), ENTITIES[name].schema()
    assert {k: built[k] for k in ("name", "namespace", "type")} == {
        k: captured[k] for k in ("name", "namespace", "type")
    }
    assert [field["name"] for field in built["fields"]] == [field["name"] for field in captured["fields"]]
    for ours, theirs in zip(built["fields"], captured["fields"], strict=True):
        assert without_field_id(ours) == without_field_id(theirs)


@pytest.mark.parametrize("name", sorted(ENTITIES))
def test_every_schema_is_valid_avro_with_the_header_first(name: str) -> None:
    schema = ENTITIES[name].schema()
    fastavro.parse_schema(schema)
    assert schema["fields"][0]["name"] == "ChangeEventHeader"
    assert schema["name"] == ENTITIES[name].event_name
    assert all(field["type"][0] == "null" and field["default"] is None for field in schema["fields"][1:])


def test_topics_of_custom_and_standard_objects() -> None:
    assert ENTITIES["Shipment__c"].topic == "/data/Shipment__ChangeEvent"
    assert ENTITIES["Account"].topic == "/data/AccountChangeEvent"


def test_columns_of_compound_fields_have_the_names_of_rest() -> None:
    account = ENTITIES["Account"].columns
    assert {"BillingCity", "ShippingLatitude", "PersonMailingStreet", "LastName", "Name"} <= set(account)
    assert "Some_Geolocation__Latitude__s" in account
    assert "BillingAddress" not in account
    assert "Name" not in ENTITIES["Contact"].columns
    assert {"Home__Street__s", "Home__Latitude__s"} <= set(
        ENTITIES["Contact"].with_field(Field("Home__c", "Address")).columns
    )


@pytest.mark.parametrize(
    ("entity", "columns", "bitmap"),
    [
        ("Account", {"Name"}, ["0x02"]),
        ("Account", {"LastName"}, ["1-0x04"]),
        ("Account", {"Type", "ParentId"}, ["0x14"]),
        ("Account", {"BillingStreet", "BillingGeocodeAccuracy", "Phone"}, ["0x80", "5-0x0201"]),
        ("Contact", {"MailingCity"}, ["5-0x02"]),
        ("Contact", set(), []),
    ],
)
def test_bitmaps_of_columns(entity: str, columns: set[str], bitmap: list[str]) -> None:
    assert ENTITIES[entity].bitmap(columns) == bitmap


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    return open_database(tmp_path / "org.sqlite3")


def entities_of(database: sqlite3.Connection) -> tuple[Entities, SchemaRegistry]:
    schemas = SchemaRegistry(database)
    return Entities(database, TopicRegistry(database, schemas)), schemas


def test_an_added_field_is_last_and_survives_a_restart(database: sqlite3.Connection) -> None:
    entities, schemas = entities_of(database)
    before = schemas.latest("AccountChangeEvent")
    assert before is not None
    schema_id = entities.add_field("Account", Field("Colour__c", "DynamicEnum"))
    assert schema_id != before
    again, schemas = entities_of(database)
    assert schemas.latest("AccountChangeEvent") == schema_id
    old, new = json.loads(schemas.get(before) or ""), json.loads(schemas.get(schema_id) or "")
    assert new["fields"][:-1] == old["fields"]
    assert new["fields"][-1]["name"] == "Colour__c"
    assert again.get("account") is not None


def test_entities_are_found_by_name_and_by_record_id(database: sqlite3.Connection) -> None:
    entities, _ = entities_of(database)
    for entity in entities:
        assert entities.of_record(entity.key_prefix + "000000000001AAA") is entity
        assert entities.get(entity.name.upper()) is entity
    assert entities.of_record("00Q000000000001AAA") is None
    assert entities.get("Lead") is None
