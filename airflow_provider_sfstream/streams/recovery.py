"""Recovery from faults: pauses between retries, the limit of retries, and the policy for a lost replay ID."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
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
_MOST_DOUBLINGS = 10  # already exceeds the longest pause; after a thousand, the product would overflow a float
_MOST_LOSSES = 3


def check_on_invalid_replay(value: str) -> None:
    """Raise :class:`ConfigurationError` unless ``value`` is one of :data:`OnInvalidReplay`."""
    if value not in get_args(OnInvalidReplay):
        raise ConfigurationError(
            f"on_invalid_replay={value!r} must be 'fail' (stop, nothing moved), 'earliest' (go on with the oldest "
            "retained event) or 'latest' (go on with new events); the last two record a gap."
        )


@dataclass
class Retries:
    """Consecutive faults without progress, and the pauses between them.

    :param most: Consecutive faults after which :meth:`pause_after` raises; ``None``: no limit.
    :param random: Returns a number in ``[0, 1)``.
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
        :raises ServiceUnavailableError: after ``most`` consecutive faults.
        """
        if not error.retriable:
            raise error
        self.failures += 1
        if self.most is not None and self.failures > self.most:
            raise ServiceUnavailableError(
                f"{self.topic}: gave up after {self.most} faults in a row without an event between them. {self.kept} "
                f"The last fault: {error}"
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
    """

    topic: str
    policy: OnInvalidReplay
    now: Callable[[], datetime]
    gap: Gap | None = None
    _count: int = field(default=0, init=False)

    def accept(self, error: SalesforceStreamError, after: bytes | StartFrom, since: datetime | None) -> StartFrom:
        """Return the start to resume from, after ``error`` reported that ``after`` can no longer be read.

        A second loss within one drain widens the gap to cover both.

        :param since: The last known event time at ``after``.
        :raises ReplayIdLostError: if the policy is ``"fail"``, or after more than 3 losses in one drain.
        """
        if not isinstance(after, bytes):  # no replay ID was sent, so no policy applies
            raise error
        known = f" (of {since.isoformat()} or later)" if since else ""
        lost = f"{self.topic}: replay ID {after.hex()}{known} cannot be read: it aged out, or the stream was reset"
        if self.policy == "fail":
            refused = ReplayIdLostError(
                f"{lost}. To go on, run AcceptReplayLossOperator and clear this task, or set on_invalid_replay="
                '"earliest" (from the oldest retained event) or "latest" (new events only); each records the gap. '
                "Nothing was stored and the position was not moved. Salesforce said: "
                f"{error.happened}"
            )
            refused.replay_id = after
            raise refused from error
        self._count += 1
        if self._count > _MOST_LOSSES:
            raise ReplayIdLostError(
                f"{lost}, for the {self._count}th time in one drain. The position was not moved. Something resets this "
                f"stream; find out what before trying again. Salesforce said: {error.happened}"
            ) from error
        reason = f"replay ID invalid, on_invalid_replay={self.policy!r}"
        first = self.gap or Gap(after=after, resumed_at=None, since=since, detected_at=self.now(), reason=reason)
        self.gap = replace(first, resumed_at=None, uncertain=False, reason=reason)
        log.warning(
            "Events may be lost: a replay ID cannot be read. Going on from %r, and recording the gap, as "
            "on_invalid_replay says. %s",
            self.policy,
            error.happened,
        )
        return StartFrom(self.policy)

    def resumed(self, replay_id: bytes) -> None:
        """Record the first replay ID that was read after a gap."""
        if self.gap is not None and self.gap.resumed_at is None:
            self.gap = replace(self.gap, resumed_at=replay_id)
