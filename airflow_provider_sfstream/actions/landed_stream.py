"""Landed stream of an operator: its topic, landing and replay store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from airflow.sdk import BaseOperatorLink

from airflow_provider_sfstream.actions.arguments import landed_stream_uri
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.monitoring.links import StreamLink
from airflow_provider_sfstream.replay_stores.kinds import REPLAY_STORES, ReplayStoreKind
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Api, Topic


class LandingNames(Protocol):
    """The arguments that name the streams of a connection, their landing and their replay store."""

    api: Api | None
    subscription: str
    salesforce_conn_id: str
    landing_url: str
    landing_conn_id: str | None
    replay_store: ReplayStoreKind
    replay_store_conn_id: str


class LandedStreamNames(LandingNames, Protocol):
    """The arguments that name a stream, its landing and its replay store."""

    topic: str


class LandedStreamOperator(RetriedOperator):
    """Base of operators on one landed stream.

    :param topic: the stream's topic. (templated)
    :param landing_url: the stream's landing. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: the stream's API, as in the drain.
    :param subscription: the stream's subscription; of a managed one its developer name or ID. (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    :param replay_store: as in the drain.
    :param replay_store_conn_id: as in the drain. (templated)
    """

    template_fields: Sequence[str] = (
        "topic",
        "landing_url",
        "salesforce_conn_id",
        "subscription",
        "landing_conn_id",
        "replay_store_conn_id",
    )
    ui_color = "#f8e5d8"
    operator_extra_links: tuple[BaseOperatorLink, ...] = (StreamLink(),)

    def __init__(
        self,
        *,
        topic: str,
        landing_url: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = "airflow",
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind = "variable",
        replay_store_conn_id: str = "sfstream_replay_store",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.landing_url = landing_url
        self.salesforce_conn_id = salesforce_conn_id
        self.api = api
        self.subscription = subscription
        self.landing_conn_id = landing_conn_id
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        check_choice("replay_store", replay_store, REPLAY_STORES)

    @property
    def stream_uri(self) -> str:
        """The URI of the landed stream's asset."""
        return landed_stream_uri(self)


def open_landed_stream(names: LandedStreamNames) -> LandedStream:
    """Open landing and store of a stream, and learn whose stream it is."""
    topic = Topic.parse(names.topic, names.api)
    catalog = open_landing(names.landing_url, names.landing_conn_id)
    store = open_replay_store(names.replay_store, names.replay_store_conn_id, catalog)
    org_id = event_hook(topic.api, names.salesforce_conn_id).known_org_id
    return LandedStream(Stream(org_id, topic.api, topic.name, names.subscription), catalog, store)
