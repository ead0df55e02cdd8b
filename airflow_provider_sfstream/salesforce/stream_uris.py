"""Canonical URIs of topics for Airflow: ``sfstream://<connection><topic>[?<query>]``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from airflow_provider_sfstream.arguments import check_wake_up_conditions
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import remember_user_info, without_user_info
from airflow_provider_sfstream.salesforce.topics import Topic

SCHEME = "sfstream"

_LONGEST_CONNECTION_ID = 250
"""Characters; Airflow's limit (``airflow.models.connection.CONN_ID_MAX_LEN``)."""


@dataclass(frozen=True)
class StreamUri:
    """A topic as read with one connection: watched for wake-ups, or landed by a consumer.

    With ``subscription`` it is the *landed* stream of that consumer: drains emit asset events on it, and it is not
    watched. Without, it is the topic itself, watched under the given conditions
    (:class:`~airflow_provider_sfstream.streams.watch.conditions.WakeUpConditions`). The defaults are the trigger's, and
    are not in the text. The URI contains the conditions because Airflow stores one set of watchers for each asset: two
    DAG files with different conditions for one asset would replace each other's watchers at every parse.

    ``str()`` gives the canonical text: keys in alphabetical order, percent-encoded, numbers without trailing zeros.
    Equal values have equal texts, and ``StreamUri.parse(str(uri)) == uri``.

    :param api: the API to read the topic with, if it is not the topic's default API; stored as ``None`` if it is.
    :param max_wait: seconds, or ``None``.
    :param min_interval: seconds.
    :raises InvalidTopicError: if ``topic`` is not a topic name.
    :raises ConfigurationError: naming the invalid part.
    """

    salesforce_conn_id: str
    topic: str
    subscription: str | None = None
    api: str | None = None
    min_events: int = 1
    max_wait: float | None = None
    min_interval: float = 5.0

    def __post_init__(self) -> None:
        connection = self.salesforce_conn_id
        if not isinstance(connection, str) or not connection.strip() or len(connection) > _LONGEST_CONNECTION_ID:
            raise ConfigurationError(
                f"salesforce_conn_id={connection!r} must be a text of 1 to {_LONGEST_CONNECTION_ID} characters."
            )
        if self.api is not None and Topic.parse(self.topic, self.api) == Topic.parse(self.topic):
            object.__setattr__(self, "api", None)  # one canonical form
        Topic.parse(self.topic, self.api)
        check_wake_up_conditions(self.min_events, self.max_wait, self.min_interval)
        if self.subscription is not None:
            self._check_landed(self.subscription)

    def _check_landed(self, subscription: str) -> None:
        if not isinstance(subscription, str) or not subscription.strip() or len(subscription) > 255:
            raise ConfigurationError(f"subscription={subscription!r} must be a text of 1 to 255 characters.")
        if self._conditions():
            raise ConfigurationError(
                f"The landed stream of subscription {subscription!r} is not watched, so it does not support "
                f"{' or '.join(self._conditions())}. Omit the subscription to watch the topic."
            )

    @classmethod
    def parse(cls, text: str) -> StreamUri:
        """Return the URI in ``text``, which need not be in canonical form. No error shows its user info."""
        parts = _split(text)
        arguments: dict[str, Any] = {}
        for key, value in _query(text, parts.query):
            if key not in _QUERY:
                raise _refused(
                    text, f"the query key {key!r} is not supported; supported are {', '.join(sorted(_QUERY))}"
                )
            if key in arguments:
                raise _refused(text, f"it contains {key} twice")
            arguments[key] = _QUERY[key](key, value)
        return cls(_decoded(text, parts.netloc), _decoded(text, parts.path), **arguments)

    def __str__(self) -> str:
        path = quote(self.topic, safe="/")
        if path.endswith("/"):  # Airflow would remove it
            path = f"{path[:-1]}%2F"
        query = self._conditions()
        if self.subscription is not None:
            query["subscription"] = quote(self.subscription, safe="")
        if self.api is not None:
            query["api"] = self.api
        tail = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
        return f"{SCHEME}://{quote(self.salesforce_conn_id, safe='')}{path}{'?' if tail else ''}{tail}"

    def _conditions(self) -> dict[str, str]:
        """Return the conditions that differ from the defaults, as texts."""
        names = ("min_events", "max_wait", "min_interval")
        return {name: _number(getattr(self, name)) for name in names if getattr(self, name) != getattr(StreamUri, name)}

    def watch_arguments(self) -> dict[str, Any]:
        """Return the trigger's arguments: topic, connection, and all values that differ from its defaults.

        Equal values give arguments that serialize to equal text, so that Airflow sees one trigger.
        """
        if self.subscription is not None:
            raise ConfigurationError(
                f"{self} is the landed stream of subscription {self.subscription!r}, which is not watched. Schedule a "
                "DAG on it with landed_stream_asset(), or omit the subscription to watch the topic."
            )
        read = {name: _QUERY[name](name, text) for name, text in self._conditions().items()}
        api = {} if self.api is None else {"api": self.api}
        return {"topic": self.topic, "salesforce_conn_id": self.salesforce_conn_id, **api, **read}


def _split(text: str) -> SplitResult:
    """Return the parts of ``text`` after a check for unsupported parts."""
    if re.search(r"[\x00-\x20\x7f]", text):  # urlsplit silently drops some of them
        raise _refused(text, "spaces and control characters must be percent-encoded")
    try:
        parts = urlsplit(text)
    except ValueError:  # its message can contain a password
        raise _refused(text, "it is malformed") from None
    user = "it must not contain a user name or password: credentials belong in the Airflow connection"
    port = "it must not contain a port. Write ':' in a connection id as %3A"
    checks = (
        (parts.scheme == SCHEME, f"it does not begin with {SCHEME}://"),
        ("@" not in parts.netloc, user),
        (parts.netloc, "it has no connection ID"),
        (not re.search(r"[:\[\]]", parts.netloc), port),
        (not parts.fragment and not text.endswith("#"), "it must not contain a fragment"),
    )
    for is_valid, reason in checks:
        if not is_valid:
            raise _refused(text, reason)
    return parts


def _decoded(text: str, part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _refused(text, "it is malformed") from None


def _query(text: str, query: str) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise _refused(text, "its query is malformed") from None


def _refused(text: str, reason: str) -> ConfigurationError:
    remember_user_info(text)
    return ConfigurationError(
        f"{without_user_info(text)!r} is not a stream URI: {reason}. Use {SCHEME}://<connection id><topic>, "
        f"for example {SCHEME}://salesforce_default/event/Order__e."
    )


def _text(key: str, value: str) -> str:
    return value


def _count(key: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise ConfigurationError(f"{key}={value} must be a whole number above 0.")
    return int(value)


def _seconds(key: str, value: str) -> float:
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", value):
        raise ConfigurationError(f"{key}={value} must be a number of seconds, such as 60 or 0.5.")
    return float(value)


_QUERY: dict[str, Callable[[str, str], Any]] = {
    "subscription": _text,
    "api": _text,
    "min_events": _count,
    "max_wait": _seconds,
    "min_interval": _seconds,
}


def _number(value: float) -> str:
    """Return ``value`` in the shortest decimal form that parses to the same value, without an exponent."""
    return format(Decimal(repr(value + 0)).normalize(), "f")  # + 0 makes -0.0 plain
