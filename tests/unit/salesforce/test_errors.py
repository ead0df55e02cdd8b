"""Error table of the Pub/Sub API: known codes, statuses and messages."""

from __future__ import annotations

import itertools

import grpc

from airflow_provider_sfstream.salesforce.errors.pubsub import CODE_PREFIX, error_from
from tests.support.error_cases import PUBSUB_CODES, PUBSUB_STATUSES


def test_error_code_determines_the_error_for_any_status() -> None:
    for expected, codes in PUBSUB_CODES.items():
        for code, status in itertools.product(codes, (*(each.name for each in grpc.StatusCode), None)):
            for written in (code, CODE_PREFIX + code):
                assert type(error_from(written, status, "some text", topic="/event/A__e")) is expected, (code, status)


def test_status_and_text_determine_the_error_of_an_unknown_code() -> None:
    for expected, cases in PUBSUB_STATUSES.items():
        for status, details in cases:
            for code in (None, "some.code.of.tomorrow"):
                assert type(error_from(code, status, details, topic="/event/A__e")) is expected, (status, details)


def test_the_message_names_topic_cause_remedy_and_rpc_id() -> None:
    error = error_from(
        CODE_PREFIX + "subscription.fetch.replayid.corrupted",
        "INVALID_ARGUMENT",
        "The Replay ID val",
        topic="/event/A__e",
        rpc_id="r-1",
    )
    assert error.replay_lost
    for part in ("/event/A__e", "replay ID", "replayid.corrupted", "The Replay ID val", "r-1", "on_invalid_replay"):
        assert part in str(error)
