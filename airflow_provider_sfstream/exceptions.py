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

_NOTHING_YET = "Nothing yet, while Salesforce keeps the events that were not read."


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
        """The rest of the text, the remedy; :attr:`remedy` if it is empty."""
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
    """The topic name is not one that Salesforce has."""


class InvalidReplayIdError(ConfigurationError):
    """A replay ID given by a user is not valid text for one."""


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
    """The access token was given or accepted, but not who and which org it stands for."""


class SessionExpiredError(SalesforceStreamError):
    """A token that used to work was refused (expired, revoked, or its session ended)."""

    retriable = True
    invalidates_token = True


class AccessDeniedError(SalesforceStreamError):
    """The user may not do this: missing permission, missing licence."""

    lost = _NOTHING_YET


class TopicNotFoundError(SalesforceStreamError):
    """Salesforce does not know the topic, or hides it from this user."""

    lost = _NOTHING_YET


class QuotaExceededError(SalesforceStreamError):
    """An allocation that refills by the day or hour is used up; retrying at once would only burn more."""

    lost = _NOTHING_YET


class AllocationReserveError(QuotaExceededError):
    """Less of an allocation remains than a task is to leave to others, so that it did not begin.

    Not retriable: allocations refill over a day or a month, and a retry in minutes would only ask again.
    """

    lost = "Nothing: nothing was started."
    guide = "sizing.md#allocations"


class AllocationUnknownError(ConfigurationError):
    """Salesforce does not report the rest of an allocation, so it is unknown whether enough remains."""

    lost = "Nothing: nothing was started."
    guide = "sizing.md#allocations"


class RequestRejectedError(SalesforceStreamError):
    """Salesforce rejected the request as malformed; sending it again cannot help."""


class ProtocolError(SalesforceStreamError):
    """A response does not follow Salesforce's API; it was discarded."""


class ServiceUnavailableError(SalesforceStreamError):
    """The service or the network failed in passing; resume from the last replay ID."""

    retriable = True


class ContactError(ServiceUnavailableError):
    """Salesforce did not answer. Nothing is known of the stream, and nothing was moved."""


class ThrottledError(ServiceUnavailableError):
    """The service asks for fewer or slower requests; resume after a longer pause."""


class SubscriptionBusyError(ServiceUnavailableError):
    """Another stream holds the managed subscription, which has room for one; it was not read."""


class SubscriptionStoppedError(SalesforceStreamError):
    """The managed subscription is in state STOP, and its stored position is gone; start it again in Salesforce."""

    lost = _NOTHING_YET


class SubscriptionMovedError(SalesforceStreamError):
    """The position of a managed subscription moved while it was read, not by this reader; nothing of it was stored."""

    lost = (
        "Nothing of this run was recorded. Salesforce does not send the events again that the other reader committed."
    )


class CommitError(SalesforceStreamError):
    """Salesforce refused to commit a replay ID; the committed position stays where it was and no event is lost."""


class CommitFailedError(CommitError):
    """Salesforce could not commit a replay ID this time; the committed position stays where it was."""

    retriable = True


class ReplayIdLostError(SalesforceStreamError):
    """The replay ID is malformed, unknown, expired, or the stream was reset: Salesforce does not distinguish them."""

    lost = "Events between the last one that is stored and the oldest that Salesforce still has, if there were any."
    guide = "on-call.md#when-events-are-lost"
    replay_lost = True

    replay_id: bytes | None = None
    """The replay ID that was refused, where a drain raised the error."""


class PositionAgedOutError(ReplayIdLostError):
    """The position of a quiet stream of the Streaming API aged out, and nothing proves that no event followed it."""

    lost = "Nothing is known to be lost. Events that Salesforce stored and did not deliver may be lost."
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
    """A stream, a replica or an allocation needs attention, or nothing is known of it."""

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

    lost = "Nothing that is known of: the events that the error counts are on the bus, or they are not."
    guide = "publish.md#events-in-doubt"


class LandingError(SalesforceStreamError):
    """Window files could not be written or read; the stored position was not moved."""

    retriable = True


class ManifestError(LandingError):
    """A manifest is broken, of an unknown version, or belongs to something else."""

    lost = "The events of a missing or changed file, unless the storage or Salesforce has them. No position moved."
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
    lost = "Nothing: the windows stay landed, and the next try processes them."
    remedy = "Spark's own log is above; look at the master, the storage and the memory of the executors."


class NotificationError(SalesforceStreamError):
    """A message about a task could not be sent. The state of the task does not change."""

    lost = "Only the message. The task's log has its facts."
