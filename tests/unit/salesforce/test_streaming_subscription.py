"""Streaming API subscriptions: conversion of event messages into columns, and arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    InvalidReplayIdError,
    InvalidTopicError,
    SchemaError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.salesforce.streaming.subscription import check_arguments, message_batch

TOPIC = "/topic/InvoiceUpdates"


def message(data: Any, channel: str = TOPIC) -> EventMessage:
    return EventMessage({"channel": channel, "data": data}, json.dumps(data).encode())


def push_topic_event(replay_id: Any, **event: Any) -> dict[str, Any]:
    return {"event": {"createdDate": "2026-11-21T09:00:00Z", "replayId": replay_id, **event}, "sobject": {"Id": "a"}}


class TestColumns:
    def test_columns_of_a_push_topic(self) -> None:
        messages = [message(push_topic_event(number), f"{TOPIC}?Status='Open'") for number in (7, 9)]
        batch = message_batch(f"{TOPIC}?Status='Open'", messages, 123)
        assert batch.replay_ids == [bytes(7) + b"\x07", bytes(7) + b"\x09"]
        assert batch.schema_ids == [TOPIC, TOPIC]
        assert batch.event_ids == [None, None]
        assert batch.payloads == [message.data for message in messages]
        assert (batch.latest_replay_id, batch.pending, batch.received_at) == (bytes(7) + b"\x09", 0, 123)

    def test_columns_of_an_event_with_a_schema(self) -> None:
        data = {"schema": "dffQ2QLz", "payload": {}, "event": {"replayId": 0, "EventUuid": "e-1"}}
        batch = message_batch("/event/A__e", [message(data, "/event/A__e")], 1)
        assert (batch.schema_ids, batch.event_ids, batch.replay_ids) == (["dffQ2QLz"], ["e-1"], [bytes(8)])

    @pytest.mark.parametrize("value", ["\ud800", 7, None, {}])
    def test_values_that_are_not_text_are_not_stored_as_text(self, value: Any) -> None:
        data = {"schema": value, "payload": {}, "event": {"replayId": 0, "EventUuid": value}}
        batch = message_batch("/event/A__e", [message(data, "/event/A__e")], 1)
        assert (batch.schema_ids, batch.event_ids) == (["/event/A__e"], [None])

    def test_columns_of_an_empty_batch(self) -> None:
        batch = message_batch(TOPIC, [], 1)
        assert (len(batch), batch.latest_replay_id, batch.pending) == (0, b"", 0)

    @pytest.mark.parametrize(
        "data",
        [
            push_topic_event(None),
            push_topic_event("12"),
            push_topic_event(True),
            push_topic_event(1.0),
            push_topic_event(-1),
            push_topic_event(2**64),
            {"event": {"createdDate": "2026-11-21T09:00:00Z"}},
            {"event": None},
            {"payload": {}},
            [],
            "text",
            None,
        ],
    )
    def test_message_without_a_replay_id_is_an_error_with_its_place(self, data: Any) -> None:
        with pytest.raises(SchemaError, match=r"InvoiceUpdates.*after replay ID 0000000000000007.*not skipped.*37\.0"):
            message_batch(TOPIC, [message(push_topic_event(7)), message(data)], 1)
        with pytest.raises(SchemaError, match="first of its batch"):
            message_batch(TOPIC, [message(data), message(push_topic_event(7))], 1)


class TestArguments:
    @pytest.mark.parametrize(
        ("after", "replay_id"),
        [
            (StartFrom.LATEST, -1),
            (StartFrom.EARLIEST, -2),
            (bytes(8), 0),
            (bytes(7) + b"\x07", 7),
            (b"\xff" * 8, 2**64 - 1),
        ],
    )
    def test_replay_id_for_each_start(self, after: bytes | StartFrom, replay_id: int) -> None:
        for topic in (TOPIC, f"{TOPIC}?Status='Open'", "/u/a/b", "/event/A__e", "/data/ChangeEvents"):
            assert check_arguments(topic, after, None, silence_timeout=1.0) == replay_id

    @pytest.mark.parametrize(
        ("arguments", "error", "part"),
        [
            (("/topics/T", StartFrom.EARLIEST, None), InvalidTopicError, "/topics/T"),
            ((TOPIC, b"", None), InvalidReplayIdError, TOPIC),
            ((TOPIC, bytes(10), None), InvalidReplayIdError, "Pub/Sub"),
            ((TOPIC, StartFrom.COMMITTED, None), ConfigurationError, "stores no committed position"),
            ((TOPIC, StartFrom.EARLIEST, 0), ConfigurationError, "limit=0"),
            ((TOPIC, StartFrom.EARLIEST, -1), ConfigurationError, "limit=-1"),
        ],
    )
    def test_invalid_topic_start_and_limit_are_refused(self, arguments: Any, error: type[Exception], part: str) -> None:
        with pytest.raises(error, match=part):
            check_arguments(*arguments)

    @pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
    def test_invalid_idle_timeout_is_refused(self, seconds: float) -> None:
        with pytest.raises(ConfigurationError, match="idle_timeout="):
            check_arguments(TOPIC, StartFrom.EARLIEST, None, idle_timeout=seconds)
