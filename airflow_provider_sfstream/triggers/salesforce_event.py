"""The trigger that waits on a Salesforce topic, for deferred tasks and for asset watchers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

from airflow.triggers.base import BaseEventTrigger, TriggerEvent


class SalesforceEventTrigger(BaseEventTrigger):
    """Wait until events are there on a Salesforce topic."""

    supports_triggerer_queue = True

    def __init__(
        self,
        *,
        topic: str,
        salesforce_conn_id: str = "salesforce_default",
        subscription: str = "airflow",
        replay_id: str | None = None,
        replay_store: Literal["variable", "table"] | None = None,
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: str = "latest",
        min_events: int = 1,
        max_wait: float | timedelta | None = None,
        min_interval: float | timedelta = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topic = topic
        self.salesforce_conn_id = salesforce_conn_id
        self.subscription = subscription
        self.replay_id = replay_id
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        self.start_from = start_from
        self.min_events = min_events
        self.max_wait = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
        self.min_interval = min_interval.total_seconds() if isinstance(min_interval, timedelta) else min_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments. None of them is a secret: the connection is named, not copied."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "topic": self.topic,
            "salesforce_conn_id": self.salesforce_conn_id,
            "subscription": self.subscription,
            "replay_id": self.replay_id,
            "replay_store": self.replay_store,
            "replay_store_conn_id": self.replay_store_conn_id,
            "start_from": self.start_from,
            "min_events": self.min_events,
            "max_wait": self.max_wait,
            "min_interval": self.min_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire once: when the conditions are met, or with the error that no waiting can mend."""
        raise NotImplementedError
        yield TriggerEvent(None)
