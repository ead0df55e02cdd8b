"""Every error this package raises, in one tree whose class attributes are the retry policy.

``retriable``
    The same call may succeed later: transport faults, an overloaded service, a lost race.
``invalidates_token``
    The access token was refused; log in again, once, before the next attempt.
``replay_lost``
    The replay ID can no longer be read (aged out, stream reset, or malformed). Continuing anyway
    loses events, so only an explicit ``on_invalid_replay`` may do it.

``lost``
    The data loss, in one sentence.
``remedy``
    The remedy, if the message has none.
``guide``
    The page of the documentation.

The first sentence of a message names the stream and the failure; the others name the remedy. Messages never contain a
credential, also in quoted texts: see :mod:`airflow_provider_sfstream.redaction`.
"""

from __future__ import annotations

import re

from airflow_provider_sfstream.redaction import redacted

_NOTHING_YET = "Nothing yet, as long as Salesforce retains the unread events."


class SalesforceStreamError(Exception):
    """Root of all errors raised by this package. Its texts are on one line and without secrets."""

    retriable: bool = False
    invalidates_token: bool = False
    replay_lost: bool = False
    lost: str = "Nothing: the position was not moved."
    remedy: str = "Correct the cause in the error, then clear the task."
    guide: str = "reference/errors.md#every-error"

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))

    @property
    def happened(self) -> str:
        """The first sentence of the text: the stream and the failure."""
        return self._sentences()[0]

    @property
    def advice(self) -> str:
        """The text after the first sentence: the remedy; :attr:`remedy` if there is none."""
        return self._sentences()[1] or self.remedy

    def _sentences(self) -> tuple[str, str]:
        text = str(self)
        for end in re.finditer(r"\. (?=\S)", text):
            first = text[: end.start()]
            if first.count("(") == first.count(")"):  # a quotation in parentheses has its own sentences
                return first + ".", text[end.end() :]
        return text, ""


class ConfigurationError(SalesforceStreamError):
    """An argument, a connection field or a stored value is unusable; nothing was read or moved."""

    lost = "Nothing: nothing was read or moved."


class InvalidTopicError(ConfigurationError):
    """The topic name does not have the form of a Salesforce topic."""


class InvalidReplayIdError(ConfigurationError):
    """A replay ID is invalid: it is not hex text, or has an invalid length."""


class AlreadyExistsError(ConfigurationError):
    """A record with this name already exists; nothing was changed."""


class AuthenticationError(SalesforceStreamError):
    """Logging in failed: wrong credentials, a refused flow, or an unusable login host."""

    lost = _NOTHING_YET
    guide = "reference/errors.md#logging-in"
    remedy = "Correct the connection, then clear the task."


class LoginUnavailableError(AuthenticationError):
    """The login host could not be reached or is busy; no credential was refused."""

    retriable = True


class IdentityError(AuthenticationError):
    """The access token was issued or accepted, but its user and org cannot be read."""


class RefreshTokenSpentError(AuthenticationError):
    """The login spent the refresh token of the connection, because the app rotates refresh tokens."""

    guide = "reference/connection-fields.md#refresh-token-rotation"


class SessionExpiredError(SalesforceStreamError):
    """A token that used to work was refused (expired, revoked, or its session ended)."""

    retriable = True
    invalidates_token = True


class AccessDeniedError(SalesforceStreamError):
    """A permission of the user or a licence of the org is missing."""

    lost = _NOTHING_YET


class TopicNotFoundError(SalesforceStreamError):
    """The topic or managed subscription does not exist, or is hidden from this user."""

    lost = _NOTHING_YET


class QuotaExceededError(SalesforceStreamError):
    """An allocation that refills by the day or hour is used up; an immediate retry would only use more."""

    lost = _NOTHING_YET


class AllocationReserveError(QuotaExceededError):
    """Less of an allocation remains than the reserve for other clients, so the task did not start.

    Not retriable: allocations refill over a day or a month, so a retry within minutes would fail too.
    """

    lost = "Nothing: nothing was started."
    guide = "sizing.md#allocations"


class AllocationUnknownError(ConfigurationError):
    """Salesforce does not report how much of an allocation remains, so it is unknown whether that is enough."""

    lost = "Nothing: nothing was started."
    guide = "sizing.md#allocations"


class RequestRejectedError(SalesforceStreamError):
    """Salesforce rejected the request as malformed; a retry cannot succeed."""


class ProtocolError(SalesforceStreamError):
    """A response does not follow Salesforce's API; it was discarded."""


class ServiceUnavailableError(SalesforceStreamError):
    """A temporary failure of the service or the network; resume from the last replay ID."""

    retriable = True


class ContactError(ServiceUnavailableError):
    """Salesforce did not answer. The state of the stream is unknown, and no position was moved."""


class StartNotPinnedError(ServiceUnavailableError):
    """A drain from ``"latest"`` ended before Salesforce sent a replay ID that pins its start; nothing was recorded."""


class ThrottledError(ServiceUnavailableError):
    """The service requires fewer or slower requests; resume after a longer pause."""


class SubscriptionBusyError(ServiceUnavailableError):
    """Another stream uses the managed subscription, which supports one stream at a time; it was not read."""


class SubscriptionStoppedError(SalesforceStreamError):
    """The managed subscription is in state STOP, and Salesforce discarded its position; start it again there."""

    lost = _NOTHING_YET


class SubscriptionMovedError(SalesforceStreamError):
    """Another reader moved the position of a managed subscription during the read; nothing of it was stored."""

    lost = "This run recorded nothing. Salesforce does not deliver again the events that the other reader committed."


class CommitError(SalesforceStreamError):
    """Salesforce refused to commit a replay ID; the committed position did not change, and no event is lost."""


class CommitFailedError(CommitError):
    """Salesforce temporarily could not commit a replay ID; the committed position did not change."""

    retriable = True


class ReplayIdLostError(SalesforceStreamError):
    """The replay ID is malformed, unknown, expired, or the stream was reset: Salesforce does not distinguish them."""

    lost = "Any events between the last stored one and the oldest one that Salesforce still retains."
    guide = "on-call.md#when-events-are-lost"
    replay_lost = True

    replay_id: bytes | None = None
    """The replay ID that was refused, where a drain raised the error."""


class PositionAgedOutError(ReplayIdLostError):
    """The position of a quiet stream of the Streaming API aged out, and nothing proves that no event followed it."""

    lost = "No event is known to be lost. Events that Salesforce stored and did not deliver may be lost."
    guide = "streaming-api.md#when-a-position-ages-out"


class EventsLostError(SalesforceStreamError):
    """Events were lost, and the task has ``fail_on=["gap"]``; all other events are stored and recorded."""

    lost = "The events of the recorded gap. All others that were read are stored."
    guide = "on-call.md#when-events-are-lost"


class IntervalNotEndedError(SalesforceStreamError):
    """The interval of a run has not ended by Salesforce's clock: the worker's or the scheduler's is ahead of it."""

    lost = "Nothing: the events that were read are landed and recorded."
    retriable = True


class UnhealthyStreamsError(SalesforceStreamError):
    """A stream, a replica or an allocation needs attention, or its state is unknown."""

    lost = "As the finding states; this task only reads statuses."
    guide = "on-call.md#what-to-do"


class SchemaError(SalesforceStreamError):
    """An Avro schema could not be used, or a payload does not match its schema."""


class SchemaChangedError(SalesforceStreamError):
    """An event has another schema than before, and the task has ``fail_on=["schema_change"]``."""

    lost = "Nothing: all events are stored, with their schemas."
    guide = "drain.md#schema-changes"


class PublishError(SalesforceStreamError):
    """At least one event was not accepted by the event bus."""

    lost = "The events that the error counts were not published."


class PublishOutcomeUnknownError(PublishError):
    """Neither a response nor the bus shows whether events were published, and ``on_unknown_outcome`` is ``"fail"``."""

    lost = "No known loss: the events that the error counts may or may not be on the bus."
    guide = "publish.md#events-in-doubt"


class LandingError(SalesforceStreamError):
    """Window files could not be written or read; the stored position was not moved."""

    retriable = True


class ManifestError(LandingError):
    """A manifest is invalid, of an unknown version, or of another stream or program."""

    lost = "The events of a missing or changed file, unless the storage or Salesforce has them. No position moved."
    retriable = False


class LandingLostError(LandingError):
    """The landing lacks the window of the recorded position: it is unmounted, was deleted, or has another URL."""

    guide = "operations.md#the-landing-is-lost"
    lost = "No event of this run. Earlier windows are missing from this landing. No position was moved."
    retriable = False


class ReplayStoreError(SalesforceStreamError):
    """The replay store could not be read or written; the stored position was not moved."""

    retriable = True


class ReplayStoreCorruptError(ReplayStoreError):
    """The stored position was not written by this version of the package (edited by hand, or by a newer version)."""

    retriable = False


class ReplayStoreLostError(ReplayStoreError):
    """The landing has recorded windows that the replay store lacks: it was lost, restored or replaced."""

    guide = "operations.md#the-replay-store-is-lost"
    retriable = False


class PositionConflictError(ReplayStoreError):
    """Another run moved the position of this stream first; this run's window was not recorded."""


class SparkJobError(SalesforceStreamError):
    """``spark-submit`` ended with an error that is not one of this package."""

    retriable = True
    lost = "Nothing: the windows remain landed, and the next try processes them."
    remedy = "Read Spark's own log above this error. Check the master, the storage and the memory of the executors."


class NotificationError(SalesforceStreamError):
    """A message about a task could not be sent. The state of the task does not change."""

    lost = "Only the message. The task's log contains its facts."
