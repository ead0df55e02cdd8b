"""Mapping of errors of the Pub/Sub API and of gRPC to errors of this package.

The ``error-code`` trailer decides first, the gRPC status second: Salesforce sends the same fault with different
statuses (``service.unavailable`` has INTERNAL). A status without a code is a transport fault, and is retriable. Source:
the error-code table of the Pub/Sub API guide, "Handling errors".

Pure: does not import gRPC; statuses are names or numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ContactError,
    PublishError,
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
from airflow_provider_sfstream.redaction import quoted

CODE_PREFIX = "sfdc.platform.eventbus.grpc."
"""Prefix of every ``error-code`` trailer."""

STATUS_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""gRPC status names by number."""


class Rule(NamedTuple):
    """Meaning of a code or text: the error class, the cause and the remedy."""

    error: type[SalesforceStreamError]
    happened: str
    remedy: str

    def report(self, subject: str, reported: Iterable[str]) -> SalesforceStreamError:
        """Return the error; its message begins with the subject and contains the reported details."""
        return self.error(f"{subject}: {self.happened} ({', '.join(reported)}). {self.remedy}")

    def report_response(
        self, subject: str, status: int | None, code: str | None, message: str | None
    ) -> SalesforceStreamError:
        """Return the error for an HTTP response, or for a missing one (``status`` is ``None``)."""
        text = quoted(message) if message and message.strip() else None
        reported = [detail for detail in (None if status is None else f"HTTP {status}", code, text) if detail]
        return self.report(subject, reported or ["no answer"])


_RESUME = "Nothing that was received is lost: resume from the last replay ID."
_PERMISSION = "Grant the user read access to the event object or channel in Salesforce (permission set), then retry."
_REPORT = "A retry cannot succeed: check the arguments, and report the error if they are correct."
_LOST = (
    "Events after the stored position may be lost. Nothing was moved. on_invalid_replay='earliest' continues with the "
    "oldest retained event, 'latest' with new ones; both record a gap."
)

_UNAVAILABLE = Rule(ServiceUnavailableError, "the service is temporarily unavailable", _RESUME)
_RESTART = Rule(ServiceUnavailableError, "the event bus ended the stream", _RESUME)
_REJECTED = Rule(RequestRejectedError, "Salesforce rejected the request", _REPORT)
_SESSION = Rule(
    SessionExpiredError, "the session is no longer valid", "Log in again and resume from the last replay ID."
)
_DENIED = Rule(AccessDeniedError, "the user has no access to it", _PERMISSION)
_THROTTLED = Rule(ThrottledError, "the service requires fewer or slower requests", "Resume after a pause.")
_REPLAY_LOST = Rule(ReplayIdLostError, "the replay ID is malformed, unknown, aged out, or the stream was reset", _LOST)
_UNKNOWN_TOPIC = Rule(
    TopicNotFoundError,
    "it does not exist, or is hidden from this user",
    "Check the name (upper and lower case matter), that the event or channel is deployed, and the user's permissions.",
)
_UNKNOWN_MANAGED = Rule(
    TopicNotFoundError,
    "Salesforce did not find the managed subscription",
    "Check its name, and that it was not deleted (which discards its stored position). A new or changed one is "
    "visible after about two minutes.",
)
_DELETED_MANAGED = Rule(
    TopicNotFoundError,
    "the managed subscription was deleted in Salesforce, and its stored position with it",
    "Create the subscription again on the same topic and clear the task: the drain continues after its own recorded "
    "position, independent of the start of the subscription. No event is lost while Salesforce retains it.",
)
_BUSY_MANAGED = Rule(
    SubscriptionBusyError,
    "another stream uses the managed subscription, which supports one stream at a time",
    "Find the other run, trigger or program that uses it: each consumer needs its own managed subscription. "
    "Salesforce releases the subscription within 15 seconds after a clean end, and about 15 minutes after a lost "
    "connection. No event is lost. Retry then.",
)
_STOPPED_MANAGED = Rule(
    SubscriptionStoppedError,
    "the managed subscription is stopped, and Salesforce discarded its stored position",
    "Set its state to RUN in Salesforce and clear the task: the drain continues after its own recorded position, "
    "independent of the start of the subscription. No event is lost while Salesforce retains it.",
)
_UNCOMMITTED_MANAGED = Rule(
    ServiceUnavailableError,
    "Salesforce ended the stream, because it received no commit for 1,800 seconds",
    "No event is lost: events after the committed position are delivered again.",
)
_SCHEMA_DENIED = Rule(AccessDeniedError, "the schema does not exist, or is hidden from this user", _PERMISSION)

_BY_CODE: dict[str, Rule] = {
    "service.unavailable": _UNAVAILABLE,
    "service.auth.error": _SESSION,
    "service.auth.refresh.invalid": _SESSION,
    "service.auth.headers.invalid": Rule(
        AuthenticationError,
        "Salesforce refused the login headers (access token, instance URL, organization id)",
        "Check organization_id and instance_url of the connection, and that the token belongs to that org.",
    ),
    "service.tenant.license": Rule(
        AccessDeniedError, "the org is not licensed for it", "Ask Salesforce to license the Pub/Sub API for this org."
    ),
    "service.protection.triggered": _THROTTLED,
    "service.protection.stream.limit.triggered": _THROTTLED,
    "concurrent.client.limit.exceeded": Rule(
        ThrottledError, "too many clients are connected to the org", "Stop some subscribers, or resume after a pause."
    ),
    "topic.not.found": _UNKNOWN_TOPIC,
    "topic.meta.permission": _DENIED,
    "subscription.topic.cannot.subscribe": _DENIED,
    "topic.api.unavailable": _UNAVAILABLE,
    "schema.api.unavailable": _UNAVAILABLE,
    "topic.validation.empty": _REJECTED,
    "schema.validation.failed": _REJECTED,
    "schema.meta.permission": _SCHEMA_DENIED,
    "subscription.fetch.replayid.corrupted": _REPLAY_LOST,
    "subscription.fetch.replayid.validation.failed": Rule(
        ReplayIdLostError, "the replay ID is empty or not a replay ID", _LOST
    ),
    "subscription.fetch.requested.events.invalid": _REJECTED,
    "subscription.fetch.topic.mismatch": _REJECTED,
    "subscription.fetch.overflow": Rule(
        ThrottledError, "the client requested more events than it read", "Resume from the last replay ID after a pause."
    ),
    "subscription.fetch.replay.repeated": _RESTART,
    "subscription.fetch.request.invalid": _REJECTED,
    "subscription.limit.exceeded": Rule(
        QuotaExceededError,
        "the org's event delivery allocation of the last 24 hours is used up",
        "Wait until it refills, or buy more; an immediate retry cannot succeed. Retained events remain available.",
    ),
    "subscription.internal.error": _RESTART,
    "publish.event.count.invalid": _REJECTED,
    "publish.topic.mismatch": _REJECTED,
    "publish.topic.validation.empty": _REJECTED,
    "publish.auth.refresh.invalid": _REJECTED,
    "publish.stream.sweeper.timeout": Rule(
        ServiceUnavailableError, "the publish stream was idle for too long", "Open it again and continue to publish."
    ),
    "managed.subscription.already.active": _BUSY_MANAGED,
    "managed.subscription.config.stopped": _STOPPED_MANAGED,
    "managed.subscription.config.deleted": _DELETED_MANAGED,
    "managed.subscription.developer.name.not.found": _UNKNOWN_MANAGED,
    "managed.subscription.subscription.id.not.found": _UNKNOWN_MANAGED,
    "managed.subscription.subscription.id.invalid": _REJECTED,
    "managed.subscription.id.or.developer.name.empty": _REJECTED,
    "managed.subscription.fetch.request.events.invalid": _REJECTED,
    "managed.subscription.fetch.request.invalid": _REJECTED,
    "managed.subscription.fetch.request.commit.request.restricted": _REJECTED,
    "managed.subscription.fetch.request.auth.request.restricted": _REJECTED,
}

_WRONG_SERVICE = Rule(
    ConfigurationError, "the endpoint does not serve the Pub/Sub API", "Check pubsub_endpoint of the connection."
)
_TRANSPORT = Rule(ServiceUnavailableError, "the connection failed", _RESUME)
_NO_ANSWER = Rule(
    ContactError, "the endpoint does not answer", f"{_RESUME} Check pubsub_endpoint, the network and its proxy."
)
_BY_STATUS: dict[str, Rule] = {
    "OK": Rule(ServiceUnavailableError, "the service ended the stream", _RESUME),
    "INVALID_ARGUMENT": _REJECTED,
    "FAILED_PRECONDITION": _REJECTED,
    "OUT_OF_RANGE": _REJECTED,
    "UNIMPLEMENTED": _WRONG_SERVICE,
    "NOT_FOUND": _UNKNOWN_TOPIC,
    "ALREADY_EXISTS": _BUSY_MANAGED,
    "PERMISSION_DENIED": _DENIED,
    "UNAUTHENTICATED": _SESSION,
    "RESOURCE_EXHAUSTED": _THROTTLED,
    "DEADLINE_EXCEEDED": _NO_ANSWER,
    "UNAVAILABLE": Rule(
        ServiceUnavailableError,
        "the endpoint cannot be reached or dropped the connection",
        f"{_RESUME} If it always fails: check pubsub_endpoint, the network and its proxy.",
    ),
}

_TLS = Rule(
    ConfigurationError,
    "TLS with the endpoint failed",
    "Check tls_ca (the certificate authority of the endpoint or of a proxy on the way) and that the port of "
    "pubsub_endpoint uses TLS. Nothing was read.",
)
_TOO_LARGE = Rule(RequestRejectedError, "a message is larger than this client accepts", _REPORT)
_BY_DETAILS: tuple[tuple[str, str, Rule], ...] = (
    ("UNAVAILABLE", "certificate_verify_failed", _TLS),
    ("UNAVAILABLE", "wrong_version_number", _TLS),
    ("UNAVAILABLE", "is not in peer certificate", _TLS),
    ("UNAVAILABLE", "hostname verification", _TLS),
    ("UNAVAILABLE", "http1.x server", _WRONG_SERVICE),
    ("UNAVAILABLE", "failed to connect to all addresses", _NO_ANSWER),
    ("UNAVAILABLE", "dns resolution failed", _NO_ANSWER),
    ("UNAVAILABLE", "ping timeout", _NO_ANSWER),
    ("UNAVAILABLE", "keepalive watchdog timeout", _NO_ANSWER),
    ("RESOURCE_EXHAUSTED", "larger than max", _TOO_LARGE),
    ("INVALID_ARGUMENT", "replay id", _REPLAY_LOST),
    ("DEADLINE_EXCEEDED", "commitreplayrequest", _UNCOMMITTED_MANAGED),
)
"""Rules for a status with a certain text: (status, part of the lower-case text, rule)."""

_BY_RESULT: tuple[tuple[str, Rule], ...] = (
    (
        "LIMIT_EXCEEDED",
        Rule(
            QuotaExceededError,
            "the org's allocation of events published in an hour is used up",
            "Wait until it refills, then publish the events again that were not accepted.",
        ),
    ),
    (
        "PLATFORM_EVENT_PUBLISHING_UNAVAILABLE",
        Rule(
            ServiceUnavailableError,
            "the event was not published, because the service is temporarily unavailable",
            "Publish it again.",
        ),
    ),
)
"""Parts of the error text of one refused event of a publish request. Source: "Platform Event Error Status Codes" of the
Platform Events Developer Guide, which documents them for REST, SOAP and Apex."""
_REFUSED = Rule(PublishError, "the event was not published", "Correct it, then publish it again.")


def error_from(
    code: str | None, status: str | int | None, details: str | None, *, topic: str, rpc_id: str | None = None
) -> SalesforceStreamError:
    """Return the error for a failed call, ready to raise.

    :param code: the ``error-code`` trailer, with or without its prefix; ``None`` if missing.
    :param status: the gRPC status, by name or number; ``None`` if missing.
    :param details: the status text.
    :param topic: the subject of the call: a topic, or another name for the message.
    :param rpc_id: the ``rpc-id`` trailer, which Salesforce support requires.
    """
    suffix = (code or "").strip().removeprefix(CODE_PREFIX)
    name = _status_name(status)
    rule = _rule(suffix, name, details or "")
    reported = [text for text in (suffix or None, name) if text]
    if details:
        reported.append(quoted(details))
    if rpc_id and rpc_id not in (details or ""):
        reported.append(f"rpc id {rpc_id}")
    return rule.report(topic, reported)


def error_from_result(text: str, *, topic: str) -> SalesforceStreamError:
    """Return the error for one failed event in the response to a publish request, ready to raise.

    :param text: of the error in the event's result.
    """
    rule = next((rule for part, rule in _BY_RESULT if part in text), _REFUSED)
    return rule.report(topic, [quoted(text or "no reason reported")])


def _status_name(status: str | int | None) -> str:
    if isinstance(status, int):
        return STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else "UNKNOWN"
    return (status or "UNKNOWN").upper()


def _rule(suffix: str, status: str, details: str) -> Rule:
    if suffix in _BY_CODE:
        return _BY_CODE[suffix]
    lower = details.lower()
    for by_status, part, rule in _BY_DETAILS:
        if status == by_status and part in lower:
            return rule
    return _BY_STATUS.get(status, _TRANSPORT)
