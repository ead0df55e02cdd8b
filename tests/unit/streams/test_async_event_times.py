"""The time of one event, read beside the event loop."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest

from airflow_provider_sfstream.exceptions import QuotaExceededError
from airflow_provider_sfstream.streams.watch.wake_ups import EventTimes
from tests.support.scripted_async_source import ScriptedAsyncSource
from tests.support.scripted_source import SCHEMA_ID, avro_payload
from tests.support.virtual_time import BEGINNING

EVENT_TIME = BEGINNING - timedelta(seconds=90)
PAYLOAD = avro_payload(int(EVENT_TIME.timestamp() * 1000))


async def test_the_event_time_is_read_from_the_payload_and_the_schema_asked_for_once():
    source = ScriptedAsyncSource([])
    times = EventTimes(source)
    assert [await times.read(SCHEMA_ID, PAYLOAD) for _ in range(2)] == [EVENT_TIME] * 2
    assert source.schemas_read == [SCHEMA_ID]


async def test_a_schema_that_cannot_be_had_is_told_and_asked_for_again(caplog):
    caplog.set_level(logging.INFO)
    source = ScriptedAsyncSource([], schema_fault=QuotaExceededError("used up"))
    times = EventTimes(source)
    assert await times.read(SCHEMA_ID, PAYLOAD) is None
    assert "used up" in caplog.text
    source.schema_fault = None
    assert await times.read(SCHEMA_ID, PAYLOAD) == EVENT_TIME


@pytest.mark.parametrize(
    ("schema_json", "payload"),
    [
        (json.dumps({"type": "record", "name": "Bare__e", "fields": [{"name": "Text__c", "type": "string"}]}), b"\0"),
        (ScriptedAsyncSource([]).schema_json, b""),
        ('"long"', b"\0"),
    ],
    ids=["no time", "damaged", "not a record"],
)
async def test_an_event_without_a_time_has_none(schema_json, payload):
    source = ScriptedAsyncSource([], schema_json=schema_json)
    assert await EventTimes(source).read(SCHEMA_ID, payload) is None
