"""Several subscriptions to one topic, side by side, for a drain that is far behind.

At most 100 events may be outstanding on a subscription, so that one gets no more than 100 of them in a round trip.
Others, which begin after replay IDs further on, read ahead meanwhile, into temporary files.

Guarantee: a drain is given the events after its position in order, each once, as by one subscription, whatever the
replay IDs are that others begin after, and in whatever order they are given. Nothing is believed of them: what was read
after one is given only to a drain that has come to it, event by event. A replay ID that cannot be read, is of no event,
or lies elsewhere costs what was read after it, and nothing else. Nor does anything here say where the stream ends: from
where others have read to, the drain reads on itself.
"""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.drain.spool import Spool
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.reading.cursor import Cursor
from airflow_provider_sfstream.reading.recovery import Retries
from airflow_provider_sfstream.reading.source import EventBatch, EventSource, Responses, StartFrom

log = logging.getLogger(__name__)

MOST_BYTES_AHEAD = 2**30
"""What may wait on disk before no more is read ahead."""
PATIENCE = 5.0
"""Seconds without an event of another subscription after which a drain that waits for it reads on itself."""
_MOST_FAULTS = 4
_LOOK_SECONDS = 0.25
_SECONDS_TO_END = 10.0


@dataclass(eq=False)
class _Stretch:
    """What one subscription reads ahead after ``start``, an unbroken run of the stream.

    ``ended``: there will be no more of it. ``left``: nobody wants it any more.
    """

    start: bytes | StartFrom
    spool: Spool = field(default_factory=Spool)
    ended: bool = False
    left: bool = False


class SideBySide:
    """Reads ahead of one drain. A context manager: leaving it ends the subscriptions and forgets what was not taken.

    A fault of one is tried again a few times, as a drain does. What does not pass ends it: the drain takes what came
    before, reads on there itself, and meets the fault, if it is still there.

    :param source: is used by several threads at once.
    :param start: where the drain begins; not ``LATEST``, which is somewhere else each time.
    :param places: replay IDs of the topic that seem to lie after ``start``, in this order.
    :param streams: subscriptions at a time. While the drain reads itself there may be one more.
    :param limit: events that each of them asks for at most; ``None``: no limit.
    :param most_bytes: see :data:`MOST_BYTES_AHEAD`; ``patience``: see :data:`PATIENCE`.
    """

    def __init__(
        self,
        source: EventSource,
        topic: str,
        start: bytes | StartFrom,
        places: Iterable[bytes],
        *,
        streams: int,
        limit: int | None = None,
        most_bytes: int = MOST_BYTES_AHEAD,
        patience: float = PATIENCE,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._source, self._topic, self._limit = source, topic, limit
        self._most_bytes, self._patience, self._random = most_bytes, patience, random
        self._changed = threading.Condition()
        self._closed = False
        self._pending = dict.fromkeys([start, *places])
        self._streams = min(streams, len(self._pending))
        self._ahead: dict[bytes | StartFrom, _Stretch] = {}
        """Those that were begun and that the drain has not come to, by where they begin."""
        self._threads: list[threading.Thread] = []
        self._waiting_bytes = self._read_count = self._given_count = 0

    def __enter__(self) -> Self:
        log.info(
            "%s: reading after %d replay IDs side by side, on %d subscriptions.",
            self._topic,
            len(self._pending),
            self._streams,
        )
        begun = [self._next() for _ in range(self._streams)]  # before any of them, or the drain, comes to another
        for stretch in begun:
            thread = threading.Thread(
                target=self._run, args=(stretch,), name=f"sfstream-ahead {self._topic}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_SECONDS_TO_END)
        with self._changed:
            for stretch in self._ahead.values():
                self._leave(stretch)
        log.info(
            "%s: %d events were read side by side; %d more, which count as delivered too, were not needed.",
            self._topic,
            self._given_count,
            self._read_count - self._given_count,
        )

    def after(self, position: bytes | StartFrom, seconds: float) -> Responses:
        """Yield what others read after ``position``, in order, and ``None`` about each ``seconds`` that it takes.

        Ends where nobody has read on, or nothing came for a while: there the drain reads itself.
        """
        while (stretch := self._come_to(position)) is not None:
            try:
                for batch in self._of(stretch, seconds):
                    if batch is not None:
                        position = batch.replay_ids[-1]
                    yield batch
            finally:
                with self._changed:
                    self._leave(stretch)

    def before_others(self, position: bytes | StartFrom, batch: EventBatch) -> EventBatch:
        """Return the events of ``batch``, which the drain read itself after ``position``, up to where others read on:
        the rest is given by :meth:`after`."""
        with self._changed:
            return self._before_others(position, batch, None)

    # -- the drain's side

    def _come_to(self, position: bytes | StartFrom) -> _Stretch | None:
        with self._changed:
            self._pending.pop(position, None)
            return self._ahead.pop(position, None)

    def _of(self, stretch: _Stretch, seconds: float) -> Responses:
        patient_until = time.monotonic() + self._patience
        while True:
            with self._changed:
                if not stretch.spool.waiting_bytes and not stretch.ended:
                    self._changed.wait(min(seconds, self._patience))
                before = stretch.spool.waiting_bytes
                batch = stretch.spool.take()
                self._waiting_bytes -= before - stretch.spool.waiting_bytes
                if batch is not None:
                    self._given_count += len(batch)
                    self._changed.notify_all()
                elif stretch.ended or time.monotonic() >= patient_until:
                    return
            if batch is not None:
                patient_until = time.monotonic() + self._patience
            yield batch

    def _leave(self, stretch: _Stretch) -> None:
        """Want no more of ``stretch``. The lock is held."""
        self._waiting_bytes -= stretch.spool.waiting_bytes
        stretch.left = True
        stretch.spool.close()
        self._changed.notify_all()

    # -- the threads that read ahead

    def _run(self, stretch: _Stretch | None) -> None:
        while (stretch := stretch or self._next()) is not None:
            try:
                self._read(stretch)
            except Exception as error:  # the drain, which reads on here itself, meets what does not pass
                log.info("%s: reading ahead after %s ended: %s", self._topic, _named(stretch.start), error)
            with self._changed:
                stretch.ended = True
                self._changed.notify_all()
            stretch = None

    def _next(self) -> _Stretch | None:
        """Begin after the next replay ID, once there is room for what comes; ``None`` if there is none left."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._pending or self._waiting_bytes < self._most_bytes)
            if self._closed or not self._pending:
                return None
            start = next(iter(self._pending))
            del self._pending[start]
            stretch = self._ahead[start] = _Stretch(start)
            return stretch

    def _read(self, stretch: _Stretch) -> None:
        """Read until somebody else has read on, the stream ends, or nobody wants more.

        :raises SalesforceStreamError: a fault that does not pass.
        """
        cursor = Cursor(stretch.start, time.monotonic)
        retries = Retries(self._topic, _MOST_FAULTS, self._random)
        while True:
            try:
                return self._read_once(stretch, cursor, retries)
            except SalesforceStreamError as error:
                if error.replay_lost:
                    raise
                pause = retries.pause_after(error)
                if error.invalidates_token:
                    self._source.renew_session()
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or stretch.left, pause)

    def _read_once(self, stretch: _Stretch, cursor: Cursor, retries: Retries) -> None:
        responses = self._source.subscribe(
            self._topic, cursor.position, limit=self._limit, idle_timeout=_LOOK_SECONDS, answer_within=None
        )
        with closing(responses):
            for response in responses:
                if response is not None and not len(response) and response.pending > 0:
                    return  # the end, which the drain has to be told itself
                if not self._put(stretch, cursor, response):
                    return
                if response:
                    retries.progressed()

    def _put(self, stretch: _Stretch, cursor: Cursor, response: EventBatch | None) -> bool:
        """Keep the events of ``response``, once there is room; return whether to read on."""
        batch = cursor.without_known(response) if response else None
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or stretch.left
                    or self._waiting_bytes < self._most_bytes
                    or not stretch.spool.waiting_bytes
                )
            )
            if self._closed or stretch.left:
                return False
            if not batch:
                return True
            self._read_count += len(batch)
            part = self._before_others(cursor.position, batch, stretch)
            if len(part):
                before = stretch.spool.waiting_bytes
                stretch.spool.put(part)
                self._waiting_bytes += stretch.spool.waiting_bytes - before
                cursor.took(part.replay_ids[-1])
                self._changed.notify_all()
            return part is batch

    def _before_others(self, position: bytes | StartFrom, batch: EventBatch, reader: _Stretch | None) -> EventBatch:
        """Return the events of ``batch`` up to where somebody else than ``reader`` reads on. The lock is held.

        That is behind all events with the replay ID after which the other began, of which it is given none. Where
        nobody has begun yet, nobody needs to.
        """
        for index, replay_id in enumerate(batch.replay_ids):
            if replay_id != position and self._ahead.get(position, reader) is not reader:
                return batch.part(0, index)
            self._pending.pop(replay_id, None)
            position = replay_id
        return batch


def _named(start: bytes | StartFrom) -> str:
    return start.hex() if isinstance(start, bytes) else start.value
