"""Errors that Salesforce reports, by table of the package and by the expected exception."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AlreadyExistsError,
    AuthenticationError,
    ConfigurationError,
    ContactError,
    QuotaExceededError,
    ReplayIdLostError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
    ThrottledError,
    TopicNotFoundError,
)

Cases = dict[type[SalesforceStreamError], list[Any]]

PUBSUB_CODES: Cases = {
    ServiceUnavailableError: [
        "service.unavailable",
        "topic.api.unavailable",
        "schema.api.unavailable",
        "subscription.fetch.replay.repeated",
        "subscription.internal.error",
        "publish.stream.sweeper.timeout",
    ],
    SessionExpiredError: ["service.auth.error", "service.auth.refresh.invalid"],
    AuthenticationError: ["service.auth.headers.invalid"],
    AccessDeniedError: [
        "service.tenant.license",
        "topic.meta.permission",
        "subscription.topic.cannot.subscribe",
        "schema.meta.permission",
    ],
    ThrottledError: [
        "service.protection.triggered",
        "service.protection.stream.limit.triggered",
        "concurrent.client.limit.exceeded",
        "subscription.fetch.overflow",
    ],
    SubscriptionBusyError: ["managed.subscription.already.active"],
    SubscriptionStoppedError: ["managed.subscription.config.stopped"],
    TopicNotFoundError: [
        "topic.not.found",
        "managed.subscription.config.deleted",
        "managed.subscription.developer.name.not.found",
        "managed.subscription.subscription.id.not.found",
    ],
    ReplayIdLostError: [
        "subscription.fetch.replayid.corrupted",
        "subscription.fetch.replayid.validation.failed",
    ],
    QuotaExceededError: ["subscription.limit.exceeded"],
    RequestRejectedError: [
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
"""``error-code`` trailers of the Pub/Sub API."""

PUBSUB_STATUSES: Cases = {
    ServiceUnavailableError: [
        ("UNAVAILABLE", "RST_STREAM closed stream. HTTP/2 error code: NO_ERROR"),
        ("INTERNAL", "Received RST_STREAM with code 0 (Call ended without gRPC status)"),
        ("INTERNAL", ""),
        ("CANCELLED", ""),
        ("UNKNOWN", ""),
        ("DEADLINE_EXCEEDED", "No CommitReplayRequests sent in 1800 seconds."),
        ("ABORTED", ""),
        ("DATA_LOSS", ""),
        ("OK", ""),
        (None, None),
    ],
    ContactError: [
        ("DEADLINE_EXCEEDED", ""),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: ipv4:192.0.2.1:7443: timed out"),
        ("UNAVAILABLE", "DNS resolution failed for api.pubsub.salesforce.com:7443"),
        ("UNAVAILABLE", "ping timeout"),
        ("UNAVAILABLE", "keepalive watchdog timeout"),
    ],
    SubscriptionBusyError: [
        ("ALREADY_EXISTS", ""),
    ],
    SessionExpiredError: [
        ("UNAUTHENTICATED", ""),
    ],
    AccessDeniedError: [
        ("PERMISSION_DENIED", ""),
    ],
    TopicNotFoundError: [
        ("NOT_FOUND", ""),
    ],
    ThrottledError: [
        ("RESOURCE_EXHAUSTED", ""),
    ],
    RequestRejectedError: [
        ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)"),
        ("INVALID_ARGUMENT", ""),
    ],
    ReplayIdLostError: [
        ("INVALID_ARGUMENT", "The Replay ID validation failed"),
    ],
    ConfigurationError: [
        ("UNIMPLEMENTED", ""),
        ("UNAVAILABLE", "SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED"),
        ("UNAVAILABLE", "OPENSSL_internal:WRONG_VERSION_NUMBER"),
        ("UNAVAILABLE", "Trying to connect an http1.x server"),
    ],
}
"""gRPC statuses without an ``error-code`` trailer, with their texts."""

REPLAY_ID = (
    "400::The replayId {12} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to "
    "replay only new events."
)
TOO_BUSY = "503::Server is too busy. Please try your request again later."

STREAMING_REPLIES: Cases = {
    ReplayIdLostError: [REPLAY_ID],
    SessionExpiredError: ["401::Authentication invalid", "401::Request requires authentication"],
    ServiceUnavailableError: [
        "403::Unknown client",
        "402::Unknown client",
        "403::Client has not completed handshake",
        TOO_BUSY,
        "500::Internal server error",
    ],
    ThrottledError: [
        "403::Organization concurrent user limit exceeded",
        "403::Subscription limit exceeded for this topic",
        "403::To protect all customers from excessive use and Denial of Service attacks, we limit the number of "
        "simultaneous connections per server. Your request has been denied because this limit has been exceeded. "
        "Please try your request again later.",
    ],
    QuotaExceededError: ["403::Organization total events daily limit exceeded"],
    TopicNotFoundError: [
        "400::The channel you requested to subscribe to does not exist {/topic/T}",
        "400::The channel you requested to subscribe to doesn’t exist {/topic/T}",  # noqa: RUF001 - as documented
        "404::Unknown channel",
        "404::channel names may not vary only by case",
    ],
    AccessDeniedError: [
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
    ConfigurationError: [
        "400::API version in the URI is mandatory. URI format: '/cometd/66.0'",
        "400::Unsupported API version. Only API versions '37.0' and later are supported. URI format: '/cometd/66.0'",
    ],
    RequestRejectedError: [
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
"""The documented errors of CometD replies."""

STREAMING_STATUSES: Cases = {
    ServiceUnavailableError: [None, 200, 302, 500, 502, 503],
    RequestRejectedError: [400, 413],
    SessionExpiredError: [401],
    AccessDeniedError: [403],
    ConfigurationError: [404],
    ThrottledError: [420, 429],
}
"""HTTP statuses of CometD calls; ``None``: no response."""

TOOLING: Cases = {
    SessionExpiredError: [
        (401, "INVALID_SESSION_ID"),
        (403, "INVALID_SESSION_ID"),
        (401, "INVALID_AUTH_HEADER"),
    ],
    AccessDeniedError: [
        (403, "INSUFFICIENT_ACCESS"),
        (400, "INSUFFICIENT_ACCESS_OR_READONLY"),
        (403, "API_DISABLED_FOR_ORG"),
        (403, "FUNCTIONALITY_NOT_ENABLED"),
        (403, "SOMETHING_ELSE"),
    ],
    AlreadyExistsError: [(400, "DUPLICATE_DEVELOPER_NAME"), (400, "DUPLICATE_VALUE")],
    ConfigurationError: [
        (400, "INVALID_INPUT"),
        (400, "FIELD_INTEGRITY_EXCEPTION"),
        (400, "REQUIRED_FIELD_MISSING"),
        (400, "MALFORMED_ID"),
        (400, "INVALID_TYPE"),
        (404, "UNSUPPORTED_API_VERSION"),
        (404, "NOT_FOUND"),
        (410, None),
        (302, None),
        (200, None),
    ],
    QuotaExceededError: [(403, "REQUEST_LIMIT_EXCEEDED"), (400, "LIMIT_EXCEEDED")],
    ThrottledError: [(429, None), (420, None)],
    ServiceUnavailableError: [
        (503, "SERVER_UNAVAILABLE"),
        (400, "UNABLE_TO_LOCK_ROW"),
        (500, "UNKNOWN_EXCEPTION"),
        (500, None),
        (503, None),
        (None, None),
    ],
    RequestRejectedError: [(400, "MALFORMED_QUERY"), (400, "INVALID_FIELD"), (405, None), (400, None)],
}
"""HTTP statuses and error codes of the Tooling API."""

QUERIES: Cases = {
    SessionExpiredError: [(401, "INVALID_SESSION_ID"), (403, "INVALID_SESSION_ID"), (401, None)],
    AccessDeniedError: [
        (400, "INVALID_TYPE"),
        (404, "NOT_FOUND"),
        (403, "API_DISABLED_FOR_ORG"),
        (403, "SOMETHING_ELSE"),
        (400, "FEATURENOTENABLED"),
    ],
    QuotaExceededError: [(403, "REQUEST_LIMIT_EXCEEDED"), (400, "EXCEEDEDQUOTA")],
    ThrottledError: [(429, None)],
    ServiceUnavailableError: [
        (400, "QUERY_TIMEOUT"),
        (400, "INVALID_FIELD"),
        (400, "INVALID_QUERY_LOCATOR"),
        (500, "UNKNOWN_EXCEPTION"),
        (503, None),
        (None, None),
    ],
    RequestRejectedError: [(400, "MALFORMED_QUERY"), (414, None), (400, "INVALIDENTITY")],
    ConfigurationError: [(404, None), (200, None), (302, None), (404, "UNSUPPORTED_API_VERSION")],
}
"""HTTP statuses and error codes of queries, describes and query jobs."""
