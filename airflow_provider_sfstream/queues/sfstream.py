"""Salesforce topics for Airflow's ``MessageQueueTrigger``."""

from __future__ import annotations

from typing import Any

from airflow.triggers.base import BaseEventTrigger

from airflow_provider_sfstream._airflow import require_shared_streams
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.salesforce.stream_uris import SCHEME, StreamUri
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

require_extra("messaging")
from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider  # noqa: E402


class SfstreamMessageQueueProvider(BaseMessageQueueProvider):  # type: ignore[misc]
    """Provider of ``MessageQueueTrigger(scheme="sfstream", topic=..., salesforce_conn_id=..., ...)``.

    The trigger accepts the arguments of
    :class:`~airflow_provider_sfstream.triggers.salesforce_event.SalesforceEventTrigger` and serializes to it, so that
    it shares the watch of ``salesforce_topic_asset``. ``queue="sfstream://..."``, which Airflow deprecates, contains
    topic, connection and conditions in one text.
    """

    scheme = SCHEME

    def queue_matches(self, queue: str) -> bool:
        """Return whether ``queue`` is an ``sfstream://`` URI, also an invalid one: its error then names the cause."""
        return queue.lower().startswith(f"{SCHEME}://")

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the trigger that waits on the topic.

        :raises ConfigurationError: before Airflow 3.3.
        """
        require_shared_streams()
        return SalesforceEventTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Return the trigger's arguments in ``queue``.

        :raises ConfigurationError: if ``queue`` is not the URI of a watchable topic.
        """
        return StreamUri.parse(queue).watch_arguments()
