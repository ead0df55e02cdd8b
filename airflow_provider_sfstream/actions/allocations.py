"""What a task leaves of the org's allocations to others: checked before it begins anything."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow_provider_sfstream.exceptions import AllocationReserveError, ConfigurationError
from airflow_provider_sfstream.salesforce.allocations import API_REQUESTS, Allocation, Reserve, log_delivered

log = logging.getLogger(__name__)

_ARGUMENT = "allocation_reserve"


class AllocationReserve:
    """What the argument ``allocation_reserve`` of an operator says.

    :param argument: a number or a share of the allocation that such a task uses, or a dict of both by the names of
        allocations; ``None``: nothing is checked, and the object is false.
    :raises ConfigurationError: if it is none of these.
    """

    def __init__(self, argument: float | Mapping[str, float] | None) -> None:
        given: Mapping[Any, Any] = argument if isinstance(argument, Mapping) else {None: argument}
        if isinstance(argument, Mapping) and not all(isinstance(name, str) and name for name in given):
            raise ConfigurationError(f"{_ARGUMENT}={argument!r} must have the names of allocations as its keys.")
        self._reserves: dict[str | None, Reserve] = (
            {} if argument is None else {name: Reserve.of(value, _ARGUMENT) for name, value in given.items()}
        )

    def __bool__(self) -> bool:
        return bool(self._reserves)

    def check(self, salesforce_conn_id: str, *, allocation: str, least: int, what: str) -> None:
        """Make sure that what a task is about to do leaves enough. Calls Salesforce, if there is anything to check.

        :param allocation: what such a task uses, which a reserve without a name is of.
        :param least: how much of it the task will use at least: events, or requests.
        :param what: what the task is about, which an error begins with.
        :raises AllocationReserveError: if less than a reserve would remain.
        :raises AllocationUnknownError: if Salesforce does not tell an allocation.
        :raises SalesforceStreamError: if allocations cannot be read.
        """
        if not self:
            return
        from airflow_provider_sfstream.hooks.salesforce_allocations import SalesforceAllocationHook

        hook = SalesforceAllocationHook(salesforce_conn_id)
        with hook.get_conn() as client:
            found = client.get(*(name or allocation for name in self._reserves))
        for each, reserve in zip(found, self._reserves.values(), strict=True):
            # Requests are used by refreshes, events by drains.
            uses = least if (each.name == API_REQUESTS) == (allocation == API_REQUESTS) else 0
            log.info("%s; %s are to remain after this, which takes %s at least.", each, reserve.amount(each), uses)
            if each.remaining - uses < reserve.amount(each):
                log_delivered(each.name, hook.delivered)
                raise AllocationReserveError(_too_little(what, each, uses, reserve))


def _too_little(what: str, found: Allocation, uses: int, reserve: Reserve) -> str:
    takes = f", of which this takes {uses:,} at least" if uses else ""
    return (
        f"{what}: it would leave less than the reserve of {reserve.amount(found):,} ({found}{takes}). Wait until the "
        f"allocation refills, with SalesforceAllocationSensor(allocation={found.name!r}, reserve=...) before this "
        f"task; or lower {_ARGUMENT}. Then clear the task."
    )
