"""What a trigger hands over: it survives JSON, and an error comes out of it as it went in."""

from __future__ import annotations

import inspect
import json

import pytest

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpReason
from airflow_provider_sfstream.streams.watch.payload import error_from_payload, error_payload, payload

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e", "loads")
ERRORS = [
    each for _, each in inspect.getmembers(exceptions, inspect.isclass) if issubclass(each, SalesforceStreamError)
]


def test_a_wake_up_is_told_as_plain_json() -> None:
    told = payload(STREAM, WakeUp(WakeUpReason.EVENTS, b"\x00\x01", 3, b"\x00\x09"))
    assert json.loads(json.dumps(told)) == {
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
    assert type(told["reason"]) is str, "not an enumeration, which another process may not know"


def test_a_wake_up_without_replay_ids_is_no_error() -> None:
    told = payload(STREAM, WakeUp(WakeUpReason.REPLAY_LOST))
    assert (told["reason"], told["first_replay_id"], told["through"]) == ("replay_lost", None, None)
    assert error_from_payload(told) is None


@pytest.mark.parametrize("error_class", ERRORS)
def test_every_error_comes_out_as_it_went_in(error_class: type[SalesforceStreamError]) -> None:
    told = json.loads(json.dumps(error_payload(error_class("what happened, and what to do"))))
    error = error_from_payload(told)
    assert type(error) is error_class
    assert str(error) == "what happened, and what to do"


@pytest.mark.parametrize("name", ["ErrorOfALaterVersion", "annotations", "__name__", "", None])
def test_an_unknown_error_is_one_that_waiting_cannot_mend(name: str | None) -> None:
    error = error_from_payload({"reason": "error", "error": name, "message": "no such thing"})
    assert type(error) is SalesforceStreamError
    assert not error.retriable
    assert "no such thing" in str(error)
