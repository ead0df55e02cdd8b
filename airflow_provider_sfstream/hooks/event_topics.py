"""Topics of an org: the hook that lists them, and the selection of the hook that reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook
from airflow_provider_sfstream.salesforce.rest.event_topics import EventTopicClient, EventTopics
from airflow_provider_sfstream.salesforce.topics import Api

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
    from airflow_provider_sfstream.hooks.salesforce_streaming import SalesforceStreamingHook

    EventHook: TypeAlias = SalesforcePubSubHook | SalesforceStreamingHook


class EventTopicHook(SalesforceLoginHook):
    """List the topics of the org that its user sees: events, custom channels, PushTopics, generic channels.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> EventTopicClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        return self._rest_client(EventTopicClient)

    def all(self) -> EventTopics:
        """Return all topics that the user sees, and the kinds of topics that could not be read."""
        with self.get_conn() as client:
            return client.all()


def event_hook(api: Api, salesforce_conn_id: str) -> EventHook:
    """Return the hook that subscribes through ``api``. Nothing is contacted yet."""
    if api == "streaming":
        from airflow_provider_sfstream.hooks.salesforce_streaming import SalesforceStreamingHook

        return SalesforceStreamingHook(salesforce_conn_id)
    from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook

    return SalesforcePubSubHook(salesforce_conn_id)
