"""Arguments of operators as values: times, conditions, URLs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream._airflow import AirflowNotFoundException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import has_credentials
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions

DEFAULT_SUBSCRIPTION = "airflow"


def time_from_text(argument: str, value: str | datetime | None) -> datetime | None:
    """Return the time of an argument, a text or a datetime; ``None`` if it is empty."""
    if not isinstance(value, str) or not value:
        return None if isinstance(value, str) else value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError(f"{argument}={value!r} is not an ISO 8601 time. Nothing was read.") from None


def wake_up_conditions(
    min_events: int, max_wait: float | timedelta | None, *, name: str = "max_wait"
) -> WakeUpConditions:
    """Return the conditions of two arguments; ``name`` is the operator's name of the second."""
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    try:
        return WakeUpConditions(min_events=min_events, max_wait=seconds)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("max_wait", name)) from None


def is_template(value: object) -> bool:
    """Return whether the value of an argument is known only when the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return hasattr(value, "iter_references")  # another task's output, or an argument of a mapped task group


def consumer_name(subscription: str, managed_subscription: str | None) -> str:
    """Return the name under which the position of a consumer on a topic is stored. Two names are refused."""
    if managed_subscription is None:
        return subscription
    if subscription != DEFAULT_SUBSCRIPTION:
        raise ConfigurationError("Set either subscription or managed_subscription, not both: each names the consumer.")
    return managed_subscription


def landed_stream_uri(names: Any) -> str:
    """Return the URI of the asset of the landed stream of a config or an operator."""
    return str(StreamUri(names.salesforce_conn_id, names.topic, names.subscription, names.api))


def urls_of(argument: str, urls: Any, done: str) -> tuple[str, ...]:
    """Return the URLs of an argument, which may be one text. Errors say that nothing was ``done``, as ``"erased"``."""
    checked = (urls,) if isinstance(urls, str) else tuple(urls or ())
    if any(isinstance(url, str) and has_credentials(url) for url in checked):
        raise ConfigurationError(
            f"{argument} contains a password or a signature. Remove it, and set the credentials in the connection of "
            f"the storage. Nothing was {done}."
        )
    if not all(isinstance(url, str) and url.strip() for url in checked):
        raise ConfigurationError(f"{argument}={urls!r} is not a list of URLs. Nothing was {done}.")
    return checked


def find_connection(conn_id: str) -> Any:
    """Return an Airflow connection, ``None`` if it does not exist."""
    from airflow.sdk import Connection

    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException:
        return None
