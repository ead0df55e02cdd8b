"""Hook of the records of an org, through the REST API and Bulk API 2.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.rest.records import RecordClient


class SalesforceRecordHook(SalesforceLoginHook):
    """Read records of an org with every login flow of this package. Needs the extra ``salesforce``.

    A connection for the hook of ``apache-airflow-providers-salesforce`` can be used without a change: its fields are
    the same. This package does not use that hook, because it supports neither a certificate authority nor the refresh
    token flow, holds all records of a query in memory, and does not renew a session. ``get_conn().salesforce`` is the
    object of simple-salesforce that its ``get_conn()`` returns.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> RecordClient:
        """Log in; return a new client, for the caller to close (``with hook.get_conn() as client``).

        :raises ConfigurationError: also if the extra is not installed.
        :raises AuthenticationError: if the login failed.
        """
        require_extra("salesforce")
        from airflow_provider_sfstream.salesforce.rest.records import RecordClient

        return self._rest_client(RecordClient)

    def test_connection(self) -> tuple[bool, str]:
        """Log in and describe ``Account``; return whether that works, and the failure otherwise."""
        try:
            with self.get_conn() as client:
                client.describe("Account")
                return True, f"Logged in to org {client.org_id}; records can be read."
        except SalesforceStreamError as error:
            return False, f"Records: {error}"
