from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import CHANGE_EVENTS, TopicRegistry, read_topics_file

AMOUNT = [{"name": "Amount__c", "type": "double"}]


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    return open_database(tmp_path / "org.sqlite3")


@pytest.fixture
def schemas(database: sqlite3.Connection) -> SchemaRegistry:
    return SchemaRegistry(database)


@pytest.fixture
def topics(database: sqlite3.Connection, schemas: SchemaRegistry) -> TopicRegistry:
    return TopicRegistry(database, schemas)


def record(name: str, *fields: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "string"} for field in fields]}


def test_schema_id_depends_on_the_content(schemas: SchemaRegistry) -> None:
    first = schemas.register(record("X__e", "A"))
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", first)
    assert schemas.register(record("X__e", "A")) == first
    assert schemas.register(record("X__e", "A", "B")) != first
    stored = json.loads(schemas.get(first) or "")
    assert (stored["uuid"], stored["namespace"]) == (first, "com.sforce.eventbus")
    assert schemas.register(stored) == first


def test_latest_schema_is_the_one_registered_last(schemas: SchemaRegistry, database: sqlite3.Connection) -> None:
    first, second = schemas.register(record("X__e", "A")), schemas.register(record("X__e", "B"))
    assert schemas.latest("X__e") == second
    schemas.register(record("X__e", "A"))
    assert schemas.latest("X__e") == SchemaRegistry(database).latest("X__e") == first
    assert (schemas.name(second), schemas.name("nowhere"), schemas.latest("Y__e")) == ("X__e", None, None)


def test_invalid_avro_schema_is_refused(schemas: SchemaRegistry) -> None:
    bad = {"type": "record", "name": "X__e", "fields": [{"name": "A", "type": "nonsense"}]}
    with pytest.raises(ValueError, match="Avro"):
        schemas.register(bad)
    assert schemas.latest("X__e") is None


def test_registered_schema_keeps_its_fields(schemas: SchemaRegistry) -> None:
    path = Path("../shared/schemas/AccountChangeEvent.avsc")
    if not path.exists():
        pytest.skip("the captured schemas are not here")
    captured = json.loads(path.read_text())
    stored = json.loads(schemas.get(schemas.register(captured)) or "")
    assert stored["fields"] == captured["fields"]


def test_topics_survive_reopening_the_database(topics: TopicRegistry, database: sqlite3.Connection) -> None:
    topics.define_platform_event("Order__e", AMOUNT)
    topics.define_change_event(record("AccountChangeEvent", "Name"))
    topics.define_channel("Orders__chn", ["Order__e"])
    again = TopicRegistry(database, SchemaRegistry(database))
    assert again.all() == topics.all()
    assert [topic.name for topic in again.all()] == [
        "/data/AccountChangeEvent",
        CHANGE_EVENTS,
        "/event/Order__e",
        "/event/Orders__chn",
    ]


def test_channels_of_a_topic(topics: TopicRegistry) -> None:
    topics.define_platform_event("Order__e", AMOUNT)
    topics.define_change_event(record("AccountChangeEvent", "Name"))
    assert topics.channels_of("/data/AccountChangeEvent") == (CHANGE_EVENTS,)
    assert topics.channels_of("/event/Order__e") == ()
    topics.define_channel("Sales__chn", ["AccountChangeEvent"])
    topics.define_channel("Orders__chn", ["Order__e"])
    assert topics.channels_of("/data/AccountChangeEvent") == (CHANGE_EVENTS, "/data/Sales__chn")
    assert topics.channels_of("/event/Order__e") == ("/event/Orders__chn",)


def test_only_platform_events_can_be_published_to(topics: TopicRegistry) -> None:
    event = topics.define_platform_event("Order__e", AMOUNT)
    change = topics.define_change_event(record("AccountChangeEvent", "Name"))
    channel = topics.define_channel("Orders__chn", ["Order__e"])
    assert [topic.can_publish for topic in (event, change, channel)] == [True, False, False]
    assert topics.schema_id(channel) == topics.schema_id(event) != ""


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("", AMOUNT),
        ("Order/e", AMOUNT),
        ("Orders__chn", AMOUNT),
        ("AccountChangeEvent", AMOUNT),
        ("Order__e", [{"name": "A b", "type": "double"}]),
        ("Order__e", [{"name": "A", "type": "nonsense"}]),
        ("Order__e", AMOUNT + AMOUNT),
        ("Order__e", [{"name": "CreatedDate", "type": "double"}]),
    ],
)
def test_invalid_platform_events_are_refused(topics: TopicRegistry, name: str, fields: list[dict[str, str]]) -> None:
    before = topics.all()
    with pytest.raises(ValueError):
        topics.define_platform_event(name, fields)
    assert topics.all() == before


def test_channels_do_not_mix_kinds(topics: TopicRegistry) -> None:
    topics.define_platform_event("Order__e", AMOUNT)
    topics.define_change_event(record("AccountChangeEvent", "Name"))
    with pytest.raises(ValueError, match="all platform events or all change events"):
        topics.define_channel("Mixed__chn", ["Order__e", "AccountChangeEvent"])


@pytest.mark.parametrize("name", ["topics.json", "topics.yaml", "topics.yml"])
def test_topics_files_in_json_and_yaml_are_read(tmp_path: Path, name: str) -> None:
    document = {"platform_events": [{"name": "Order__e", "fields": AMOUNT}]}
    (tmp_path / name).write_text(json.dumps(document))
    assert read_topics_file(tmp_path / name) == document


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("a.json", "[]"), ("a.yaml", "a: ["), ("a.yaml", "")])
def test_invalid_topics_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="not a topics file"):
        read_topics_file(tmp_path / name)
    with pytest.raises(ValueError, match="not a topics file"):
        read_topics_file(tmp_path / "missing.json")
