"""Shared watch of the asset watchers of a topic: one subscription, and a position over the events that Airflow stored.

Guarantee: every event after the watch position is reported to every watcher of that time, at least once,
and the position advances over a wake-up only when Airflow has stored the events of all watchers for it. A wake-up is
repeated if the triggerer ends between storing it and storing the position, or if Airflow restarts a watcher whose
wake-up was not stored in time. A watcher that joins a running watch fires once, because there may be events from before
it joined. None of this can lose an event: the drain reads from its own position.

A topic without events for a day (half a day, if its events are retained for 24 hours only) wakes its DAGs once, so that
their drains record a newer position. Salesforce deletes a replay ID with its event, also if no event was published
since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import StartFrom, described
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_text
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, retention_by_kind
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason, payload

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.event_topics import EventHook

log = logging.getLogger(__name__)

STATE_KEY = "sfstream_watch_position"
"""Key of the watch position in the asset's state: ``org_id``, ``replay_id`` (hex) and ``fired_at`` (ISO 8601)."""

LONGEST_QUIET = timedelta(hours=24)
"""A quiet topic wakes its DAGs after this time, or after half of its retention if that is less, so that their positions
do not age out."""

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 300.0
"""Seconds between attempts after a permanent error, doubling."""
_SECONDS_FOR_STATE = 10.0


class WakeUpNotStoredError(Exception):
    """Airflow did not store the event of a wake-up; the watch returns to its position and repeats it."""


class Watcher(Protocol):
    """Trigger of a watch; ``asset_state_store`` is set by Airflow."""

    topic: str
    asset_state_store: Any

    @property
    def conditions(self) -> WakeUpConditions: ...

    def shared_stream_key(self) -> Hashable: ...

    def hook(self) -> EventHook: ...

    def stream(self, org_id: str) -> Stream: ...

    async def start(self, stream: Stream) -> bytes | StartFrom: ...


@dataclass
class _Group:
    """The watchers of one key in this triggerer, and the org once it is watched."""

    watchers: list[Watcher] = field(default_factory=list)
    org_id: str | None = None

    def states(self) -> list[Any]:
        """Return the states of the watched assets. Before Airflow 3.3.2, they have no asynchronous methods."""
        states = [watcher.asset_state_store for watcher in self.watchers]
        return [state for state in states if hasattr(state, "aset")]


_groups: dict[Hashable, _Group] = {}
# Airflow sets the asset's state on the watchers, and passes the events to the producer: the groups connect the two.


async def fired(trigger: Watcher, shared_stream: AsyncIterator[Any]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of ``trigger`` for the wake-ups of its shared watch (:class:`_WakeUpState`)."""
    key = trigger.shared_stream_key()
    group = _groups.setdefault(key, _Group())
    group.watchers.append(trigger)
    try:
        if group.org_id is not None:
            yield payload(trigger.stream(group.org_id), WakeUp(WakeUpReason.STARTED))
        async for state in shared_stream:
            if state.fires:
                yield payload(trigger.stream(state.stream.org_id), state.wake_up)
    finally:
        group.watchers.remove(trigger)
        if not group.watchers:
            _groups.pop(key, None)


@dataclass(frozen=True)
class _WakeUpState:
    """A wake-up, whether it fires, and the time of the last one that fired (this one included)."""

    stream: Stream
    wake_up: WakeUp
    fires: bool
    fired_at: datetime


class TopicWatch(SharedStreamProducer):
    """One subscription to a topic, for all watchers of one key.

    :param trigger: one of the watchers, for the arguments that they have in common.
    :param now: returns the current time, with its time zone.
    """

    def __init__(self, trigger: Watcher, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._trigger = trigger
        self._now = now
        self._group = _groups.get(trigger.shared_stream_key(), _Group())
        self._fired_at = now()
        self._resume: tuple[Stream, bytes | StartFrom] | None = None
        self._has_announced = False

    async def open_stream(self) -> AsyncIterator[tuple[_WakeUpState, _WakeUpState]]:
        """Yield wake-ups without end; Airflow passes each to :meth:`advance` after storing it."""
        topic = self._trigger.topic
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._watch()) as wake_ups:
                    async for stream, wake_up in wake_ups:
                        if wake_up.through is not None:
                            pause = FIRST_PAUSE
                        state = self._state_after(stream, wake_up)
                        yield state, state
            except SalesforceStreamError as error:
                log.error("%s: retrying the watch in %.0f s. Cause: %s", topic, pause, error)  # noqa: TRY400
            except Exception:  # a watch has no task to fail, and nothing would start it again
                log.exception("%s: the watch failed; retrying in %.0f s.", topic, pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    def _state_after(self, stream: Stream, wake_up: WakeUp) -> _WakeUpState:
        """Return the state after ``wake_up``, and set the position for a restart of the watch."""
        if wake_up.through is not None:
            self._resume = stream, wake_up.through
        elif wake_up.reason is WakeUpReason.REPLAY_LOST:
            self._resume = stream, StartFrom.LATEST
        fires = self._fires(wake_up)
        if fires:
            self._fired_at = self._now()
        return _WakeUpState(stream, wake_up, fires, self._fired_at)

    def _fires(self, wake_up: WakeUp) -> bool:
        if wake_up.reason is WakeUpReason.QUIET:
            retention = retention_by_kind(self._trigger.topic) or LONG_RETENTION
            return self._now() - self._fired_at >= min(LONGEST_QUIET, retention / 2)
        if wake_up.through is None:
            # Possible events are reported once, not with each attempt to watch an unreadable topic.
            is_repeated, self._has_announced = self._has_announced, True
            return not is_repeated or wake_up.event_count > 0
        return True

    async def _watch(self) -> AsyncGenerator[tuple[Stream, WakeUp]]:
        trigger = self._trigger
        # In a thread: the import of gRPC or Arrow would block the event loop for too long.
        wake_ups = await asyncio.to_thread(import_module, "airflow_provider_sfstream.streams.watch.wake_ups")
        async with trigger.hook().async_client() as client:
            stream = trigger.stream(await client.org_id())
            after = await self._start(stream)
            if after is StartFrom.LATEST and self._has_announced and not client.confirms_positions:
                after = StartFrom.EARLIEST  # possible events are not reported a second time
            self._group.org_id = stream.org_id
            log.info("Watching %s, from %s.", stream.topic, described(after))
            async with aclosing(
                wake_ups.Watch(client, trigger.topic, after, trigger.conditions).wake_ups()
            ) as received:
                async for wake_up in received:
                    yield stream, wake_up

    async def _start(self, stream: Stream) -> bytes | StartFrom:
        """Return the start of the watch: after the last wake-up, else after the watch position, else of the trigger."""
        if self._resume is not None and self._resume[0] == stream:
            return self._resume[1]
        for state in self._group.states():
            position = await _read_position(state, stream)
            if position is not None:
                replay_id, self._fired_at = position
                return replay_id
        return await self._trigger.start(stream)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Save the watch position over the wake-ups that Airflow has stored.

        :raises WakeUpNotStoredError: if one was not stored, so that Airflow starts the watchers again before it.
        """
        stored = list(takewhile(lambda item: item.outcome.is_clean, batch))
        states = [item.broker_payload for item in stored if item.broker_payload.wake_up.through is not None]
        if states:
            await self._save(states[-1], states[-1].wake_up.through)
        if len(stored) < len(batch):
            raise WakeUpNotStoredError(
                f"{self._trigger.topic}: Airflow did not store a wake-up in time. The watch restarts after the last "
                "stored wake-up; no event is lost. If this error repeats, check the load of the triggerer and of "
                "Airflow's database."
            )

    async def _save(self, state: _WakeUpState, replay_id: bytes) -> None:
        fired_at = state.fired_at.isoformat()
        value = {"org_id": state.stream.org_id, "replay_id": replay_id.hex(), "fired_at": fired_at}
        for asset_state in self._group.states():
            try:
                await asyncio.wait_for(asset_state.aset(STATE_KEY, value), _SECONDS_FOR_STATE)
            except Exception as error:
                log.warning("%s: the watch position was not saved (%s). %s", state.stream.topic, error, _CONSEQUENCE)


_CONSEQUENCE = "Without it, a restarted watch wakes its DAGs once, because there may be unread events."


async def _read_position(state: Any, stream: Stream) -> tuple[bytes, datetime] | None:
    """Return the watch position in an asset's state, and the time at which the watch last fired.

    ``None`` if the state has no position of this org, or cannot be read.
    """
    try:
        value = await asyncio.wait_for(state.aget(STATE_KEY), _SECONDS_FOR_STATE)
        if value is None or value["org_id"] != stream.org_id:
            return None
        return replay_id_from_text(value["replay_id"]), datetime.fromisoformat(value["fired_at"])
    except Exception as error:
        log.warning("%s: the watch position could not be read (%s). %s", stream.topic, error, _CONSEQUENCE)
        return None
