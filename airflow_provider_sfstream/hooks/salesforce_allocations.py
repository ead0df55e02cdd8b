"""The hook for what remains of an org's allocations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.allocations import Allocation
    from airflow_provider_sfstream.salesforce.rest.allocations import AllocationClient


class SalesforceAllocationHook(SalesforceLoginHook):
    """Read how much of the org's allocations remains: API requests, delivered events and all else that ``/limits`` has.

    The user needs the permission "View Setup and Configuration". Each read is one API request.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> AllocationClient:
        """Return a new client, for the caller to close (``with hook.get_conn() as client``). It connects on first use.

        :raises ConfigurationError: if the connection's fields cannot be used. Nothing was contacted.
        """
        from airflow_provider_sfstream.salesforce.rest.allocations import AllocationClient

        return self._rest_client(AllocationClient)

    def get(self, name: str) -> Allocation:
        """Return one allocation: ``name``, ``most`` and ``remaining``, as Salesforce has counted it.

        :raises AllocationUnknownError: if Salesforce tells nothing of it.
        :raises SalesforceStreamError: if it cannot be read.
        """
        with self.get_conn() as client:
            (found,) = client.get(name)
            return found

    def all(self) -> dict[str, Allocation]:
        """Return every allocation of which the org has something, by name.

        :raises SalesforceStreamError: if they cannot be read.
        """
        with self.get_conn() as client:
            return client.all()

    def delivered(self) -> dict[str, int]:
        """Return how many ``platform events`` and ``change events`` were delivered to all clients of the org in the 24
        hours to the last full hour, by its ``PlatformEventUsageMetric``. Two API requests.

        :raises SalesforceStreamError: if they cannot be read: not every edition has it.
        """
        with self.get_conn() as client:
            return client.delivered(datetime.now(UTC))

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the allocations; return whether it works, and what does not."""
        try:
            return True, f"Logged in; the org tells {len(self.all())} allocations."
        except SalesforceStreamError as error:
            return False, f"Allocations: {error}"
