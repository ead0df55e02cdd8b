"""Wait until the Pub/Sub API has applied a change of a managed event subscription, up to about two minutes.

Only the Pub/Sub API reports this state: to a subscriber it answers "not found" until it has applied the creation, and
"stopped" until it has applied a start (Pub/Sub API guide, "Managed Event Subscriptions"). A successful subscription is
closed immediately and commits nothing: Salesforce delivers its events again to the next consumer.

It never replaces an active consumer (an active consumer is an answer too), but one that subscribes at that moment has
to wait for up to 15 seconds. So use this module only when no consumer can use the subscription yet: right after it was
created, started, stopped or deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from enum import Enum

from airflow_provider_sfstream.exceptions import (
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

SILENCE = 5.0
"""Seconds to wait for a response: a refusal arrives immediately, an event if one exists, and a keepalive only after
minutes. The proof is another response on the same connection meanwhile."""

INTERVAL = 5.0
"""Seconds between two attempts."""

_STANDARD_CHANNEL = "/data/ChangeEvents"
"""A topic that every org has."""


class Visibility(Enum):
    """State of a managed event subscription at the Pub/Sub API."""

    OPEN = "can be subscribed to"
    STOPPED = "is stopped"
    UNKNOWN = "was not found"


def visibility_of(client: PubSubClient, subscription: ManagedSubscription, *, silence: float = SILENCE) -> Visibility:
    """Return the state of ``subscription`` at the Pub/Sub API now. Log in again once if the token is refused.

    :param silence: seconds to wait for a response, before and after Salesforce has answered another request.
    """
    try:
        return _observe(client, subscription, silence)
    except SessionExpiredError:
        client.renew_session()
        return _observe(client, subscription, silence)


def _observe(client: PubSubClient, subscription: ManagedSubscription, silence: float) -> Visibility:
    try:
        with closing(client.managed_subscribe(subscription, limit=1, idle_timeout=silence)) as stream:
            if next(stream, None) is None:
                client.prove_contact(_STANDARD_CHANNEL)  # a refusal that was sent before has arrived by then
                next(stream, None)
    except TopicNotFoundError:
        return Visibility.UNKNOWN
    except SubscriptionStoppedError:
        return Visibility.STOPPED
    except SubscriptionBusyError:
        return Visibility.OPEN
    return Visibility.OPEN


def wait_until_seen(
    client: PubSubClient,
    subscription: ManagedSubscription,
    expected: Visibility,
    *,
    timeout: float,
    interval: float = INTERVAL,
    silence: float = SILENCE,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until ``subscription`` has the state ``expected`` at the Pub/Sub API. Retry after temporary errors.

    :param timeout: seconds within which the last attempt begins. ``silence``: see :func:`visibility_of`.
    """
    deadline = now() + timeout
    while True:
        try:
            visibility = visibility_of(client, subscription, silence=silence)
            if visibility is expected:
                return
            last = f"the managed event subscription {visibility.value}"
        except ServiceUnavailableError as error:
            last = str(error)
        if now() + interval > deadline:
            raise ServiceUnavailableError(
                f"managed event subscription {subscription.text}: it was changed, but the Pub/Sub API did not apply "
                f"the change within {timeout:g} seconds ({last}). It usually does so after about two minutes. Run the "
                "task again: it does not repeat changes that are already applied."
            )
        sleep(interval)
