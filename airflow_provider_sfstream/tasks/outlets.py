"""The assets that a drain tells of its windows: the landed stream, and, when it leaves events behind, the topic.

The watcher of a topic tells of each event once. A run that a watched topic started and that stops at ``max_events``,
``max_bytes`` or ``max_seconds`` leaves events behind whose wake-up is spent. It therefore tells the topic's asset
itself that there may be more, so that another run follows even if nothing is published any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset
from airflow_provider_sfstream.drain.limits import StopReason
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.stream_uris import StreamUri
from airflow_provider_sfstream.tasks.parts import is_template

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.tasks.drain_arguments import DrainArguments

_TOLD = ("window_id", "manifest_url", "event_count", "payload_bytes", "first_event_time", "last_event_time", "gap")
_TOLD_OF_INTERVAL = ("mode", "event_time_from", "event_time_to", "windows", "event_count", "confirmed_at", "missing")


@dataclass(frozen=True)
class DrainOutlets:
    """What one drain may tell.

    :param landed: the landed stream; ``None`` if its name is only known when the task runs.
    :param watched: the watches on the drain's topic that its DAG is scheduled on.
    :param unfinished: the outlet by which they can be told; an alias, which tells nothing unless it is given an event.
    """

    landed: Asset | None
    watched: tuple[Asset, ...]
    unfinished: AssetAlias

    @classmethod
    def of(cls, arguments: DrainArguments, operator: BaseOperator) -> DrainOutlets:
        """Return the outlets of a drain, from its arguments and the schedule of its DAG.

        :raises ConfigurationError: if topic, connection or subscription cannot be part of an asset.
        """
        unfinished = AssetAlias(f"sfstream_unfinished.{operator.dag_id}.{operator.task_id}")
        names = arguments.salesforce_conn_id, arguments.topic, arguments.subscription, arguments.api
        if any(map(is_template, names)):
            return cls(None, (), unfinished)
        condition = getattr(getattr(operator.get_dag(), "timetable", None), "asset_condition", None)
        topic = StreamUri(arguments.salesforce_conn_id, arguments.topic, api=arguments.api)
        watched = (asset for asset in _assets(condition) if _is_watch(asset, topic))
        return cls(landed_stream_asset(*names), tuple(watched), unfinished)

    def declared(self) -> list[Asset | AssetAlias]:
        """Return what the operator has to list in its ``outlets``."""
        declared: list[Asset | AssetAlias] = [] if self.landed is None else [self.landed]
        return [*declared, self.unfinished] if self.watched else declared

    def tell(self, result: Mapping[str, Any], context: Context) -> None:
        """Add the facts of a window, or of an interval, to what Airflow will tell of it once the task has succeeded."""
        if self.landed is not None:
            told = _TOLD_OF_INTERVAL if result.get("mode") == "interval" else _TOLD
            context["outlet_events"][self.landed].extra.update({key: result[key] for key in told})
        if result.get("mode") != "interval" and StopReason(result["stop_reason"]).leaves_events:
            for asset in self.watched:
                facts = {key: result[key] for key in ("stream", "through", "stop_reason")}
                context["outlet_events"][self.unfinished].add(asset, {"reason": "unfinished", **facts})


def _assets(condition: Any) -> Iterator[Asset]:
    if isinstance(condition, Asset):
        yield condition
    for each in getattr(condition, "objects", ()):
        yield from _assets(each)


def _is_watch(asset: Asset, topic: StreamUri) -> bool:
    try:
        uri = StreamUri.parse(asset.uri)
    except ConfigurationError:  # something else
        return False
    same = (uri.salesforce_conn_id, uri.topic, uri.api) == (topic.salesforce_conn_id, topic.topic, topic.api)
    return same and uri.subscription is None
