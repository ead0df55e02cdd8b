"""Input of a table job: manifests, and the bounds of event times, from the results of drains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.arguments import time_from_text
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import has_credentials, quoted_setting

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.event_log.config import EventLogConfig


@dataclass(frozen=True)
class WindowsArgument:
    """Manifest URLs of windows with events; only events of ``[event_time_from, event_time_to)`` count, if set.

    Both times are ISO 8601 text. ``own_windows`` are the IDs of windows that the run of the interval landed itself:
    their late events, see :class:`Manifest`, are read too. ``streams`` are the URIs of the streams, if known.
    """

    manifests: tuple[str, ...]
    event_time_from: str | None
    event_time_to: str | None
    own_windows: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def interval(self) -> tuple[str, str] | None:
        """Both bounds of the event times; ``None`` without."""
        if self.event_time_from is None or self.event_time_to is None:
            return None
        return self.event_time_from, self.event_time_to

    def added_to(self, config: EventLogConfig) -> EventLogConfig:
        """Return the config of a job for these windows."""
        return replace(
            config,
            manifests=self.manifests,
            event_time_from=time_from_text("event_time_from", self.event_time_from),
            event_time_to=time_from_text("event_time_to", self.event_time_to),
            own_windows=self.own_windows,
        )

    @classmethod
    def from_argument(cls, windows: Any, event_time_from: str | None, event_time_to: str | None) -> WindowsArgument:
        """Return the windows of the argument ``windows``, with the bounds of its intervals or of the other arguments.

        :raises ConfigurationError: if something else is among the windows, or bounds contradict each other.
        """
        if bool(event_time_from) != bool(event_time_to):
            raise ConfigurationError("Set both event_time_from and event_time_to, or neither. No job was started.")
        results = list(flat_windows(windows))
        manifests = tuple(url for item in results for url in manifests_in(item))
        bounds = {_bounds(item) for item in results}
        if len(bounds) > 1:
            raise ConfigurationError(
                "windows has results of several intervals, or results with and without an interval. One job filters by "
                "one interval. Use a task for item interval, for example with expand. No job was started."
            )
        interval, streams = next(iter(bounds), None), stream_uris(windows)
        if interval is None:
            return cls(manifests, event_time_from or None, event_time_to or None, streams=streams)
        explicit = (_time("event_time_from", event_time_from), _time("event_time_to", event_time_to))
        if explicit not in ((None, None), tuple(map(datetime.fromisoformat, interval))):
            raise ConfigurationError(
                f"event_time_from={event_time_from!r} and event_time_to={event_time_to!r} differ from the interval of "
                f"windows, [{interval[0]}, {interval[1]}). Remove these two arguments. No job was started."
            )
        own = tuple(
            window["window_id"]
            for item in results
            if isinstance(item, dict)
            for window in item["windows"]
            if (window.get("kind"), window.get("origin")) == ("live", "bus")
        )
        return cls(manifests, *interval, own, streams)


def flat_windows(windows: Any) -> Iterator[str | dict[str, Any]]:
    """Yield the results and URLs in ``windows``, however nested."""
    if windows is None:
        return
    if isinstance(windows, str | dict):
        yield windows
    elif isinstance(windows, Iterable) and not isinstance(windows, bytes):
        for item in windows:
            yield from flat_windows(item)
    else:
        raise ConfigurationError(f"windows has a {type(windows).__name__}. Set results of a drain, or manifest URLs.")


def manifests_in(result: str | dict[str, Any], *, with_empty: bool = False) -> list[str]:
    """Return the manifest URLs of one result or URL; ``with_empty``: also of windows that have no events."""
    if isinstance(result, str):
        if result.startswith(("{", "[")) or not result.endswith(".json"):
            raise ConfigurationError(
                f"windows={quoted_setting(result)} is not a manifest URL. Set the drain's result itself, for example "
                "windows=drain.output. No job was started."
            )
        if has_credentials(result):
            raise ConfigurationError(
                "windows has a manifest URL with a password or a signature, which process lists would show. Remove it, "
                "and set the credentials in Spark's settings. No job was started."
            )
        return [result]
    if _is_interval(result):
        return [url for window in result["windows"] for url in manifests_in(window, with_empty=with_empty)]
    if "window_id" in result and result["window_id"] is None:  # a loss that was accepted
        return []
    url = result.get("manifest_url")
    if not isinstance(url, str):
        raise ConfigurationError("windows has a dict without manifest_url. Set the result of a drain.")
    return [url] if with_empty or result.get("event_count") != 0 else []


def all_manifests(windows: Any) -> tuple[tuple[str, ...], bool]:
    """Return the manifest URLs of all windows, those without events too, and whether all are known to have none."""
    results = list(flat_windows(windows))
    manifests = [url for item in results for url in manifests_in(item, with_empty=True)]
    return tuple(dict.fromkeys(manifests)), not any(url for item in results for url in manifests_in(item))


def reason_to_skip(windows: Any) -> str:
    """Return the reason to skip a job whose windows have no events."""
    if not any(flat_windows(windows)):
        return "No result of a drain was received, so it is unknown whether there are events."
    return "There are no windows with events to process."


def stream_uris(windows: Any) -> tuple[str, ...]:
    """Return the URIs of the landed streams that results of drains are of, each once."""
    uris = (item.get("asset_uri") for item in flat_windows(windows) if isinstance(item, dict))
    return tuple(dict.fromkeys(uri for uri in uris if isinstance(uri, str)))


def _bounds(result: str | dict[str, Any]) -> tuple[str, str] | None:
    if isinstance(result, dict) and _is_interval(result):
        return result["event_time_from"], result["event_time_to"]
    return None


def _is_interval(result: dict[str, Any]) -> bool:
    if result.get("mode") != "interval":
        return False
    if not {"windows", "event_time_from", "event_time_to"} <= result.keys():
        raise ConfigurationError("windows has only a part of the result of an interval. Set the whole result.")
    return True


def _time(argument: str, text: str | None) -> datetime | None:
    time = time_from_text(argument, text)
    if time is not None and time.utcoffset() is None:
        raise ConfigurationError(f"{argument}={text!r} needs a time zone. No job was started.")
    return time
