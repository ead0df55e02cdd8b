"""Base of the hooks that read events."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_sfstream.exceptions import AuthenticationError, SalesforceStreamError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook


class SalesforceEventHook(SalesforceLoginHook):
    """Base of the hooks of the Pub/Sub API and of the Streaming API.

    :param salesforce_conn_id: the Airflow connection.
    """

    def __init__(self, salesforce_conn_id: str = SalesforceLoginHook.default_conn_name) -> None:
        super().__init__(salesforce_conn_id)
        self._retentions: dict[str, timedelta | None] = {}

    def event_retention(self, topic: str) -> timedelta | None:
        """Return how long Salesforce retains the events of a topic; ``None`` where that is unknown, with a warning.

        72 hours for change events, custom channels, standard and high-volume platform events; 24 hours for
        standard-volume platform events, PushTopics and generic channels. The volume of a custom platform event
        (``/event/Order__e``) is read from its definition, with one Tooling API request per hook object, which needs the
        permission "View Setup and Configuration". Callers assume 24 hours where it is unknown, as the warning states.

        :raises AuthenticationError: if a login was needed and failed.
        """
        if topic not in self._retentions:
            self._retentions[topic] = self._read_retention(topic)
        return self._retentions[topic]

    def _read_retention(self, topic: str) -> timedelta | None:
        from airflow_provider_sfstream.salesforce.rest.event_topics import EventDefinitionClient

        try:
            with self._rest_client(EventDefinitionClient) as client:
                retention = client.retention(topic)
            cause = "Salesforce returned no definition with a volume (the org has no such event, or hides it)."
        except AuthenticationError:
            raise
        except SalesforceStreamError as error:
            retention, cause = None, error.happened
        if retention is None:
            self.log.warning(
                "%s: the retention of its events is unknown. Cause: %s 24 hours are assumed, the retention of "
                "standard-volume events; high-volume events are retained for 72. Assign the permission 'View Setup "
                "and Configuration' to the user of the connection %r.",
                *(topic, cause, self.salesforce_conn_id),
            )
        return retention
