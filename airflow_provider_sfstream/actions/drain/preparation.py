"""Everything that a drain needs, checked before anything is read or moved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_sfstream.actions.parts import open_landing, start_from_text
from airflow_provider_sfstream.hooks.event_api import event_hook
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.salesforce.topics import Topic

if TYPE_CHECKING:
    from airflow_provider_sfstream.actions.drain.arguments import DrainArguments
    from airflow_provider_sfstream.hooks.event_api import EventHook
    from airflow_provider_sfstream.streams.source import StartFrom


@dataclass(frozen=True)
class Prepared:
    """A drain whose arguments, landing and replay store were found usable, and its login where one was needed."""

    arguments: DrainArguments
    landed: LandedStream
    start_from: StartFrom | bytes
    hook: EventHook


def prepare(arguments: DrainArguments, *, may_be_landed: bool = False, writes: bool = True) -> Prepared:
    """Return what a drain works with.

    :param arguments: its arguments, rendered.
    :param may_be_landed: what is asked for may be in the landing already; then a login would be for nothing, if the
        connection says which org it leads to.
    :param writes: whether anything will be landed; then the landing is tried.
    :raises SalesforceStreamError: naming what cannot be used. Nothing was read or moved.
    """
    topic = Topic.parse(arguments.topic, arguments.api)
    start_from = start_from_text(arguments.start_from)
    catalog = open_landing(arguments.landing_url, arguments.landing_conn_id)
    if writes:
        catalog.landing.check_writable()
    store = open_replay_store(arguments.replay_store, arguments.replay_store_conn_id, catalog)
    hook = event_hook(topic.api, arguments.salesforce_conn_id)
    org_id = hook.known_org_id if may_be_landed else hook.org_id
    stream = Stream(org_id, topic.api, topic.name, arguments.subscription)
    landed = LandedStream(stream, catalog, store, partial(hook.event_retention, topic.name))
    return Prepared(arguments, landed, start_from, hook)
