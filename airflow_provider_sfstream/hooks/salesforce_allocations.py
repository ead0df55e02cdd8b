"""Allocations of an org: their client and hook, and the reserves that must remain for other clients.

``/limits`` reports the remaining amounts ("Limits" of the REST API guide). Every entry is
``{"Max": ..., "Remaining": ...}``; some contain further entries.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Self

from airflow_provider_sfstream.exceptions import (
    AllocationReserveError,
    AllocationUnknownError,
    ConfigurationError,
    QuotaExceededError,
    SalesforceStreamError,
)
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.rest.client import RestClient

log = logging.getLogger(__name__)

API_REQUESTS = "DailyApiRequests"
"""Calls of the REST API and the Bulk API, of the last 24 hours."""
DELIVERED_EVENTS = "DailyDeliveredPlatformEvents"
"""Platform events and change events delivered to all clients of either API, of the last 24 hours."""
PUBLISHED_EVENTS = "HourlyPublishedPlatformEvents"
"""Platform events published by all publishers, of the last hour."""
DELIVERY_METRICS = {"platform events": "PLATFORM_EVENTS_DELIVERED", "change events": "CHANGE_EVENTS_DELIVERED"}
"""Names in ``PlatformEventUsageMetric`` of the events delivered to all clients (Object Reference, API 50.0 and above).
It reports clients and events only if the org has enhanced usage metrics enabled."""
_DELIVERED_BY_STREAMING = {"/topic/": "DailyDurableStreamingApiEvents", "/u/": "DailyDurableGenericStreamingApiEvents"}
_WHAT = "the org's allocations"
_ARGUMENT = "allocation_reserve"


@dataclass(frozen=True)
class Allocation:
    """An allocation of the org, as counted by Salesforce.

    :param name: as in ``/limits``, for example ``DailyApiRequests``.
    :param most: the org's maximum for the day, hour or month that the name states.
    :param remaining: the amount that remains now; below zero if more was used than the maximum.
    """

    name: str
    most: int
    remaining: int

    def __str__(self) -> str:
        return f"{self.name}: {self.remaining:,} of {self.most:,} remain"


@dataclass(frozen=True)
class Reserve:
    """The part of an allocation that must remain.

    :param value: a number of events or requests (``int``), or a share of the maximum (``float`` from 0.0 to 1.0).
    """

    value: int | float

    @classmethod
    def from_value(cls, value: Any, argument: str) -> Self:
        """Return the reserve of an argument: an ``int`` is a number, a ``float`` a share from 0.0 to 1.0."""
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not is_number and not (isinstance(value, float) and 0 <= value <= 1):
            raise ConfigurationError(
                f"{argument}={value!r} must be a whole number of events or requests (5000), or a share of the "
                "allocation from 0.0 to 1.0 (0.2). Nothing was contacted."
            )
        return cls(value)

    def amount(self, allocation: Allocation) -> int:
        """Return the reserve as a number of events or requests."""
        return self.value if isinstance(self.value, int) else math.ceil(self.value * allocation.most)


def allocations_from(document: Mapping[str, Any]) -> dict[str, Allocation]:
    """Return the allocations in a response of ``/limits``, by name.

    Entries that differ from the documented form are skipped, and so are entries with a maximum of 0, for example an
    add-on that the org did not buy: a share of 0 is 0, which must not count as enough.
    """
    allocations = {}
    for name, entry in document.items():
        most, remaining = (entry.get("Max"), entry.get("Remaining")) if isinstance(entry, dict) else (None, None)
        # Not isinstance: JSON's true and false are instances of int.
        if type(most) is int and type(remaining) is int and most > 0:
            allocations[name] = Allocation(name, most, remaining)
    return allocations


def usage_query(metric: str, now: datetime) -> str:
    """Return the query for a metric of ``PlatformEventUsageMetric`` over the 24 hours up to the last full hour."""
    hour = now.astimezone(UTC)
    start, end = (f"{time:%Y-%m-%dT%H:00:00.000Z}" for time in (hour - timedelta(days=1), hour))
    return (
        "SELECT Name, StartDate, EndDate, Value FROM PlatformEventUsageMetric "  # noqa: S608 (a constant and times)
        f"WHERE Name = '{metric}' AND StartDate = {start} AND EndDate = {end}"
    )


def delivery_allocation(topic: str) -> str:
    """Return the name of the allocation that delivered events of a topic count towards."""
    names = (name for prefix, name in _DELIVERED_BY_STREAMING.items() if topic.startswith(prefix))
    return next(names, DELIVERED_EVENTS)


def enough(read: Callable[[str], Allocation], name: str, reserve: Reserve) -> dict[str, Any] | None:
    """Return the state of an allocation if the reserve remains; ``None`` otherwise or after a temporary error.

    An org that has used up its API requests refuses the request. That is temporary; a caller may wait for it.

    :return: ``allocation``, ``max``, ``remaining`` and ``reserve``, all numbers of events or requests.
    """
    try:
        allocation = read(name)
    except SalesforceStreamError as error:
        if not isinstance(error, QuotaExceededError) and (not error.retriable or error.invalidates_token):
            raise
        log.warning("%s: the allocation could not be read; the next attempt retries. %s", name, error)
        return None
    amount = reserve.amount(allocation)
    if amount > allocation.most:
        raise ConfigurationError(
            f"{allocation}: the reserve of {amount:,} is higher than the maximum of the org, so waiting would never "
            "end. Lower the reserve."
        )
    log.info("%s; the reserve is %s.", allocation, f"{amount:,}")
    if allocation.remaining < amount:
        return None
    return {"allocation": name, "max": allocation.most, "remaining": allocation.remaining, "reserve": amount}


def log_delivered(name: str, read: Callable[[], Mapping[str, int]]) -> None:
    """Log the events that used an insufficient allocation, if Salesforce reports them. Never raise.

    There is no such metric of requests.
    """
    if name == API_REQUESTS:
        return
    try:
        delivered = read()
    except SalesforceStreamError as error:  # the log is optional
        log.info("%s: the numbers of delivered events could not be read: %s", name, error)
        return
    counts = ", ".join(f"{count:,} {kind}" for kind, count in delivered.items())
    log.info(
        "%s: delivered to all clients in the 24 hours up to the last full hour: %s.", name, counts or "not reported"
    )


class AllocationClient(RestClient):
    """Reader of remaining allocations; each read is one API request.

    The user needs the permission "View Setup and Configuration".
    """

    needs_version = "allocations require"

    def all(self) -> dict[str, Allocation]:
        """Return every allocation with a maximum above 0, by name. Salesforce updates the numbers with a small
        delay."""
        return allocations_from(self.request("GET", "limits", what=_WHAT))

    def get(self, *names: str) -> list[Allocation]:
        """Return the allocations of these names, from one response."""
        allocations = self.all()
        for name in names:
            if name not in allocations:
                raise AllocationUnknownError(_missing(name, allocations))
        return [allocations[name] for name in names]

    def delivered(self, now: datetime) -> dict[str, int]:
        """Return the numbers of events delivered to all clients in the 24 hours up to the last full hour, by kind.
        Sends two requests.

        The numbers show the use of an allocation. Only ``/limits``, which counts differently, reports how much remains.
        Kinds without a number are not in the result, and not every edition has ``PlatformEventUsageMetric``.
        """
        counts = {kind: self._metric(metric, now) for kind, metric in DELIVERY_METRICS.items()}
        return {kind: count for kind, count in counts.items() if count is not None}

    def _metric(self, metric: str, now: datetime) -> int | None:
        what = f"the metric {metric} of PlatformEventUsageMetric"
        answer = self.request("GET", "query", what=what, parameters={"q": usage_query(metric, now)})
        rows = answer.get("records")
        values = [row.get("Value") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        counts = [int(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        return sum(counts) if counts else None


def _missing(name: str, allocations: Mapping[str, Allocation]) -> str:
    suggestions = get_close_matches(name, allocations, n=5, cutoff=0.5) or sorted(allocations)[:5]
    return (
        f"{_WHAT}: Salesforce does not report how much of {name!r} remains, or the org does not have this allocation, "
        "so it is unknown whether enough remains. Use a reported name "
        f"({', '.join(suggestions) or 'none is reported'}), and check upper and lower case."
    )


class SalesforceAllocationHook(SalesforceLoginHook):
    """Read the remaining amount of an org's allocations: API requests, delivered events and all others of ``/limits``.

    The user needs the permission "View Setup and Configuration". Each read is one API request.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> AllocationClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        return self._rest_client(AllocationClient)

    def get(self, name: str) -> Allocation:
        """Return one allocation: ``name``, ``most`` and ``remaining``, by Salesforce's count.

        :raises AllocationUnknownError: if Salesforce does not report it.
        """
        with self.get_conn() as client:
            (allocation,) = client.get(name)
            return allocation

    def all(self) -> dict[str, Allocation]:
        """Return every allocation of the org above zero, by name."""
        with self.get_conn() as client:
            return client.all()

    def delivered(self) -> dict[str, int]:
        """Return how many ``platform events`` and ``change events`` were delivered to all clients of the org in the 24
        hours to the last full hour. Two API requests, of ``PlatformEventUsageMetric``, which not every edition has."""
        with self.get_conn() as client:
            return client.delivered(datetime.now(UTC))

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the allocations; return whether it works, and the failure otherwise."""
        try:
            return True, f"Logged in; the org reports {len(self.all())} allocations."
        except SalesforceStreamError as error:
            return False, f"Allocations: {error}"


class AllocationReserve:
    """Reserves of allocations, from the argument ``allocation_reserve`` of an operator.

    :param argument: a number or a share of the allocation that the task uses, or a dict of numbers and shares by the
        name of the allocation; ``None``: nothing is checked, and the object is false.
    """

    def __init__(self, argument: float | Mapping[str, float] | None) -> None:
        values: Mapping[Any, Any] = argument if isinstance(argument, Mapping) else {None: argument}
        if isinstance(argument, Mapping) and not all(isinstance(name, str) and name for name in values):
            raise ConfigurationError(f"{_ARGUMENT}={argument!r} must have the names of allocations as its keys.")
        self._reserves: dict[str | None, Reserve] = (
            {} if argument is None else {name: Reserve.from_value(value, _ARGUMENT) for name, value in values.items()}
        )

    def __bool__(self) -> bool:
        return bool(self._reserves)

    def check(self, salesforce_conn_id: str, *, allocation: str, least: int, what: str) -> None:
        """Check that enough of an allocation remains after a task. Calls Salesforce only if there is a reserve.

        :param allocation: allocation that the task uses; a reserve without a name applies to it.
        :param least: minimum use by the task: events, or requests.
        :param what: subject of the task, as the beginning of an error.
        :raises AllocationReserveError: if less than a reserve would remain.
        """
        if not self:
            return
        hook = SalesforceAllocationHook(salesforce_conn_id)
        with hook.get_conn() as client:
            allocations = client.get(*(name or allocation for name in self._reserves))
        for current, reserve in zip(allocations, self._reserves.values(), strict=True):
            # Refreshes use requests, drains use events: ``least`` does not count towards the other kind.
            uses = least if (current.name == API_REQUESTS) == (allocation == API_REQUESTS) else 0
            amount = reserve.amount(current)
            log.info("%s; this task uses at least %s, and %s must remain.", current, uses, amount)
            if current.remaining - uses < amount:
                log_delivered(current.name, hook.delivered)
                raise AllocationReserveError(_shortage(what, current, uses, amount))


def _shortage(what: str, allocation: Allocation, uses: int, reserve: int) -> str:
    need = f", and this task uses at least {uses:,}" if uses else ""
    return (
        f"{what}: less than the reserve of {reserve:,} would remain ({allocation}{need}). Wait until the allocation "
        f"refills, with SalesforceAllocationSensor(allocation={allocation.name!r}, reserve=...) before this task; or "
        f"lower {_ARGUMENT}. Then clear the task."
    )
