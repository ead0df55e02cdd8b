"""Payloads of trigger events: wake-ups and errors as JSON."""

from __future__ import annotations

import inspect
import json

import pytest

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.watch.conditions import (
    WakeUp,
    WakeUpReason,
    error_from_payload,
    error_payload,
    payload,
)

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e", "loads")
ERRORS = [
    each for _, each in inspect.getmembers(exceptions, inspect.isclass) if issubclass(each, SalesforceStreamError)
]


def test_payload_of_a_wake_up_is_plain_json() -> None:
    event = payload(STREAM, WakeUp(WakeUpReason.EVENTS, b"\x00\x01", 3, b"\x00\x09"))
    assert json.loads(json.dumps(event)) == {
        "reason": "events",
        "stream": {
            "org_id": "00D000000000001EAA",
            "api": "pubsub",
            "topic": "/event/Order__e",
            "subscription": "loads",
        },
        "first_replay_id": "0001",
        "through": "0009",
        "event_count": 3,
    }
    assert type(event["reason"]) is str, "another process may not know the enumeration"


def test_a_wake_up_without_replay_ids_is_no_error() -> None:
    event = payload(STREAM, WakeUp(WakeUpReason.REPLAY_LOST))
    assert (event["reason"], event["first_replay_id"], event["through"]) == ("replay_lost", None, None)
    assert error_from_payload(event) is None


@pytest.mark.parametrize("error_class", ERRORS)
def test_each_error_keeps_its_class_and_text(error_class: type[SalesforceStreamError]) -> None:
    event = json.loads(json.dumps(error_payload(error_class("the cause, and the remedy"))))
    error = error_from_payload(event)
    assert type(error) is error_class
    assert str(error) == "the cause, and the remedy"


@pytest.mark.parametrize("name", ["ErrorOfALaterVersion", "annotations", "__name__", "", None])
def test_payload_of_an_unknown_error_is_not_retriable(name: str | None) -> None:
    error = error_from_payload({"reason": "error", "error": name, "message": "no such thing"})
    assert type(error) is SalesforceStreamError
    assert not error.retriable
    assert "no such thing" in str(error)
