"""The error table of the Streaming API: every documented text, the codes behind them, and what the messages say."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.protocol.streaming_errors import error_from_reply, error_from_status

REPLAY_ID = (
    "400::The replayId {12} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to "
    "replay only new events."
)
TOO_BUSY = "503::Server is too busy. Please try your request again later."

DOCUMENTED = {
    errors.ReplayIdLostError: [REPLAY_ID],
    errors.SessionExpiredError: ["401::Authentication invalid", "401::Request requires authentication"],
    errors.ServiceUnavailableError: [
        "403::Unknown client",
        "402::Unknown client",
        "403::Client has not completed handshake",
        TOO_BUSY,
        "500::Internal server error",
    ],
    errors.ThrottledError: [
        "403::Organization concurrent user limit exceeded",
        "403::Subscription limit exceeded for this topic",
        "403::To protect all customers from excessive use and Denial of Service attacks, we limit the number of "
        "simultaneous connections per server. Your request has been denied because this limit has been exceeded. "
        "Please try your request again later.",
    ],
    errors.QuotaExceededError: ["403::Organization total events daily limit exceeded"],
    errors.TopicNotFoundError: [
        "400::The channel you requested to subscribe to does not exist {/topic/T}",
        "400::The channel you requested to subscribe to doesn’t exist {/topic/T}",  # noqa: RUF001 - as documented
        "404::Unknown channel",
        "404::channel names may not vary only by case",
    ],
    errors.AccessDeniedError: [
        "403:denied_by_security_policy:create_denied",
        "403::Cannot create channel /topic/T",
        "403::Subscriber does not have access to the entity in this topic",
        "403::Subscriber does not have access to all fields referenced in the where clause of the PushTopic",
        "403::Restricted channel",
        "403::User not enabled for streaming",
        "403::User not allowed to subscribe CDC without View All Data permissions",
        "403::No access on channel",
        "403::Handshake denied",
    ],
    errors.ConfigurationError: [
        "400::API version in the URI is mandatory. URI format: '/cometd/66.0'",
        "400::Unsupported API version. Only API versions '37.0' and later are supported. URI format: '/cometd/66.0'",
    ],
    errors.RequestRejectedError: [
        "400::Invalid connection type {websocket}",
        "400::Channel name not specified",
        "400::Channel subscriptions must start with a leading '/'",
        "400::Query fields {Nope__c} do not exist on the topic entity",
        "400::Client 3x1 has established a session, but no BAYEUX_BROWSER cookie present",
        "400::Authenticated user id does not match the session's user id",
        "400::The replayId for channel {/topic/T} wasn't found using the provided replay ID map {/topic/U=-1}",
        "403::Unable to create channel dynamically, maximum channel limit has been exceeded",
        "413::Maximum Request Size Exceeded",
    ],
}


@pytest.mark.parametrize(("expected", "text"), [(error, text) for error, texts in DOCUMENTED.items() for text in texts])
def test_every_documented_error(expected: type[Exception], text: str) -> None:
    error = error_from_reply(text, topic="/topic/T")
    assert type(error) is expected
    assert "/topic/T: " in str(error)
    assert text[:40] in str(error).replace('"', "'")


@pytest.mark.parametrize(("expected", "text"), [(error, text) for error, texts in DOCUMENTED.items() for text in texts])
def test_the_nested_reason_decides(expected: type[Exception], text: str) -> None:
    assert type(error_from_reply("403::Handshake denied", text, topic="/topic/T")) is expected


def test_only_the_replay_error_allows_a_jump() -> None:
    lost = {text for texts in DOCUMENTED.values() for text in texts if error_from_reply(text, topic="/u/x").replay_lost}
    assert lost == {REPLAY_ID}


def test_a_reason_without_a_code_is_read_too() -> None:
    reason = "Server is too busy. Please try your request again later."
    assert type(error_from_reply("400::whatever", reason, topic="/u/x")) is errors.ServiceUnavailableError
    assert type(error_from_reply("403::Handshake denied", "something new", topic="/u/x")) is errors.AccessDeniedError


@pytest.mark.parametrize("error", [None, "", "  ", "no code at all", "599::tomorrow's fault", "99999"])
def test_what_nobody_knows_may_pass(error: str | None) -> None:
    got = error_from_reply(error, None, topic="/u/x")
    assert type(got) is errors.ServiceUnavailableError
    assert got.retriable


def test_an_unknown_refusal_of_this_client_is_not_retried() -> None:
    assert type(error_from_reply("418::I'm a teapot", topic="/u/x")) is errors.RequestRejectedError


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, errors.ServiceUnavailableError),
        (200, errors.ServiceUnavailableError),
        (302, errors.ServiceUnavailableError),
        (400, errors.RequestRejectedError),
        (401, errors.SessionExpiredError),
        (403, errors.AccessDeniedError),
        (404, errors.ConfigurationError),
        (413, errors.RequestRejectedError),
        (420, errors.ThrottledError),
        (429, errors.ThrottledError),
        (500, errors.ServiceUnavailableError),
        (502, errors.ServiceUnavailableError),
        (503, errors.ServiceUnavailableError),
    ],
)
def test_http_statuses(status: int | None, expected: type[Exception]) -> None:
    error = error_from_status(status, "<html>maintenance</html>", topic="/event/A__e")
    assert type(error) is expected
    assert "/event/A__e: " in str(error)
    assert "maintenance" in str(error)
    assert status is None or f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "ClientConnectorCertificateError: Cannot connect to host x:443 ssl:True [SSLCertVerificationError: (1, '[SSL: "
        "CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate')]",
        "ClientConnectorSSLError: Cannot connect to host x:443 ssl:default [[SSL: WRONG_VERSION_NUMBER] wrong version]",
    ],
)
def test_a_certificate_that_is_not_trusted_is_not_retried(text: str) -> None:
    error = error_from_status(None, text, topic="/u/x")
    assert type(error) is errors.ConfigurationError
    assert "tls_ca" in str(error)


def test_no_answer_at_all_has_a_text_too() -> None:
    assert "no answer" in str(error_from_status(None, topic="/u/x"))


def test_the_message_names_topic_cause_and_remedy() -> None:
    error = error_from_reply(REPLAY_ID, topic="/topic/T?Status='Open'")
    for part in ("/topic/T?Status='Open'", "replay ID", "{12}", "may be lost", "on_invalid_replay='earliest'"):
        assert part in str(error)
    assert "37.0" in str(error_from_reply("400::Unsupported API version.", topic="/u/x"))


def test_a_long_text_is_cut() -> None:
    long = "x" * 100_000
    for error in (
        error_from_reply(f"400::{long}", long, topic="/u/x"),
        error_from_status(500, long, topic="/u/x"),
        error_from_status(None, f"SSLError {long}", topic="/u/x"),
    ):
        assert len(str(error)) < 2_000
