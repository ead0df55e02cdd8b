"""Allocations of an org: a hook that reads them, and the check that a reserve of them remains after a task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_sfstream.exceptions import AllocationReserveError, ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.allocations import (
    API_REQUESTS,
    Allocation,
    AllocationClient,
    Reserve,
    log_delivered,
)

log = logging.getLogger(__name__)


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


_ARGUMENT = "allocation_reserve"


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
