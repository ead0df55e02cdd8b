"""Mapping of errors of the Pub/Sub API and of gRPC to errors of this package.

The ``error-code`` trailer decides first, the gRPC status second: Salesforce sends the same fault with different
statuses (``service.unavailable`` has INTERNAL). A status without a code is a transport fault, and is retriable. Source:
the error-code table of the Pub/Sub API guide, "Handling errors".
"""

from __future__ import annotations

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
    SubscriptionBusyError,
    SubscriptionStoppedError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.salesforce.errors import rules
from airflow_provider_sfstream.salesforce.errors.rules import Rule, by_code

CODE_PREFIX = "sfdc.platform.eventbus.grpc."
"""Prefix of every ``error-code`` trailer."""

_PERMISSION = "Grant the user read access to the event object or channel in Salesforce (permission set), then retry."
_RESTART = Rule(ServiceUnavailableError, "the event bus ended the stream", rules.RESUME)
_DENIED = Rule(AccessDeniedError, "the user has no access to it", _PERMISSION)
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

_BY_CODE = by_code(
    {
        rules.UNAVAILABLE: "service.unavailable topic.api.unavailable schema.api.unavailable",
        rules.SESSION: "service.auth.error service.auth.refresh.invalid",
        Rule(
            AuthenticationError,
            "Salesforce refused the login headers (access token, instance URL, organization id)",
            "Check organization_id and instance_url of the connection, and that the token belongs to that org.",
        ): "service.auth.headers.invalid",
        Rule(
            AccessDeniedError,
            "the org is not licensed for it",
            "Ask Salesforce to license the Pub/Sub API for this org.",
        ): "service.tenant.license",
        rules.THROTTLED: "service.protection.triggered service.protection.stream.limit.triggered",
        Rule(
            ThrottledError,
            "too many clients are connected to the org",
            "Stop some subscribers, or resume after a pause.",
        ): "concurrent.client.limit.exceeded",
        _UNKNOWN_TOPIC: "topic.not.found",
        _DENIED: "topic.meta.permission subscription.topic.cannot.subscribe",
        rules.REJECTED: (
            "topic.validation.empty schema.validation.failed subscription.fetch.requested.events.invalid "
            "subscription.fetch.topic.mismatch subscription.fetch.request.invalid publish.event.count.invalid "
            "publish.topic.mismatch publish.topic.validation.empty publish.auth.refresh.invalid "
            "managed.subscription.subscription.id.invalid managed.subscription.id.or.developer.name.empty "
            "managed.subscription.fetch.request.events.invalid managed.subscription.fetch.request.invalid "
            "managed.subscription.fetch.request.commit.request.restricted "
            "managed.subscription.fetch.request.auth.request.restricted"
        ),
        _SCHEMA_DENIED: "schema.meta.permission",
        rules.REPLAY_LOST: "subscription.fetch.replayid.corrupted",
        Rule(
            ReplayIdLostError, "the replay ID is empty or not a replay ID", rules.REPLAY_REMEDY
        ): "subscription.fetch.replayid.validation.failed",
        Rule(
            ThrottledError,
            "the client requested more events than it read",
            "Resume from the last replay ID after a pause.",
        ): "subscription.fetch.overflow",
        _RESTART: "subscription.fetch.replay.repeated subscription.internal.error",
        rules.DELIVERIES_USED_UP: "subscription.limit.exceeded",
        Rule(
            ServiceUnavailableError,
            "the publish stream was idle for too long",
            "Open it again and continue to publish.",
        ): "publish.stream.sweeper.timeout",
        _BUSY_MANAGED: "managed.subscription.already.active",
        _STOPPED_MANAGED: "managed.subscription.config.stopped",
        _DELETED_MANAGED: "managed.subscription.config.deleted",
        _UNKNOWN_MANAGED: (
            "managed.subscription.developer.name.not.found managed.subscription.subscription.id.not.found"
        ),
    }
)

_WRONG_SERVICE = Rule(
    ConfigurationError, "the endpoint does not serve the Pub/Sub API", "Check pubsub_endpoint of the connection."
)
_NO_ANSWER = Rule(
    ContactError, "the endpoint does not answer", f"{rules.RESUME} Check pubsub_endpoint, the network and its proxy."
)
_BY_STATUS: dict[str, Rule] = {
    "OK": Rule(ServiceUnavailableError, "the service ended the stream", rules.RESUME),
    "INVALID_ARGUMENT": rules.REJECTED,
    "FAILED_PRECONDITION": rules.REJECTED,
    "OUT_OF_RANGE": rules.REJECTED,
    "UNIMPLEMENTED": _WRONG_SERVICE,
    "NOT_FOUND": _UNKNOWN_TOPIC,
    "ALREADY_EXISTS": _BUSY_MANAGED,
    "PERMISSION_DENIED": _DENIED,
    "UNAUTHENTICATED": rules.SESSION,
    "RESOURCE_EXHAUSTED": rules.THROTTLED,
    "DEADLINE_EXCEEDED": _NO_ANSWER,
    "UNAVAILABLE": Rule(
        ServiceUnavailableError,
        "the endpoint cannot be reached or dropped the connection",
        f"{rules.RESUME} If it always fails: check pubsub_endpoint, the network and its proxy.",
    ),
}

_TLS = Rule(
    ConfigurationError,
    "TLS with the endpoint failed",
    "Check tls_ca (the certificate authority of the endpoint or of a proxy on the way) and that the port of "
    "pubsub_endpoint uses TLS. Nothing was read.",
)
_TOO_LARGE = Rule(RequestRejectedError, "a message is larger than this client accepts", rules.REPORT)
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
    ("INVALID_ARGUMENT", "replay id", rules.REPLAY_LOST),
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
    code: str | None, status: str | None, details: str | None, *, topic: str, rpc_id: str | None = None
) -> SalesforceStreamError:
    """Return the error for a failed call, ready to raise.

    :param code: the ``error-code`` trailer, with or without its prefix; ``None`` if missing.
    :param topic: the subject of the call: a topic, or another name for the message.
    :param rpc_id: the ``rpc-id`` trailer, which Salesforce support requires.
    """
    suffix = (code or "").strip().removeprefix(CODE_PREFIX)
    name = status or "UNKNOWN"
    rule = _rule(suffix, name, details or "")
    reported = [text for text in (suffix or None, name) if text]
    if details:
        reported.append(quoted(details))
    if rpc_id and rpc_id not in (details or ""):
        reported.append(f"rpc id {rpc_id}")
    return rule.report(topic, reported)


def error_from_result(text: str, *, topic: str) -> SalesforceStreamError:
    """Return the error for one failed event in the response to a publish request, ready to raise."""
    rule = next((rule for part, rule in _BY_RESULT if part in text), _REFUSED)
    return rule.report(topic, [quoted(text or "no reason reported")])


def _rule(suffix: str, status: str, details: str) -> Rule:
    if suffix in _BY_CODE:
        return _BY_CODE[suffix]
    lower = details.lower()
    for by_status, part, rule in _BY_DETAILS:
        if status == by_status and part in lower:
            return rule
    return _BY_STATUS.get(status, rules.TRANSPORT)
