"""The error table: every known code, the statuses behind it, and what the messages say."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.protocol.errors import CODE_PREFIX, STATUS_NAMES, error_from

BY_CODE = {
    errors.ServiceUnavailableError: [
        "service.unavailable",
        "topic.api.unavailable",
        "schema.api.unavailable",
        "subscription.fetch.replay.repeated",
        "subscription.internal.error",
        "publish.stream.sweeper.timeout",
    ],
    errors.SessionExpiredError: ["service.auth.error", "service.auth.refresh.invalid"],
    errors.AuthenticationError: ["service.auth.headers.invalid"],
    errors.AccessDeniedError: [
        "service.tenant.license",
        "topic.meta.permission",
        "subscription.topic.cannot.subscribe",
        "schema.meta.permission",
    ],
    errors.ThrottledError: [
        "service.protection.triggered",
        "service.protection.stream.limit.triggered",
        "concurrent.client.limit.exceeded",
        "subscription.fetch.overflow",
    ],
    errors.SubscriptionBusyError: ["managed.subscription.already.active"],
    errors.SubscriptionStoppedError: ["managed.subscription.config.stopped"],
    errors.TopicNotFoundError: [
        "topic.not.found",
        "managed.subscription.config.deleted",
        "managed.subscription.developer.name.not.found",
        "managed.subscription.subscription.id.not.found",
    ],
    errors.ReplayIdLostError: [
        "subscription.fetch.replayid.corrupted",
        "subscription.fetch.replayid.validation.failed",
    ],
    errors.QuotaExceededError: ["subscription.limit.exceeded"],
    errors.RequestRejectedError: [
        "topic.validation.empty",
        "schema.validation.failed",
        "subscription.fetch.requested.events.invalid",
        "subscription.fetch.topic.mismatch",
        "subscription.fetch.request.invalid",
        "publish.event.count.invalid",
        "publish.topic.mismatch",
        "publish.topic.validation.empty",
        "publish.auth.refresh.invalid",
        "managed.subscription.subscription.id.invalid",
        "managed.subscription.id.or.developer.name.empty",
        "managed.subscription.fetch.request.events.invalid",
        "managed.subscription.fetch.request.invalid",
        "managed.subscription.fetch.request.commit.request.restricted",
        "managed.subscription.fetch.request.auth.request.restricted",
    ],
}


@pytest.mark.parametrize(("expected", "code"), [(error, code) for error, codes in BY_CODE.items() for code in codes])
def test_a_code_decides_whatever_the_status(expected: type[Exception], code: str) -> None:
    for status in (*STATUS_NAMES, None):
        for written in (code, CODE_PREFIX + code):
            assert type(error_from(written, status, "some text", topic="/event/A__e")) is expected


@pytest.mark.parametrize(
    ("status", "details", "expected"),
    [
        ("UNAVAILABLE", "RST_STREAM closed stream. HTTP/2 error code: NO_ERROR", errors.ServiceUnavailableError),
        (
            "INTERNAL",
            "Received RST_STREAM with code 0 (Call ended without gRPC status)",
            errors.ServiceUnavailableError,
        ),
        ("INTERNAL", "", errors.ServiceUnavailableError),
        ("CANCELLED", "", errors.ServiceUnavailableError),
        ("UNKNOWN", "", errors.ServiceUnavailableError),
        ("DEADLINE_EXCEEDED", "", errors.ServiceUnavailableError),
        ("DEADLINE_EXCEEDED", "No CommitReplayRequests sent in 1800 seconds.", errors.ServiceUnavailableError),
        ("ALREADY_EXISTS", "", errors.SubscriptionBusyError),
        ("ABORTED", "", errors.ServiceUnavailableError),
        ("DATA_LOSS", "", errors.ServiceUnavailableError),
        ("OK", "", errors.ServiceUnavailableError),
        (None, None, errors.ServiceUnavailableError),
        ("UNAUTHENTICATED", "", errors.SessionExpiredError),
        ("PERMISSION_DENIED", "", errors.AccessDeniedError),
        ("NOT_FOUND", "", errors.TopicNotFoundError),
        ("RESOURCE_EXHAUSTED", "", errors.ThrottledError),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)", errors.RequestRejectedError),
        ("INVALID_ARGUMENT", "", errors.RequestRejectedError),
        ("INVALID_ARGUMENT", "The Replay ID validation failed", errors.ReplayIdLostError),
        ("UNIMPLEMENTED", "", errors.ConfigurationError),
        ("UNAVAILABLE", "SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", errors.ConfigurationError),
        ("UNAVAILABLE", "OPENSSL_internal:WRONG_VERSION_NUMBER", errors.ConfigurationError),
        ("UNAVAILABLE", "Trying to connect an http1.x server", errors.ConfigurationError),
    ],
)
def test_without_a_code_the_status_and_its_text_decide(
    status: str | None, details: str | None, expected: type[Exception]
) -> None:
    assert type(error_from(None, status, details, topic="/event/A__e")) is expected
    assert type(error_from("some.code.of.tomorrow", status, details, topic="/event/A__e")) is expected


def test_a_status_may_be_a_number() -> None:
    for number, name in enumerate(STATUS_NAMES):
        by_number = error_from(None, number, None, topic="/event/A__e")
        assert str(by_number) == str(error_from(None, name, None, topic="/event/A__e"))
        assert type(by_number) is type(error_from(None, name, None, topic="/event/A__e"))
    assert error_from(None, 99, None, topic="/event/A__e").retriable


def test_permission_quota_and_rejections_are_never_retried() -> None:
    for code in ("subscription.limit.exceeded", "topic.meta.permission", "subscription.fetch.topic.mismatch"):
        error = error_from(code, "INTERNAL", None, topic="/event/A__e")
        assert not error.retriable
        assert not error.invalidates_token


def test_the_message_names_topic_cause_remedy_and_rpc_id() -> None:
    error = error_from(
        CODE_PREFIX + "subscription.fetch.replayid.corrupted", 3, "The Replay ID val", topic="/event/A__e", rpc_id="r-1"
    )
    assert error.replay_lost
    for part in ("/event/A__e", "replay ID", "replayid.corrupted", "The Replay ID val", "r-1", "on_invalid_replay"):
        assert part in str(error)


def test_a_long_text_is_cut() -> None:
    assert len(str(error_from(None, "UNAVAILABLE", "x" * 100_000, topic="/event/A__e"))) < 1_500
