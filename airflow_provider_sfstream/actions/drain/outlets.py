"""Asset events of a drain: for the landed stream, and for the topic if events remain on the topic.

The watcher of a topic emits one event for each event on the topic. A run that a watched topic started and that stops
at ``max_events``, ``max_bytes`` or ``max_seconds`` leaves events behind whose wake-up is used up. It therefore emits
an event for the asset of the topic, so that another run follows even if nothing more is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, Context

from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.pages import task_url
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.streams.drain.limits import StopReason

if TYPE_CHECKING:
    from airflow_provider_sfstream.actions.landed_stream import LandedStreamNames, LandedStreamOperator

_COMMON_KEYS = ("asset_uri", "event_count", "event_hours", "schema_changes")
_WINDOW_KEYS = (
    *(*_COMMON_KEYS, "window_id", "manifest_url", "payload_bytes"),
    *("first_event_time", "last_event_time", "gap"),
)
_INTERVAL_KEYS = (*_COMMON_KEYS, "mode", "event_time_from", "event_time_to", "windows", "confirmed_at", "missing")


@dataclass(frozen=True)
class DrainOutlets:
    """Outlets of one drain operator.

    :param declared_stream: the landed stream, if the DAG file names it; Airflow then shows it as an outlet.
    :param landed: alias for any other landed stream: of a mapped task, or with a template in its topic. Airflow reads
        the outlets of a DAG from its file only, but an alias accepts any asset when the task runs.
    :param watches: assets of watched topics that the DAG is scheduled on, each with its topic.
    :param unfinished: alias for the watches of a topic that may have more events.
    """

    declared_stream: Asset | None
    landed: AssetAlias
    watches: tuple[tuple[Asset, StreamUri], ...]
    unfinished: AssetAlias

    @classmethod
    def from_operator(cls, operator: LandedStreamOperator) -> DrainOutlets:
        """Return the outlets of a drain operator, from its arguments and its DAG."""
        dag = operator.get_dag()
        names = _names(operator)
        in_the_file = not any(map(is_template, names)) and (dag is None or dag.task_dict[operator.task_id] is operator)
        condition = getattr(getattr(dag, "timetable", None), "asset_condition", None)
        task = f"{operator.dag_id}.{operator.task_id}"
        return cls(
            landed_stream_asset(*names) if in_the_file else None,
            AssetAlias(f"sfstream_landed.{task}"),
            tuple((asset, topic) for asset in _assets(condition) if (topic := _watched_topic(asset)) is not None),
            AssetAlias(f"sfstream_unfinished.{task}"),
        )

    def declared(self) -> list[Asset | AssetAlias]:
        """Return the assets and aliases for the ``outlets`` of the operator."""
        return [self.declared_stream or self.landed, *([self.unfinished] if self.watches else [])]

    def emit(self, drain: LandedStreamNames, result: Mapping[str, Any], context: Context) -> None:
        """Emit the asset events of a drain with its result and the URL of its task, for when the task has succeeded."""
        of_interval = result.get("mode") == "interval"
        page = {"task_url": task_url(run_identity(context))}
        facts = {key: result[key] for key in (_INTERVAL_KEYS if of_interval else _WINDOW_KEYS)} | page
        events = context["outlet_events"]
        if self.declared_stream is not None:
            events[self.declared_stream].extra.update(facts)
        else:
            events[self.landed].add(landed_stream_asset(*_names(drain)), facts)
        if not of_interval and StopReason(result["stop_reason"]).leaves_events:
            facts = {key: result[key] for key in ("stream", "through", "stop_reason")} | page
            own = StreamUri(drain.salesforce_conn_id, drain.topic, api=drain.api)
            for asset, topic in self.watches:
                if topic == own:
                    events[self.unfinished].add(asset, {"reason": "unfinished", **facts})


def _names(drain: LandedStreamNames) -> tuple[str, str, str, str | None]:
    return drain.salesforce_conn_id, drain.topic, drain.subscription, drain.api


def _assets(condition: Any) -> Iterator[Asset]:
    if isinstance(condition, Asset):
        yield condition
    for each in getattr(condition, "objects", ()):
        yield from _assets(each)


def _watched_topic(asset: Asset) -> StreamUri | None:
    """Return the topic that an asset's watcher watches, without its conditions; ``None`` if it is something else."""
    try:
        uri = StreamUri.parse(asset.uri)
    except ConfigurationError:
        return None
    return StreamUri(uri.salesforce_conn_id, uri.topic, api=uri.api) if uri.subscription is None else None
