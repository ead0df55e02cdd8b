"""Wait of a task for events, or for the end of a stream: on the triggerer, or in its worker."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowTaskTimeout
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT, StartFrom, described
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, error_from_payload, payload

if TYPE_CHECKING:
    from airflow_provider_sfstream.actions.drain.arguments import Drain
    from airflow_provider_sfstream.hooks.event_topics import EventHook
    from airflow_provider_sfstream.replay_stores.base import Position
    from airflow_provider_sfstream.salesforce.streams import RunIdentity
    from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
    from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(hours=12)
"""Longest wait. The drain then reads the available events, few or none."""
LONGEST_UNCONFIRMED = {timedelta(hours=72): timedelta(hours=30), timedelta(hours=24): timedelta(hours=8)}
"""By retention: age of a recorded position at which a drain must record it again before the next wait.

With the wait, and with the day for which drains may leave a position unconfirmed, 30 hours stay below the 72 for which
a replay ID can be read, and 8 hours below 24. So a stream of the Pub/Sub API is not lost only because it was quiet. On
the Streaming API the position ages all the same, and a drain reports that soon."""


def is_to_be_confirmed(position: Position, retention: timedelta, now: datetime) -> bool:
    """Return whether waiting after ``position`` could end with a replay ID that is too old to be read."""
    if position.replay_id is None or position.updated_at is None:
        return False
    return now - position.updated_at > LONGEST_UNCONFIRMED[retention]


def event_trigger(names: Any, conditions: WakeUpConditions, after: bytes | StartFrom) -> SalesforceEventTrigger:
    """Return the trigger that fires once the conditions hold for the events after ``after``.

    :param names: operator, with the arguments that name the consumer of a topic.
    """
    from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
    from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

    trigger = SalesforceEventTrigger(
        topic=names.topic,
        api=names.api,
        salesforce_conn_id=names.salesforce_conn_id,
        subscription=names.subscription,
        managed_subscription=names.managed_subscription if after is StartFrom.COMMITTED else None,
        after=replay_id_to_text(after) if isinstance(after, bytes) else None,
        start_from="latest" if after is StartFrom.LATEST else "earliest",
        min_events=conditions.min_events,
        max_wait=conditions.max_wait,
        until_confirmed=conditions.until_confirmed,
    )
    trigger.serialize()  # checks the arguments; Airflow does it too late to report a permanent error
    return trigger


def defer_until_confirmed(drain: Drain, give_up_at: datetime | None) -> None:
    """Defer until Salesforce confirms that nothing follows the position, or something does. Return if ``give_up_at``
    is over.

    :param give_up_at: ``None`` for a wait that begins now.
    """
    now = datetime.now(UTC)
    give_up_at = give_up_at or now + timedelta(seconds=CONFIRM_TIMEOUT)
    after = drain.landed.position().replay_id
    if after is None or give_up_at <= now:
        return
    drain.landed.store.close()
    text = "%s: waiting on the triggerer for Salesforce to confirm the end of the stream, until %s at most."
    log.info(text, drain.landed.stream, give_up_at.isoformat())
    drain.arguments.defer(
        trigger=event_trigger(drain.arguments, WakeUpConditions(until_confirmed=True), after),
        method_name="execute_interval",
        kwargs={"after": after.hex(), "give_up_at": give_up_at.isoformat()},
        timeout=give_up_at - now,
    )


def confirmed_end_from(event: dict[str, Any], after: str) -> ConfirmedEnd | None:
    """Return the end of a stream that a wake-up confirms after a replay ID (hex text); ``None``: there are events."""
    from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd

    if "confirmed_at" not in event:
        return None
    return ConfirmedEnd(
        after=bytes.fromhex(after),
        through=bytes.fromhex(event["through"] or after),
        opened_at=datetime.fromisoformat(event["confirmed_at"]),
        contact_at=datetime.fromisoformat(event["contact_at"]),
    )


def wait_for_events(drain: Drain, conditions: WakeUpConditions, run: RunIdentity) -> None:
    """Return once the conditions hold, here or (by deferring) on the triggerer; at once if a wait is of no use."""
    arguments, landed, stream = drain.arguments, drain.landed, drain.landed.stream
    position = landed.known_position(run)
    after = drain.start_from if position.replay_id is None else position.replay_id
    if landed.already_drained(run, position):
        log.info("%s: not waiting for events, because the window of %s is landed.", stream, run)
        return
    if is_to_be_confirmed(position, landed.retention, datetime.now(UTC)):
        log.info(
            "%s: not waiting for events, because the position was last recorded at %s and could expire. "
            "The drain records how far the stream was read.",
            stream,
            position.updated_at,
        )
        return
    if after is StartFrom.LATEST or (position.replay_id is None and arguments.managed_subscription is not None):
        log.info("%s: not waiting for events, because the first drain determines its start position.", stream)
        return
    landed.store.close()  # a wait may be long
    log.info("%s: waiting for %s.", stream, awaited(conditions, after))
    longest = min(LONGEST_WAIT, arguments.execution_timeout or LONGEST_WAIT)
    if arguments.deferrable:
        trigger = event_trigger(arguments, conditions, after)
        arguments.defer(trigger=trigger, method_name="execute_complete", timeout=longest)
    wake_up = wait_in_worker(drain.hook, stream.topic, after, conditions, longest)
    if wake_up is not None:
        log_wake_up(payload(stream, wake_up))
    elif not waited_long_enough(arguments.topic, arguments.execution_timeout):
        # Airflow's own alarm, but an event loop may have swallowed it.
        raise AirflowTaskTimeout(
            f"{stream}: too few events arrived within {longest}. No event was read and the position was not moved."
        )


def waited_long_enough(topic: str, execution_timeout: timedelta | None) -> bool:
    """Return whether a wait that timed out lasted for :data:`LONGEST_WAIT`, and not for the execution timeout."""
    if execution_timeout is not None and execution_timeout <= LONGEST_WAIT:
        return False
    log.info("%s: too few events arrived within %s; draining the available events.", topic, LONGEST_WAIT)
    return True


def wait_in_worker(
    hook: EventHook, topic: str, after: bytes | StartFrom, conditions: WakeUpConditions, timeout: timedelta
) -> WakeUp | None:
    """Block until ``conditions`` hold for the events after ``after``, and return the wake-up; ``None`` after a timeout.

    :raises SalesforceStreamError: a permanent fault. Transient ones do not end the wait.
    """
    from airflow_provider_sfstream.streams.watch.wake_ups import Watch

    async def wait() -> WakeUp:
        async with asyncio.timeout(timeout.total_seconds()), hook.async_client() as client:
            return await Watch(client, topic, after, conditions).first_wake_up()

    hook.settings()  # read here, because the event loop cannot read a connection in a worker
    try:
        return asyncio.run(wait())
    except TimeoutError:
        return None


def awaited(conditions: WakeUpConditions, after: bytes | StartFrom) -> str:
    """Return the condition and the position of a wait, for a log line."""
    events = "an event" if conditions.min_events == 1 else f"{conditions.min_events} events"
    age = "" if conditions.max_wait is None else f", or one that is {conditions.max_wait:g} s old"
    return f"{events}{age}, from {described(after)} on"


def log_wake_up(event: dict[str, Any]) -> None:
    """Log the payload of a wake-up, or raise the error that ended the wait."""
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
