"""Selection of the hook for the API of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_sfstream.salesforce.topics import Api

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
    from airflow_provider_sfstream.hooks.salesforce_streaming import SalesforceStreamingHook

    EventHook = SalesforcePubSubHook | SalesforceStreamingHook


def event_hook(api: Api, salesforce_conn_id: str) -> EventHook:
    """Return the hook that subscribes through ``api``. Nothing is contacted yet."""
    if api == "streaming":
        from airflow_provider_sfstream.hooks.salesforce_streaming import SalesforceStreamingHook

        return SalesforceStreamingHook(salesforce_conn_id)
    from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook

    return SalesforcePubSubHook(salesforce_conn_id)
