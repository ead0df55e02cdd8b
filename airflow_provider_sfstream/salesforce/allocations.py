"""How much of an org's allocations remains, as ``/limits`` tells it, and how much of one is to be left to others.

Source: "Limits" of the REST API guide. Every entry is ``{"Max": ..., "Remaining": ...}``; some have others within.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from airflow_provider_sfstream.exceptions import ConfigurationError, QuotaExceededError, SalesforceStreamError

log = logging.getLogger(__name__)

API_REQUESTS = "DailyApiRequests"
"""Calls of the REST API and the Bulk API, of the last 24 hours."""
DELIVERED_EVENTS = "DailyDeliveredPlatformEvents"
"""Platform events and change events delivered to all clients of either API, of the last 24 hours."""
PUBLISHED_EVENTS = "HourlyPublishedPlatformEvents"
"""Platform events published by all publishers, of the last hour."""
DELIVERY_METRICS = {
    "platform events": "PLATFORM_EVENTS_DELIVERED",
    "change events": "CHANGE_EVENTS_DELIVERED",
}
"""What ``PlatformEventUsageMetric`` calls the events delivered to all clients (Object Reference, API 50.0 and above).
It tells which client and which event that was only with the org's setting for enhanced usage metrics."""
_DELIVERED_BY_STREAMING = {
    "/topic/": "DailyDurableStreamingApiEvents",
    "/u/": "DailyDurableGenericStreamingApiEvents",
}


@dataclass(frozen=True)
class Allocation:
    """An allocation of the org, as Salesforce has counted it.

    :param most: what the org has for the day, hour or month that its name says.
    :param remaining: what is left of it now; below zero where more was used than the org has.
    """

    name: str
    most: int
    remaining: int

    def __str__(self) -> str:
        return f"{self.name}: {self.remaining:,} of {self.most:,} remain"


@dataclass(frozen=True)
class Reserve:
    """How much of an allocation is to remain: a whole number of events or requests, or a share of the whole."""

    value: int | float

    @classmethod
    def of(cls, value: Any, argument: str) -> Self:
        """Return what an argument says: an ``int`` is a number, a ``float`` a share from 0.0 to 1.0.

        :raises ConfigurationError: naming the argument, if it is neither.
        """
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not is_number and not (isinstance(value, float) and 0 <= value <= 1):
            raise ConfigurationError(
                f"{argument}={value!r} must be a whole number of events or requests (5000), or a share of the "
                "allocation from 0.0 to 1.0 (0.2). Nothing was contacted."
            )
        return cls(value)

    def amount(self, allocation: Allocation) -> int:
        """Return it as a number of events or requests."""
        return self.value if isinstance(self.value, int) else math.ceil(self.value * allocation.most)


def allocations_from(document: Mapping[str, Any]) -> dict[str, Allocation]:
    """Return what an answer of ``/limits`` tells, by name.

    An entry that is not as documented is left out, and so is one of which the org has nothing at all, such as an add-on
    that it did not buy: a share of nothing is nothing, which must not pass for enough.
    """
    found = {}
    for name, entry in document.items():
        most, remaining = (entry.get("Max"), entry.get("Remaining")) if isinstance(entry, dict) else (None, None)
        if type(most) is int and type(remaining) is int and most > 0:
            found[name] = Allocation(name, most, remaining)
    return found


def usage_query(metric: str, now: datetime) -> str:
    """Return the query for what a metric of ``PlatformEventUsageMetric`` counted in 24 hours, to the last full hour.

    :param metric: one of :data:`DELIVERY_METRICS`.
    """
    hour = now.astimezone(UTC)
    start, end = (f"{time:%Y-%m-%dT%H:00:00.000Z}" for time in (hour - timedelta(days=1), hour))
    return (
        "SELECT Name, StartDate, EndDate, Value FROM PlatformEventUsageMetric "  # noqa: S608 (a constant and times)
        f"WHERE Name = '{metric}' AND StartDate = {start} AND EndDate = {end}"
    )


def delivery_allocation(topic: str) -> str:
    """Return which allocation the events of a topic count towards when they are delivered."""
    kinds = (name for prefix, name in _DELIVERED_BY_STREAMING.items() if topic.startswith(prefix))
    return next(kinds, DELIVERED_EVENTS)


def enough(read: Callable[[str], Allocation], name: str, reserve: Reserve) -> dict[str, Any] | None:
    """Return what remains of an allocation, if that is at least the reserve; ``None`` if it is not, or if this look
    failed in a way that may pass. Logs either.

    An org whose API requests are used up answers no look: that passes too, and is what one may be waiting for.

    :param read: returns the allocation of a name.
    :return: ``allocation``, ``max``, ``remaining`` and ``reserve``, all numbers of events or requests.
    :raises ConfigurationError: if the reserve is more than the org has in all.
    :raises SalesforceStreamError: what no later look can mend.
    """
    try:
        found = read(name)
    except SalesforceStreamError as error:
        if not isinstance(error, QuotaExceededError) and (not error.retriable or error.invalidates_token):
            raise
        log.warning("%s: this look failed; the next one tries again. %s", name, error)
        return None
    amount = reserve.amount(found)
    if amount > found.most:
        raise ConfigurationError(
            f"{found}: a reserve of {amount:,} is more than the org has in all, so that waiting for it has no end. "
            "Lower the reserve."
        )
    log.info("%s; at least %s are to remain.", found, f"{amount:,}")
    if found.remaining < amount:
        return None
    return {"allocation": name, "max": found.most, "remaining": found.remaining, "reserve": amount}


def log_delivered(name: str, read: Callable[[], Mapping[str, int]]) -> None:
    """Log what an allocation of which too little remains went to, as far as Salesforce says. Never an error.

    :param name: of the allocation; of requests there is no such metric.
    :param read: returns how many events of each kind were delivered in 24 hours.
    """
    if name == API_REQUESTS:
        return
    try:
        delivered = read()
    except SalesforceStreamError as error:  # it explains, and nothing hangs on it
        log.info("%s: what it went to is not known: %s", name, error)
        return
    told = ", ".join(f"{count:,} {kind}" for kind, count in delivered.items())
    log.info("%s: delivered to all clients in the 24 hours to the last full hour: %s.", name, told or "not known")
