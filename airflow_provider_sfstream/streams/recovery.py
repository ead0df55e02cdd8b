"""Recovery from faults: pauses between retries, the limit of retries, and the policy for a lost replay ID."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    ContactError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    ThrottledError,
)
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.streams.source import StartFrom

log = logging.getLogger(__name__)

OnInvalidReplay = Literal["fail", "earliest", "latest"]

_FIRST_PAUSE = 0.25
_FIRST_PAUSE_THROTTLED = 5.0
_LONGEST_PAUSE = 30.0
_MOST_DOUBLINGS = 10  # already exceeds the longest pause; a thousand doublings would overflow a float
_MOST_LOSSES = 3


def check_on_invalid_replay(value: str) -> None:
    """Raise :class:`ConfigurationError` unless ``value`` is one of :data:`OnInvalidReplay`."""
    if value not in get_args(OnInvalidReplay):
        raise ConfigurationError(
            f"on_invalid_replay={value!r} must be 'fail' (stop; the position is not moved), 'earliest' (continue with "
            "the oldest retained event) or 'latest' (continue with new events). The last two record a gap."
        )


@dataclass
class Retries:
    """Consecutive faults without progress, and the pauses between them.

    :param most: Consecutive faults after which :meth:`pause_after` raises; ``None``: no limit.
    :param kept: Sentence of the final error about lost events and the start of the next try.
    """

    topic: str
    most: int | None
    random: Callable[[], float]
    kept: str = "The position was not moved and nothing is lost; the next try starts from it."
    failures: int = 0
    session_renewed: bool = False

    def progressed(self) -> None:
        """Record that events were received, or a position was confirmed."""
        self.failures = 0
        self.session_renewed = False

    def pause_after(self, error: SalesforceStreamError) -> float:
        """Return the seconds to wait before a retry after ``error``: doubled with each fault, jittered, at most 30.

        :raises SalesforceStreamError: ``error``, if waiting cannot resolve it, or if a renewed session was refused.
        :raises ServiceUnavailableError: after more than ``most`` consecutive faults, with the last fault in its first
            sentence; :class:`ContactError` if the server did not respond.
        """
        if not error.retriable:
            raise error
        self.failures += 1
        if self.most is not None and self.failures > self.most:
            unavailable = ContactError if isinstance(error, ContactError) else ServiceUnavailableError
            fault = error.happened.removesuffix(".")
            if self.topic not in fault:
                fault = f"{self.topic}: {fault}"
            raise unavailable(
                f"{fault}, the last of {self.failures} consecutive faults without an event between them. "
                f"{self.kept} {error.advice}"
            ) from error
        if error.invalidates_token:
            if self.session_renewed:
                raise error
            self.session_renewed = True
            return 0.0
        first = _FIRST_PAUSE_THROTTLED if isinstance(error, ThrottledError) else _FIRST_PAUSE
        doublings = min(self.failures - 1, _MOST_DOUBLINGS)
        return float(min(_LONGEST_PAUSE, first * 2**doublings) * (0.5 + self.random() / 2))


@dataclass
class ReplayLosses:
    """Policy ``on_invalid_replay`` of one drain, and the gap that results from it.

    :param gap: the gap at the start of the drain, if the possible loss at its position was already accepted.
    :param accepted_reason: the reason why a user accepted the first loss.
    """

    topic: str
    policy: OnInvalidReplay
    now: Callable[[], datetime]
    gap: Gap | None = None
    accepted_reason: str | None = None
    _count: int = field(default=0, init=False)

    def accept(self, error: SalesforceStreamError, after: bytes | StartFrom, since: datetime | None) -> StartFrom:
        """Return the start to resume from, after ``error`` reported that ``after`` can no longer be read.

        A second loss within one drain widens the gap to cover both.

        :param since: The last known event time at ``after``.
        :raises ReplayIdLostError: if the policy is ``"fail"``, or after more than 3 losses in one drain.
        """
        if not isinstance(after, bytes):  # no replay ID was sent, so no policy applies
            raise error
        age = f" (of {since.isoformat()} or later)" if since else ""
        summary = f"{self.topic}: replay ID {after.hex()}{age} cannot be read: it aged out, or the stream was reset"
        if self.policy == "fail":
            lost_error = ReplayIdLostError(
                f"{summary}. To continue, run AcceptReplayLossOperator and clear this task, or set on_invalid_replay="
                '"earliest" (from the oldest retained event) or "latest" (new events only); each records the gap. '
                f"Nothing was stored and the position was not moved. Salesforce reported: {error.happened}"
            )
            lost_error.replay_id = after
            raise lost_error from error
        self._count += 1
        if self._count > _MOST_LOSSES:
            raise ReplayIdLostError(
                f"{summary}, for the {self._count}th time in one drain. The position was not moved. The stream is "
                f"reset repeatedly: find the cause before you run the task again. Salesforce reported: {error.happened}"
            ) from error
        was_accepted = self._count == 1 and self.accepted_reason
        reason = was_accepted or f"replay ID invalid, on_invalid_replay={self.policy!r}"
        base_gap = self.gap or Gap(after=after, resumed_at=None, since=since, detected_at=self.now(), reason=reason)
        self.gap = replace(base_gap, resumed_at=None, uncertain=False, reason=reason)
        log.warning(
            "%s: events may be lost: replay ID %s cannot be read. The drain continues from %r and records the gap, "
            "as on_invalid_replay requires. %s",
            self.topic,
            after.hex(),
            self.policy,
            error.happened,
        )
        return StartFrom(self.policy)

    def resumed(self, replay_id: bytes) -> None:
        """Record the first replay ID that was read after a gap."""
        if self.gap is not None and self.gap.resumed_at is None:
            self.gap = replace(self.gap, resumed_at=replay_id)
