"""Error table of the Streaming API: documented texts, their codes, and the messages."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_reply, error_from_status
from tests.support.error_cases import REPLAY_ID, STREAMING_REPLIES


def test_nested_reason_determines_the_error() -> None:
    for expected, replies in STREAMING_REPLIES.items():
        for reply in replies:
            assert type(error_from_reply("403::Handshake denied", reply, topic="/topic/T")) is expected, reply


def test_only_the_replay_error_is_a_lost_replay_id() -> None:
    lost = {
        text
        for texts in STREAMING_REPLIES.values()
        for text in texts
        if error_from_reply(text, topic="/u/x").replay_lost
    }
    assert lost == {REPLAY_ID}


def test_reason_without_a_code_determines_the_error() -> None:
    reason = "Server is too busy. Please try your request again later."
    assert type(error_from_reply("400::whatever", reason, topic="/u/x")) is errors.ServiceUnavailableError
    assert type(error_from_reply("403::Handshake denied", "something new", topic="/u/x")) is errors.AccessDeniedError


@pytest.mark.parametrize("error", [None, "", "  ", "no code at all", "599::tomorrow's fault", "99999"])
def test_unknown_error_text_is_retriable(error: str | None) -> None:
    got = error_from_reply(error, None, topic="/u/x")
    assert type(got) is errors.ServiceUnavailableError
    assert got.retriable


def test_unknown_error_code_4xx_is_not_retriable() -> None:
    assert type(error_from_reply("418::I'm a teapot", topic="/u/x")) is errors.RequestRejectedError


def test_missing_response_has_an_error_text() -> None:
    assert "no answer" in str(error_from_status(None, topic="/u/x"))


def test_the_message_names_topic_cause_and_remedy() -> None:
    error = error_from_reply(REPLAY_ID, topic="/topic/T?Status='Open'")
    for part in ("/topic/T?Status='Open'", "replay ID", "{12}", "may be lost", "on_invalid_replay='earliest'"):
        assert part in str(error)
    assert "37.0" in str(error_from_reply("400::Unsupported API version.", topic="/u/x"))


def test_long_error_text_is_truncated() -> None:
    long = "x" * 100_000
    for error in (
        error_from_reply(f"400::{long}", long, topic="/u/x"),
        error_from_status(500, long, topic="/u/x"),
        error_from_status(None, f"SSLError {long}", topic="/u/x"),
    ):
        assert len(str(error)) < 2_000
