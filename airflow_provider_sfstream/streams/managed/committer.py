"""Commits of durable events on a managed subscription, from any position at which Salesforce continues.

A commit needs a replay ID that the managed stream has delivered, or that one of its empty responses has named.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from airflow_provider_sfstream.exceptions import (
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SubscriptionBusyError,
    SubscriptionMovedError,
)
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.replay_ids import is_later
from airflow_provider_sfstream.streams.managed.continuation import Comparison, DeliveredEvents, IsLanded, Redelivery
from airflow_provider_sfstream.streams.managed.exclusive_stream import LOOK_SECONDS, ExclusiveStream

log = logging.getLogger(__name__)

_POLL = 1.0
_COMMIT_READ = 100
_COMPARISON_SECONDS = 1500.0
"""Longest comparison: Salesforce ends a stream on which nothing was committed for 1,800 seconds."""
_BATCHES = 1_000


@dataclass
class CommitComparison:
    """Comparison of the managed stream with an ordinary subscription at ``end``, the end of the recorded windows."""

    end: bytes
    commit: bytes | None = field(default=None, init=False)
    """The replay ID to commit: every event up to it is stored. ``None``: none found yet, or none is needed."""
    is_over: bool = field(default=False, init=False)
    is_ahead: bool = field(default=False, init=False)
    """True if the managed stream continues after an event that is not stored yet, so that no commit is possible."""
    _first: bytes | None = field(default=None, init=False)
    _recent: deque[Sequence[bytes]] = field(default_factory=lambda: deque(maxlen=_BATCHES), init=False)
    _next_event: bytes | None = field(default=None, init=False)
    _quiet_position: bytes | None = field(default=None, init=False)
    _named_position: bytes | None = field(default=None, init=False)

    def ordinary(self, response: EventBatch | None) -> None:
        """Record a response of the ordinary subscription: the event after ``end``, or its absence."""
        if response is None or self.is_over:
            return
        if len(response):
            self._next_event = response.replay_ids[0]
            if self._named_position is not None and self._first is None:
                self._stop(is_ahead=True)
            self._find_following()
        elif response.confirms_position:
            self._quiet_position = response.latest_replay_id
            self._compare_ends()

    def managed(self, response: EventBatch | None) -> None:
        """Record a response of the managed stream."""
        if response is None or self.is_over:
            return
        if len(response):
            self._first = self._first or response.replay_ids[0]
            self._recent.append(response.replay_ids)
            if self.end in response.replay_ids:
                self._stop(self.end)
            else:
                self._find_following()
        elif response.confirms_position and not is_later(self.end, response.latest_replay_id):
            # A stream that still seeks may name a position before events that are stored.
            self._named_position = response.latest_replay_id
            if self._next_event is not None:
                self._stop(is_ahead=True)
            else:
                self._compare_ends()

    def _find_following(self) -> None:
        """Stop at the event before the one that follows ``end``: ``end`` itself may be between two events."""
        following, before = self._next_event, None
        if following is None or self.is_over:
            return
        for replay_ids in self._recent:
            if following in replay_ids:
                index = replay_ids.index(following)
                self._stop(replay_ids[index - 1] if index else before)
                return
            before = replay_ids[-1]
        if self._first is not None and is_later(self._first, following):
            self._stop(is_ahead=True)

    def _compare_ends(self) -> None:
        """Stop if both streams are quiet: no event lies between ``end`` and the position of the ordinary one."""
        named, quiet_until = self._named_position, self._quiet_position
        if named is None or quiet_until is None:
            return
        if named == quiet_until or is_later(quiet_until, named):
            self._stop(named)

    def _stop(self, commit: bytes | None = None, *, is_ahead: bool = False) -> None:
        self.commit, self.is_ahead, self.is_over = commit, is_ahead, True


class Committer:
    """Commits of a replay ID up to which everything is durable."""

    def __init__(self, stream: ExclusiveStream, delivered: DeliveredEvents, is_landed: IsLanded | None) -> None:
        self._stream, self._delivered, self._is_landed = stream, delivered, is_landed
        self._clock = stream.clock
        self._sent: bytes | None = None

    @property
    def position(self) -> bytes | None:
        """Return the replay ID that a keepalive may commit: it moves nothing, or only past events that are stored."""
        base = self._delivered.base
        return self._stream.committed or (base if isinstance(base, bytes) else None)

    def commit(self, replay_id: bytes, comparison: Comparison | None, timeout: float) -> bool:
        """Commit ``replay_id``, and retry retriable faults; return whether Salesforce is known to continue after it.

        :param comparison: the comparison of the last subscription, if that began with a replay ID.
        """
        deadline = self._clock() + timeout
        differs = comparison is not None and comparison.differs
        is_renewed, is_committed, is_done = False, self._stream.committed == replay_id and not differs, True
        while not is_committed:
            try:
                is_done = self._commit_once(replay_id, comparison, deadline=deadline, timeout=timeout)
            except SalesforceStreamError as error:
                self._stream.close()
                pause = 0.5 + self._stream.random() / 2
                # The stream has already waited for a slot that another stream holds.
                is_transient = error.retriable and not isinstance(error, SubscriptionBusyError)
                if not is_transient or self._clock() + pause >= deadline or (error.invalidates_token and is_renewed):
                    raise
                if error.invalidates_token:
                    is_renewed = True
                    self._stream.client.renew_session()
                log.info("%s: retrying the commit in %.1f s after: %s", self._stream.name, pause, error)
                self._stream.sleep(pause)
            else:
                is_committed = True
        self._delivered.forget()
        if not is_done:
            log.log(
                logging.WARNING if differs else logging.INFO,
                "%s: Salesforce has not shown that it continues after replay ID %s, the end of the stored events. "
                "Nothing is lost: the next drain begins at that replay ID and compares again.",
                self._stream.name,
                replay_id.hex(),
            )
        return is_done

    def _commit_once(self, replay_id: bytes, comparison: Comparison | None, *, deadline: float, timeout: float) -> bool:
        if self._stream.has_delivered(replay_id) and self._stream.open_stream is not None:
            self._sent = replay_id
            # Half of the time remains for a new stream, whose first event shows whether the commit was carried out.
            self._stream.commit(replay_id, (deadline + self._clock()) / 2)
        elif comparison is not None and comparison.differs:
            return self._compare_and_commit(replay_id, timeout)
        elif comparison is None or comparison.agrees or self._delivered.first is not None:
            return self._read_through(replay_id, deadline)
        else:
            return self._commit_quiet(replay_id, deadline)
        return True

    def _commit_quiet(self, replay_id: bytes, deadline: float) -> bool:
        """Commit the position that the managed stream named on a quiet topic, if it does not lie after ``replay_id``.

        No event lies between the two: the drain received none after its start, and the position is not before that. So
        the events need no commit. The commit renews the committed replay ID, which ages out. Without such a position
        nothing is shown; the next drain compares again.
        """
        position, base = self._stream.quiet_at, self._delivered.base
        if self._stream.open_stream is None or position is None or not is_later(replay_id, position):
            return False
        if isinstance(base, bytes) and is_later(base, position):
            return False
        self._stream.commit(position, deadline)
        self._stream.committed = replay_id
        return True

    def _compare_and_commit(self, replay_id: bytes, timeout: float) -> bool:
        """Read a new stream until a replay ID can be committed with no event between it and ``replay_id``."""
        comparison, started = CommitComparison(replay_id), self._clock()
        deadline = started + timeout
        try:
            with closing(self._stream.open_topic(replay_id, 1)) as ordinary:
                for response in self._stream.responses(_COMMIT_READ, LOOK_SECONDS, None):
                    comparison.managed(response)
                    comparison.ordinary(next(ordinary, None))
                    if response is not None and len(response):
                        self._stream.allow(len(response))
                        deadline = min(self._clock() + timeout, started + _COMPARISON_SECONDS)
                    if comparison.is_over or self._clock() >= deadline:
                        break
        except ReplayIdLostError:
            comparison.is_ahead = True
        self._stream.stop_fetching()
        if comparison.commit is not None:
            self._stream.commit(comparison.commit, self._clock() + timeout)
        is_settled = comparison.is_over and not comparison.is_ahead
        if is_settled:
            self._stream.committed = replay_id
            log.info("%s: Salesforce continues after replay ID %s again.", self._stream.name, replay_id.hex())
        return is_settled

    def _read_through(self, replay_id: bytes, deadline: float) -> bool:
        """Read a new stream until it delivers ``replay_id`` again, then commit it; stop if that cannot happen.

        Return whether Salesforce is known to continue after it.
        """
        redelivery, is_past = self._delivered.begin(replay_id, self._is_landed), False
        if redelivery.is_over:  # the redelivered events are unknown: every event up to ``replay_id`` counts as one
            redelivery = Redelivery(replay_id)
        for response in self._stream.responses(_COMMIT_READ, _POLL, self.position):
            if self._clock() >= deadline:
                raise ServiceUnavailableError(
                    f"{self._stream.name}: replay ID {replay_id.hex()} was not delivered again in time, so it may "
                    "or may not be committed. Nothing is lost: the events after the committed position are delivered "
                    "again."
                )
            if response is None:
                continue
            # A stream that still seeks may name a position before ``replay_id``, and one that moved back begins there.
            named = response.replay_ids[0] if len(response) else response.latest_replay_id
            is_past = (named == replay_id or is_later(named, replay_id)) and replay_id not in response.replay_ids
            if len(response) and self._is_redelivered(response, redelivery):
                break
            is_before = is_later(replay_id, named)
            if response.confirms_position and not (is_before and self._delivered.first is not None):
                break  # else the events that were yielded are still to come
            self._stream.allow(len(response))
        self._stream.stop_fetching()
        return self._commit_redelivered(replay_id, redelivery, deadline, is_past=is_past)

    def _is_redelivered(self, response: EventBatch, redelivery: Redelivery) -> bool:
        """Return whether all redelivered events were received, or no further one can be."""
        if redelivery.last is None and self._delivered.first not in (None, response.replay_ids[0]):
            return True
        redelivery.known(response.replay_ids)
        return redelivery.is_over

    def _commit_redelivered(self, replay_id: bytes, redelivery: Redelivery, deadline: float, *, is_past: bool) -> bool:
        is_certain = redelivery.is_over or redelivery.is_landed is not None
        if redelivery.last is not None and is_certain:
            self._sent = replay_id if redelivery.is_over else self._sent
            self._stream.commit(redelivery.last, deadline)
            return redelivery.is_over or is_past
        if redelivery.last is not None and self._delivered.first is not None:
            raise self._moved_error(redelivery)
        # Without a commit, the stream may also begin there because Salesforce has no position of the subscription.
        is_carried_out = is_past and self._sent == replay_id
        if is_carried_out:
            log.info("%s: Salesforce is already past replay ID %s.", self._stream.name, replay_id.hex())
        return is_carried_out

    def _moved_error(self, redelivery: Redelivery) -> SubscriptionMovedError:
        through = b"" if redelivery.through is None else redelivery.through
        return SubscriptionMovedError(
            f"{self._stream.name}: the stream broke, and replay ID {through.hex()}, which was delivered before and "
            "not committed, is not delivered again. The position of the subscription has moved: another consumer "
            "commits on it, or its committed replay ID was lost and errorRecoveryReplay applies, or it was never "
            "committed and its defaultReplay is LATEST. Nothing was committed. Find the cause, use one "
            "managed subscription for each consumer and set defaultReplay to EARLIEST, then run again."
        )
