"""How a task waits for events: on the triggerer, or in its own worker. For the drain and the sensor."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.events import StartFrom
from airflow_provider_sfstream.triggers.loading import described
from airflow_provider_sfstream.watch.conditions import WakeUpConditions

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
    from airflow_provider_sfstream.watch.conditions import WakeUp

log = logging.getLogger(__name__)


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
    salesforce_conn_id: str
    subscription: str

    def defer(self, *, trigger: BaseTrigger, method_name: str, timeout: timedelta | None) -> NoReturn: ...


def defer_until(
    operator: EventOperator,
    conditions: WakeUpConditions,
    start: bytes | StartFrom,
    timeout: timedelta | None,
) -> NoReturn:
    """Leave the worker, until the trigger finds that ``conditions`` hold for the events after ``start``.

    :raises ConfigurationError: if an argument of the trigger cannot be used.
    """
    from airflow_provider_sfstream.protocol.replay_ids import replay_id_to_text
    from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

    trigger = SalesforceEventTrigger(
        topic=operator.topic,
        salesforce_conn_id=operator.salesforce_conn_id,
        subscription=operator.subscription,
        replay_id=replay_id_to_text(start) if isinstance(start, bytes) else None,
        start_from="latest" if start is StartFrom.LATEST else "earliest",
        min_events=conditions.min_events,
        max_wait=conditions.max_wait,
    )
    trigger.serialize()  # Airflow does that too, but where an error can no longer be told as a permanent one
    operator.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)


def wait_in_worker(
    hook: SalesforcePubSubHook,
    topic: str,
    start: bytes | StartFrom,
    conditions: WakeUpConditions,
    timeout: timedelta | None,
) -> WakeUp:
    """Block until ``conditions`` hold for the events after ``start``, and return the wake-up.

    Outlasts faults that pass, like the trigger. The connection is looked up first, because the worker's way to Airflow
    is not for event loops.

    :param timeout: the task's execution timeout. Airflow's own alarm may be swallowed by an event loop's callback.
    :raises AirflowTaskTimeout: after ``timeout``.
    :raises SalesforceStreamError: a fault that no waiting can mend.
    """
    from airflow.sdk.exceptions import AirflowTaskTimeout

    from airflow_provider_sfstream.watch.wake_ups import first_wake_up

    async def wait() -> WakeUp:
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
            async with hook.async_client() as client:
                return await first_wake_up(client, topic, start, conditions)

    hook.settings()
    try:
        return asyncio.run(wait())
    except TimeoutError:
        raise AirflowTaskTimeout(f"{topic}: too few events came within {timeout}; nothing was read or moved.") from None


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
