"""Managed subscriptions as an event source: for a drain, which commits what has become durable."""

from __future__ import annotations

import logging
import random as random_module
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from airflow_provider_sfstream.clients.pubsub.client import PubSubClient
from airflow_provider_sfstream.clients.pubsub.managed import ManagedStream, named
from airflow_provider_sfstream.clients.pubsub.subscription import check_amounts, check_topic
from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SubscriptionBusyError,
    SubscriptionMovedError,
)
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT, EventBatch, PayloadEncoding, Responses, StartFrom
from airflow_provider_sfstream.protocol.managed import ManagedSubscription
from airflow_provider_sfstream.reading.managed.position import PositionCheck
from airflow_provider_sfstream.reading.managed.redelivery import (
    Delivered,
    IsLanded,
    Redelivery,
    confirms,
    without_known,
)
from airflow_provider_sfstream.reading.managed.slot import SlotWait

log = logging.getLogger(__name__)

BUSY_TIMEOUT = 60.0
"""Seconds to wait for the place of a managed subscription: ample after a clean end, too short after a lost network."""

_POLL = 1.0
_COMMIT_READ = 100


def check_start(subscription: ManagedSubscription, topic: str, start: bytes | StartFrom) -> None:
    """Refuse what a managed subscription cannot begin with. Nothing is contacted.

    :raises ConfigurationError: if ``start`` is neither a replay ID nor ``COMMITTED``, or the topic is not one of the
        Pub/Sub API.
    """
    check_topic(topic)
    if not isinstance(start, bytes) and start is not StartFrom.COMMITTED:
        raise ConfigurationError(
            f"{named(subscription)}: it begins where it was committed, and never from {start.value!r}: what it begins "
            "with before its first commit is its defaultReplay in Salesforce. Nothing was read."
        )


class ManagedSource:
    """One managed subscription as an :class:`~airflow_provider_sfstream.reading.source.EventSource`. Not thread-safe.

    Salesforce delivers again what it delivered and was not told to be committed. This leaves out what the reader has
    already: ``subscribe`` with a replay ID yields the events after it, when it is one that this object has yielded.
    Before anything was yielded, the events that ``is_landed`` are left out at the beginning. The last of them is
    committed, for they are durable. A replay ID that the first ``subscribe`` begins with is a position of an earlier
    run: nothing is yielded or committed before Salesforce has said that it can still be read.

    While nothing was yielded since the last commit, it also commits the position that an empty response confirms,
    before it yields that response: no event lies before it, and only then does a subscription that never committed
    anything (``defaultReplay`` LATEST) miss none when it is interrupted. It never commits an event that it has yielded:
    :meth:`commit` does, when that is durable.

    A closed ``subscribe`` leaves the stream open, asking for no more, so that :meth:`commit` can use it. The next
    ``subscribe`` and :meth:`close` end it.

    :param is_landed: whether the event with a replay ID is stored in a landed window; landed windows are an unbroken
        run of the stream. Asked for a few events of each response, until one is not. ``None``: nothing is known to be.
    :param busy_timeout: seconds to wait while another stream holds the subscription. 960 outlast a lost connection.
    :param commits: ``False`` to commit nothing, as a sensor needs.
    :param clock: monotonic seconds. ``random`` is a number in ``[0, 1)``.
    """

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True

    def __init__(
        self,
        client: PubSubClient,
        subscription: ManagedSubscription,
        *,
        is_landed: IsLanded | None = None,
        busy_timeout: float = BUSY_TIMEOUT,
        commits: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self.subscription = subscription
        self._client = client
        self._is_landed = is_landed
        self._commits = commits
        self._clock, self._sleep, self._random = clock, sleep, random
        self._slot = SlotWait(named(subscription), busy_timeout, clock, random)
        self._stream: ManagedStream | None = None
        self._recent: deque[Sequence[bytes]] = deque(maxlen=4)
        self._position = PositionCheck(client, clock)
        self._delivered = Delivered()
        self._committed: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the open stream, so that the next consumer can have the subscription. The client stays open."""
        stream, self._stream = self._stream, None
        self._recent.clear()
        if stream is not None:
            stream.close()

    @property
    def stream(self) -> ManagedStream | None:
        """The stream that is open, if one is."""
        return self._stream if self._stream is not None and self._stream.is_open else None

    def schema(self, schema_id: str) -> str:
        """Return the Avro schema JSON of ``schema_id``."""
        return self._client.schema(schema_id)

    def renew_session(self) -> None:
        """Forget the access token that was refused last, so that the next call logs in again."""
        self._client.renew_session()

    def prove_contact(self, topic: str) -> None:
        """Return once Salesforce has answered something on the same connection; see the client's."""
        self._client.prove_contact(topic)

    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses:
        """Yield batches in stream order; see the class.

        :param topic: that of the subscription.
        :param start: ``COMMITTED``, or anything but a replay ID once a position was lost: where Salesforce goes on; or
            a replay ID up to which, itself included, everything is stored already.
        :param limit: events to yield. Those that are left out do not count.
        :raises ConfigurationError: at once, if an argument is unusable.
        :raises SubscriptionBusyError: if another stream holds it for longer than ``busy_timeout``.
        :raises SubscriptionMovedError: if ``start`` was yielded and does not come again: the position has moved.
        :raises ReplayIdLostError: before anything is yielded, if ``start`` is a position that cannot be read any more.
        :raises CommitError: if Salesforce refuses to commit what is durable.
        :raises SalesforceStreamError: whenever the stream ends otherwise.
        """
        if self._position.is_over and not isinstance(start, bytes):
            start = StartFrom.COMMITTED
        check_start(self.subscription, topic, start)
        check_amounts(named(self.subscription), limit, idle_timeout=idle_timeout)
        return self._read(topic, start, limit, idle_timeout)

    def commit(self, replay_id: bytes, timeout: float = CONFIRM_TIMEOUT) -> None:
        """Tell Salesforce that everything up to and including ``replay_id`` is durable, and wait until it knows.

        Uses the open stream if that has delivered ``replay_id``. Else it reads a new one, without keeping anything,
        until ``replay_id`` comes again, and commits there; or until it is plain that Salesforce is past it, so that an
        earlier commit was carried out and only its acknowledgement was lost. Faults that may pass are outlasted.

        A source that has yielded nothing tells by ``is_landed``. Without that it reads until it is caught up.

        :param timeout: seconds that this may take.
        :raises CommitError: if Salesforce refuses to.
        :raises SubscriptionBusyError: if another stream holds it for longer than ``busy_timeout``.
        :raises SubscriptionMovedError: if ``replay_id`` was yielded, what lies before it comes again, and it does not.
        :raises ServiceUnavailableError: if it did not succeed in time. The events will be delivered again.
        """
        deadline = self._clock() + timeout
        renewed, is_committed = False, self._committed == replay_id
        while not is_committed:
            try:
                if self._has_delivered(replay_id) and self.stream is not None:
                    # An answer that does not come leaves time for a stream that can tell.
                    self._commit_on_stream(replay_id, (deadline + self._clock()) / 2)
                else:
                    self._read_through(replay_id, deadline)
            except SalesforceStreamError as error:
                self.close()
                pause = 0.5 + self._random() / 2
                passes = error.retriable and not isinstance(error, SubscriptionBusyError)  # that was waited for
                if not passes or self._clock() + pause >= deadline or (error.invalidates_token and renewed):
                    raise
                if error.invalidates_token:
                    renewed = True
                    self.renew_session()
                log.info("%s: committing once more in %.1f s after: %s", named(self.subscription), pause, error)
                self._sleep(pause)
            else:
                is_committed = True
        self._delivered.forget()

    def _read(self, topic: str, start: bytes | StartFrom, limit: int | None, idle_timeout: float) -> Responses:
        redelivery = self._delivered.begin(start, self._is_landed)
        responses = self._responses(limit, idle_timeout)
        if not isinstance(start, bytes):
            self._position.is_over = True
        elif not self._position.is_over:
            responses = self._position.passed_on(responses, topic, start)
        try:
            for response in responses:
                if response is None:
                    yield None
                elif len(response):
                    yield self._new_events(response, redelivery)
                else:
                    self._confirm(response, redelivery)
                    yield response
        except SalesforceStreamError:
            self.close()
            raise
        finally:
            if self._stream is not None:
                self._stream.stop_fetching()

    def _responses(self, limit: int | None, idle_timeout: float) -> Responses:
        """Yield the responses of a new stream; wait while another one holds the subscription."""
        while True:
            self.close()
            self._stream = self._client.managed_subscribe(
                self.subscription, limit=limit, idle_timeout=idle_timeout, recommit=self._known_to_be_committed()
            )
            try:
                with self._client.in_contact(named(self.subscription)):
                    for response in self._stream:
                        if response is not None:
                            self._slot.taken()
                            self._recent.append(response.replay_ids or [response.latest_replay_id])
                        yield response
                return
            except SubscriptionBusyError as error:
                self._sleep(self._slot.pause_after(error))

    def _known_to_be_committed(self) -> bytes | None:
        """Return what the keepalive may commit again: it moves nothing, or only over what is stored."""
        base = self._delivered.base
        known = self._committed or (base if isinstance(base, bytes) else None)
        return known if self._commits else None

    def _new_events(self, response: EventBatch, redelivery: Redelivery) -> EventBatch:
        was_over = redelivery.is_over
        known = redelivery.known(response.replay_ids)
        if known and self._stream is not None:
            self._stream.allow(known)
        if redelivery.is_over and not was_over and redelivery.last is not None and self._delivered.first is None:
            self._commit_durable(redelivery.last)
        batch = without_known(response, known)
        self._delivered.given(batch)
        return batch

    def _confirm(self, response: EventBatch, redelivery: Redelivery) -> None:
        """Take note that the stream is caught up, if the empty response says so."""
        if not confirms(response):
            return
        if not redelivery.is_over and redelivery.is_landed is None:
            raise self._moved(redelivery)
        redelivery.is_over = True
        if self._delivered.first is None:
            self._commit_durable(response.latest_replay_id)
        self._delivered.caught_up(response.latest_replay_id)

    def _commit_durable(self, replay_id: bytes) -> None:
        """Commit what nobody needs to be delivered again: nothing was yielded since the last commit."""
        if self._commits:
            self._commit_on_stream(replay_id, self._clock() + CONFIRM_TIMEOUT)

    def _commit_on_stream(self, replay_id: bytes, deadline: float) -> None:
        if self._stream is None:
            raise ServiceUnavailableError(f"{named(self.subscription)}: no stream is open. Nothing moved.")
        self._stream.commit(replay_id)
        self._stream.wait_for_commit(replay_id, max(0.0, deadline - self._clock()))
        self._committed = replay_id

    def _read_through(self, replay_id: bytes, deadline: float) -> None:
        """Read a new stream until ``replay_id`` came again, and commit it; or until it is plain that it will not."""
        redelivery = self._delivered.begin(replay_id, self._is_landed)
        if redelivery.is_over:  # nothing says what comes again; it is what there is until ``replay_id``
            redelivery = Redelivery(replay_id)
        for response in self._responses(_COMMIT_READ, _POLL):
            if self._clock() >= deadline:
                raise ServiceUnavailableError(
                    f"{named(self.subscription)}: replay ID {replay_id.hex()} did not come again in time to be "
                    "committed. Nothing is lost: the events after the committed position are delivered again."
                )
            if response is None:
                continue
            if confirms(response) or (len(response) and self._came_again(response, redelivery)):
                break
            if self._stream is not None:
                self._stream.allow(len(response))
        if self._stream is not None:
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
            self._commit_on_stream(redelivery.last, deadline)
        elif redelivery.last is not None and self._delivered.first is not None:
            raise self._moved(redelivery)
        else:
            log.info("%s: Salesforce is past replay ID %s already.", named(self.subscription), replay_id.hex())

    def _has_delivered(self, replay_id: bytes) -> bool:
        """Return whether the open stream has, lately. Where it has and this says no, it is only read again."""
        return any(replay_id in replay_ids for replay_ids in self._recent)

    def _moved(self, redelivery: Redelivery) -> SubscriptionMovedError:
        through = b"" if redelivery.through is None else redelivery.through
        return SubscriptionMovedError(
            f"{named(self.subscription)}: the stream broke, and replay ID {through.hex()}, which was delivered before "
            "and not committed, does not come again. So its position moved meanwhile: another consumer commits to it, "
            "or its committed replay ID was lost and errorRecoveryReplay applies, or it never was committed and its "
            "defaultReplay is LATEST. Nothing of this drain was recorded. Find out which, give each consumer a managed "
            "subscription of its own and set defaultReplay to EARLIEST, then run again."
        )
