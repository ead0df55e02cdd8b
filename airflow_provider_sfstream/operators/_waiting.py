"""How a task waits for events: on the triggerer, or in its own worker. For the drain and the sensor."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.events import StartFrom
from airflow_provider_sfstream.protocol.topics import Api, retention
from airflow_provider_sfstream.triggers.loading import described
from airflow_provider_sfstream.watch.conditions import WakeUpConditions

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_sfstream.hooks.event_api import EventHook
    from airflow_provider_sfstream.stores.base import Position
    from airflow_provider_sfstream.watch.conditions import WakeUp

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(hours=12)
"""After which a drain takes what is there, if only nothing."""
LONGEST_UNCONFIRMED = {timedelta(hours=72): timedelta(hours=30), timedelta(hours=24): timedelta(hours=8)}
"""By retention: after which a position must be recorded anew by a drain before anybody waits again.

With the wait, and with the day for which drains may leave a position unconfirmed, 30 hours stay below the 72 for which
a replay ID can be read. With the wait, 8 hours stay below the 24 within which a drain can tell that a replay ID has
aged out in silence. So a stream is not lost only because it was quiet."""


def is_to_be_confirmed(position: Position, topic: str, now: datetime) -> bool:
    """Return whether waiting after ``position`` could end with a replay ID that is too old to be read."""
    if position.replay_id is None or position.updated_at is None:
        return False
    return now - position.updated_at > LONGEST_UNCONFIRMED[retention(topic)]


def wake_up_conditions(
    min_events: int, max_wait: float | timedelta | None, *, name: str = "max_wait"
) -> WakeUpConditions:
    """Return the conditions that two arguments say, the second of them called ``name`` by its operator.

    :raises ConfigurationError: naming the argument that cannot be used.
    """
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    try:
        return WakeUpConditions(min_events=min_events, max_wait=seconds)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("max_wait", name)) from None


class EventOperator(Protocol):
    """What an operator has that waits for events of a stream."""

    topic: str
    api: Api | None
    salesforce_conn_id: str
    subscription: str
    managed_subscription: str | None

    def defer(self, *, trigger: BaseTrigger, method_name: str, timeout: timedelta) -> NoReturn: ...


def defer_until(
    operator: EventOperator,
    conditions: WakeUpConditions,
    start: bytes | StartFrom,
    timeout: timedelta,
) -> NoReturn:
    """Leave the worker, until the trigger finds that ``conditions`` hold for the events after ``start``.

    :raises ConfigurationError: if an argument of the trigger cannot be used.
    """
    from airflow_provider_sfstream.protocol.replay_ids import replay_id_to_text
    from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

    trigger = SalesforceEventTrigger(
        topic=operator.topic,
        api=operator.api,
        salesforce_conn_id=operator.salesforce_conn_id,
        subscription=operator.subscription,
        managed_subscription=operator.managed_subscription if start is StartFrom.COMMITTED else None,
        replay_id=replay_id_to_text(start) if isinstance(start, bytes) else None,
        start_from="latest" if start is StartFrom.LATEST else "earliest",
        min_events=conditions.min_events,
        max_wait=conditions.max_wait,
    )
    trigger.serialize()  # Airflow does that too, but where an error can no longer be told as a permanent one
    operator.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)


def wait_in_worker(
    hook: EventHook,
    topic: str,
    start: bytes | StartFrom,
    conditions: WakeUpConditions,
    timeout: timedelta,
) -> WakeUp | None:
    """Block until ``conditions`` hold for the events after ``start``, and return the wake-up; ``None`` after a timeout.

    Outlasts faults that pass, like the trigger. The connection is looked up first, because the worker's way to Airflow
    is not for event loops.

    :raises SalesforceStreamError: a fault that no waiting can mend.
    """
    from airflow_provider_sfstream.watch.wake_ups import first_wake_up

    async def wait() -> WakeUp:
        async with asyncio.timeout(timeout.total_seconds()), hook.async_client() as client:
            return await first_wake_up(client, topic, start, conditions)

    hook.settings()
    try:
        return asyncio.run(wait())
    except TimeoutError:
        return None


def awaited(conditions: WakeUpConditions, start: bytes | StartFrom) -> str:
    """Return what is waited for, and from where, for a log line."""
    events = "an event" if conditions.min_events == 1 else f"{conditions.min_events} events"
    age = "" if conditions.max_wait is None else f", or one that is {conditions.max_wait:g} s old"
    return f"{events}{age}, from {described(start)} on"


def log_wake_up(event: dict[str, Any]) -> None:
    """Log what woke a task: the payload of a wake-up.

    :raises SalesforceStreamError: what the waiting ended with, if it could not succeed.
    """
    from airflow_provider_sfstream.watch.payload import error_from_payload

    error = error_from_payload(event)
    if error is not None:
        raise error
    log.info(
        "Woken by %r: %s events of %s, the first %s, the last %s.",
        event["reason"],
        event["event_count"],
        event["stream"]["topic"],
        event["first_replay_id"],
        event["through"],
    )
