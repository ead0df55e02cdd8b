"""Whether the Pub/Sub API has seen a change of a managed event subscription, which takes up to about two minutes.

Nothing but the Pub/Sub API itself can tell. So this subscribes: while it does not know a new subscription it answers
"not found", and while it does not know that one was started, "stopped" (Pub/Sub API guide, "Managed Event
Subscriptions"). A subscribe that succeeds is closed at once, and commits nothing: what was delivered to it is delivered
again to whoever comes next.

Meanwhile it holds the only place that a subscription has for a consumer. It never takes one from a consumer that is
there (that one's presence is an answer too), but one that comes at that moment has to wait, at Salesforce for up to 15
seconds. Therefore ask only where nobody can be using the subscription yet: right after it was created, started, stopped
or deleted.
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
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

SILENCE = 5.0
"""Seconds to wait for an answer: a refusal comes at once, an event when there is one, and a keepalive only after
minutes. What counts is that the connection has carried another answer meanwhile."""

INTERVAL = 5.0
"""Seconds between two questions."""

_EVERY_ORG_HAS = "/data/ChangeEvents"


class Seen(Enum):
    """What the Pub/Sub API makes of a managed event subscription."""

    OPEN = "can be subscribed to"
    STOPPED = "is stopped"
    UNKNOWN = "is not known"


def look(client: PubSubClient, subscription: ManagedSubscription, *, silence: float = SILENCE) -> Seen:
    """Return what the Pub/Sub API makes of ``subscription`` now. Logs in again once when the token is refused.

    :param silence: seconds to wait for an answer, before and after Salesforce has answered something else.
    :raises SalesforceStreamError: for every other answer, such as a missing permission.
    """
    try:
        return _look(client, subscription, silence)
    except SessionExpiredError:
        client.renew_session()
        return _look(client, subscription, silence)


def _look(client: PubSubClient, subscription: ManagedSubscription, silence: float) -> Seen:
    try:
        with closing(client.managed_subscribe(subscription, limit=1, idle_timeout=silence)) as stream:
            if next(stream, None) is None:
                client.prove_contact(_EVERY_ORG_HAS)  # a refusal that was sent before is here by then
                next(stream, None)
    except TopicNotFoundError:
        return Seen.UNKNOWN
    except SubscriptionStoppedError:
        return Seen.STOPPED
    except SubscriptionBusyError:
        return Seen.OPEN
    return Seen.OPEN


def wait_until_seen(
    client: PubSubClient,
    subscription: ManagedSubscription,
    expected: Seen,
    *,
    timeout: float,
    interval: float = INTERVAL,
    silence: float = SILENCE,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once the Pub/Sub API sees ``subscription`` as ``expected``. An answer that may pass is asked for again.

    :param timeout: seconds within which the last question is begun.
    :param interval: seconds between two questions.
    :param silence: see :func:`look`.
    :raises ServiceUnavailableError: if it does not within ``timeout``.
    :raises SalesforceStreamError: for an answer that will not pass, such as a missing permission.
    """
    deadline = now() + timeout
    while True:
        try:
            seen = look(client, subscription, silence=silence)
            if seen is expected:
                return
            last = f"the managed event subscription {seen.value}"
        except ServiceUnavailableError as error:
            last = str(error)
        if now() + interval > deadline:
            raise ServiceUnavailableError(
                f"managed event subscription {subscription.text}: it was changed, but the Pub/Sub API has not seen it "
                f"within {timeout:g} seconds ({last}). It usually does after about two minutes. Run again: what is "
                "changed already is left alone."
            )
        sleep(interval)
