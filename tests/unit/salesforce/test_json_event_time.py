"""Event times of JSON payloads, as the Streaming API sends them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from airflow_provider_sfstream.salesforce.event_time import JsonEventTimeReader

TIME = datetime(2016, 9, 16, 19, 45, 27, 454_000, tzinfo=UTC)
MILLISECONDS = 1_474_055_127_454


@pytest.mark.parametrize("value", [b"NaN", b"1e400", b'"\\ud800"', b"[" * 5_000 + b"]" * 5_000, b'"\xff"'])
def test_json_that_no_parser_accepts_is_no_error(value: bytes) -> None:
    data = b'{"payload":{"CreatedDate":"2016-09-16T19:45:27.454Z","x":%b},"event":{"replayId":1}}' % value
    assert JsonEventTimeReader().read(data) in (TIME, None)


@pytest.mark.parametrize(
    "data",
    [
        {
            "event": {"createdDate": "2016-09-16T19:45:27.454Z", "replayId": 1, "type": "created"},
            "sobject": {"Id": "0"},
        },
        {"event": {"createdDate": "2016-09-16T19:45:27.454+0000", "replayId": 1}, "payload": "plain text"},
        {"event": {"createdDate": "2016-09-16T21:45:27.454+02:00", "replayId": 1}, "payload": None},
        {"schema": "x", "payload": {"CreatedDate": "2016-09-16T19:45:27.454Z"}, "event": {"replayId": 1}},
        {"schema": "x", "payload": {"ChangeEventHeader": {"commitTimestamp": MILLISECONDS}}, "event": {"replayId": 1}},
        {"sobject": {"createdDate": "2001-01-01T00:00:00Z"}, "event": {"createdDate": "2016-09-16T19:45:27.454"}},
    ],
    ids=["push topic", "generic", "another zone", "platform", "change", "without a zone"],
)
def test_event_time_is_read_from_each_kind_of_event(data: dict[str, object]) -> None:
    payload = json.dumps(data).encode()
    reader = JsonEventTimeReader()
    assert reader.read(payload) == TIME
    assert reader.read_many([payload, b"{}", payload]).to_pylist() == [MILLISECONDS, None, MILLISECONDS]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"event": 1}',
        b'{"event": {"createdDate": "yesterday"}}',
        b'{"event": {"createdDate": true}}',
        b'{"event": {"createdDate": 1e400}}',
        b'{"event": {"createdDate": 99999999999999999999}}',
        b'{"event": {}, "payload": "text"}',
        b'{"event": {}, "payload": {"ChangeEventHeader": {}}}',
        b'{"event": {}, "payload": {"ChangeEventHeader": 5}}',
        b'{"event": {"createdDate": "\xff"}}',
    ],
)
def test_event_time_is_none_for_missing_times_and_damaged_payloads(payload: bytes) -> None:
    assert JsonEventTimeReader().read(payload) is None


def test_time_beyond_the_calendar_is_available_as_milliseconds_only() -> None:
    payload = b'{"payload": {"ChangeEventHeader": {"commitTimestamp": 9000000000000000}}}'
    assert JsonEventTimeReader().read(payload) is None
    assert JsonEventTimeReader().read_many([payload]).to_pylist() == [9_000_000_000_000_000]
