"""Commits on a managed subscription: of what is durable, wherever Salesforce continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from airflow_provider_sfstream.exceptions import ReplayIdLostError, ServiceUnavailableError, SubscriptionMovedError
from airflow_provider_sfstream.salesforce.events import EventBatch, Responses
from airflow_provider_sfstream.streams.managed.comparison import LOOK_SECONDS, Comparison, is_later
from airflow_provider_sfstream.streams.managed.one_stream import OneStream
from airflow_provider_sfstream.streams.managed.redelivery import Delivered, IsLanded, Redelivery, confirms
from airflow_provider_sfstream.streams.managed.settling import Settling

log = logging.getLogger(__name__)

_POLL = 1.0
_COMMIT_READ = 100
_LONGEST_SETTLING = 1500.0


class Committing:
    """Ways to commit a replay ID up to which everything is durable.

    :param stream: the one stream of the subscription.
    :param delivered: what the reader was given since the last commit.
    :param is_landed: see :class:`~airflow_provider_sfstream.streams.managed.source.ManagedSource`.
    :param open_topic: opens an ordinary subscription to the topic, for so many events.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        stream: OneStream,
        delivered: Delivered,
        is_landed: IsLanded | None,
        open_topic: Callable[[bytes, int | None], Responses],
        clock: Callable[[], float],
    ) -> None:
        self._stream, self._delivered, self._is_landed = stream, delivered, is_landed
        self._open_topic, self._clock = open_topic, clock
        self._name = stream.subscription.description

    def commit(self, replay_id: bytes, comparison: Comparison | None, *, deadline: float, timeout: float) -> bool:
        """Try once to commit ``replay_id``; return whether Salesforce continues after it.

        :param comparison: of the last subscription, if that began with a replay ID.
        :param deadline: when to give up; ``timeout`` seconds without an event where the position had moved.
        """
        if self._stream.has_delivered(replay_id) and self._stream.open_stream is not None:
            # An answer that does not come leaves time for a stream that can tell.
            self._stream.commit(replay_id, (deadline + self._clock()) / 2)
        elif comparison is None or comparison.agrees:
            self._read_through(replay_id, deadline)
        elif comparison.differs:
            return self._settle(replay_id, timeout)
        else:
            self._commit_quiet(replay_id, deadline)
        return True

    def _commit_quiet(self, replay_id: bytes, deadline: float) -> None:
        """Commit the position that the managed stream named on a quiet topic, if it does not lie after ``replay_id``.

        No event lies between the two, so nothing has to be committed for the sake of the events. It is for the
        committed replay ID, which ages out.
        """
        position = self._stream.quiet_at
        if self._stream.open_stream is not None and position is not None and is_later(replay_id, position):
            self._stream.commit(position, deadline)
            self._stream.committed = replay_id

    def _settle(self, replay_id: bytes, timeout: float) -> bool:
        """Read a new stream until a replay ID can be committed with no event between it and ``replay_id``."""
        settling, started = Settling(replay_id), self._clock()
        deadline = started + timeout
        try:
            with closing(self._open_topic(replay_id, 1)) as ordinary:
                for response in self._stream.responses(_COMMIT_READ, LOOK_SECONDS, None):
                    settling.managed(response)
                    settling.ordinary(next(ordinary, None))
                    if response is not None and len(response):
                        self._stream.allow(len(response))
                        deadline = min(self._clock() + timeout, started + _LONGEST_SETTLING)
                    if settling.is_over or self._clock() >= deadline:
                        break
        except ReplayIdLostError:
            settling.is_ahead = True
        self._stream.stop_fetching()
        if settling.commit is not None:
            self._stream.commit(settling.commit, self._clock() + timeout)
        is_settled = settling.is_over and not settling.is_ahead
        if is_settled:
            self._stream.committed = replay_id
            log.info("%s: Salesforce continues after %s again.", self._name, replay_id.hex())
        else:
            log.warning(
                "%s: Salesforce does not continue after replay ID %s, the end of what is stored, and no commit can "
                "change that yet. Nothing is lost: the next drain begins at that replay ID and compares again.",
                self._name,
                replay_id.hex(),
            )
        return is_settled

    def _read_through(self, replay_id: bytes, deadline: float) -> None:
        """Read a new stream until ``replay_id`` came again, and commit it; or until it is plain that it will not."""
        redelivery = self._delivered.begin(replay_id, self._is_landed)
        if redelivery.is_over:  # nothing says what comes again; it is what there is until ``replay_id``
            redelivery = Redelivery(replay_id)
        base = self._delivered.base
        recommit = self._stream.committed or (base if isinstance(base, bytes) else None)
        for response in self._stream.responses(_COMMIT_READ, _POLL, recommit):
            if self._clock() >= deadline:
                raise ServiceUnavailableError(
                    f"{self._name}: replay ID {replay_id.hex()} did not come again in time to be "
                    "committed. Nothing is lost: the events after the committed position are delivered again."
                )
            if response is None:
                continue
            if confirms(response) or (len(response) and self._came_again(response, redelivery)):
                break
            self._stream.allow(len(response))
        self._stream.stop_fetching()
        self._commit_what_came_again(replay_id, redelivery, deadline)

    def _came_again(self, response: EventBatch, redelivery: Redelivery) -> bool:
        """Return whether all that comes again has come, or nothing does."""
        if redelivery.last is None and self._delivered.first not in (None, response.replay_ids[0]):
            return True
        redelivery.known(response.replay_ids)
        return redelivery.is_over

    def _commit_what_came_again(self, replay_id: bytes, redelivery: Redelivery, deadline: float) -> None:
        is_certain = redelivery.is_over or redelivery.is_landed is not None
        if redelivery.last is not None and is_certain:
            self._stream.commit(redelivery.last, deadline)
        elif redelivery.last is not None and self._delivered.first is not None:
            raise self._moved(redelivery)
        else:
            log.info("%s: Salesforce is past replay ID %s already.", self._name, replay_id.hex())

    def _moved(self, redelivery: Redelivery) -> SubscriptionMovedError:
        through = b"" if redelivery.through is None else redelivery.through
        return SubscriptionMovedError(
            f"{self._name}: the stream broke, and replay ID {through.hex()}, which was delivered before "
            "and not committed, does not come again. So its position moved meanwhile: another consumer commits to it, "
            "or its committed replay ID was lost and errorRecoveryReplay applies, or it never was committed and its "
            "defaultReplay is LATEST. Nothing of this drain was recorded. Find out which, give each consumer a managed "
            "subscription of its own and set defaultReplay to EARLIEST, then run again."
        )
