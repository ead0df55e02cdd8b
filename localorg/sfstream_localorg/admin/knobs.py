"""Knobs: the timers and limits of the local org, adjustable while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_MAY_BE_ZERO = ("managed_release_seconds", "managed_visibility_seconds")
_FLAGS = ("view_setup", "http_date", "bulk_hard_delete")
_MAY_BE_NULL = ("delivery_quota", "publish_quota", "cometd_batch_events", "cometd_clients", "diff_text_characters")


@dataclass
class Knobs:
    """Timers in seconds, sizes in bytes. The defaults are Salesforce's values, as far as they are known.

    ``keepalive_seconds``
        Interval of empty responses while a client has requested events and none are available (at most 270 by
        contract, about 120 in practice).
    ``client_idle_seconds``, ``client_idle_end``
        Time within which a client must request more events after it has received all requested ones. Then its stream
        ends: with status OK for ``"ok"``, by closing the connection without a status for ``"reset"``.
    ``publish_idle_seconds``
        Time without a request after which PublishStream ends with ``publish.stream.sweeper.timeout``.
    ``retention_seconds``, ``clock_offset_seconds``
        Age at which events expire, by the org's clock. The offset moves that clock: for the bus, for records and for
        the header ``Date``.
    ``credit_cap``, ``batch_events``, ``response_bytes``
        Maximum number of outstanding events on a stream, of events in one response, and of bytes in one response.
    ``event_bytes``, ``publish_request_bytes``
        Maximum size of an event and of a publish request.
    ``overflow_changes``
        Maximum number of changes in one transaction; further changes become one GAP_OVERFLOW event for each entity. A
        create, delete or undelete counts as one change, an update as one for each field.
    ``diff_text_characters``
        Minimum length of a long text (1,000 at Salesforce) whose updates are sent as the difference to the previous
        text, if the difference is small; ``null`` for never.
    ``delivery_quota``, ``publish_quota``
        Maximum number of events delivered to all clients in 24 hours, and published in one hour; ``null`` for no limit.
    ``cometd_connect_seconds``, ``cometd_reconnect_seconds``
        Time for which a ``/meta/connect`` without events is held, and time within which a client must send the next
        one after a reply.
    ``cometd_batch_events``
        Maximum number of events in one response to ``/meta/connect``; ``null`` for no limit.
    ``cometd_clients``
        Maximum number of concurrent CometD clients; ``null`` for no limit.
    ``streaming_retention_seconds``, ``standard_volume_retention_seconds``
        ``retention_seconds`` for PushTopics and generic channels, and for standard-volume platform events.
    ``view_setup``
        Whether the user has the permission View Setup and Configuration. Without it, the Tooling API has no objects.
    ``bulk_hard_delete``
        Whether the user has the permission Bulk API Hard Delete, which no profile has by default.
    ``http_date``
        Whether HTTP responses have the header ``Date``, by the org's clock.
    ``managed_commit_seconds``
        Time without a commit request after which a managed stream ends.
    ``managed_release_seconds``, ``managed_half_open_seconds``
        Time for which a managed subscription stays occupied after its stream ended (at most 15 at Salesforce), and
        after its client vanished without closing the connection (about 900 at Salesforce).
    ``managed_visibility_seconds``
        Delay until the Pub/Sub API sees a change of a managed subscription (about 120 at Salesforce).
    ``managed_ack_every``, ``managed_ack_seconds``
        Number of commits that one response acknowledges, and the longest time that a commit waits for it.
    """

    keepalive_seconds: float = 120.0
    client_idle_seconds: float = 60.0
    client_idle_end: str = "ok"
    publish_idle_seconds: float = 70.0
    retention_seconds: float = 72 * 3600.0
    clock_offset_seconds: float = 0.0
    credit_cap: int = 100
    batch_events: int = 100
    response_bytes: int = 3_000_000
    event_bytes: int = 1_000_000
    publish_request_bytes: int = 4 * 1024 * 1024
    overflow_changes: int = 100_000
    diff_text_characters: int | None = None
    delivery_quota: int | None = None
    publish_quota: int | None = None
    cometd_connect_seconds: float = 110.0
    cometd_reconnect_seconds: float = 40.0
    cometd_batch_events: int | None = None
    cometd_clients: int | None = None
    streaming_retention_seconds: float = 24 * 3600.0
    standard_volume_retention_seconds: float = 24 * 3600.0
    view_setup: bool = True
    http_date: bool = True
    bulk_hard_delete: bool = False
    managed_commit_seconds: float = 1800.0
    managed_release_seconds: float = 0.0
    managed_half_open_seconds: float = 900.0
    managed_visibility_seconds: float = 0.0
    managed_ack_every: int = 1
    managed_ack_seconds: float = 0.2

    def as_dict(self) -> dict[str, Any]:
        """Return the knobs by name."""
        return asdict(self)

    def update(self, changes: Mapping[str, Any]) -> None:
        """Change several knobs.

        :raises ValueError: if a name is unknown or a value has the wrong type or sign; nothing was changed.
        """
        known = {field.name for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise ValueError(f"there is no knob {name!r}; there are {', '.join(sorted(known))}")
            _check(name, value)
        for name, value in changes.items():
            setattr(self, name, value)


def _check(name: str, value: object) -> None:
    if name == "client_idle_end":
        if value not in ("ok", "reset"):
            raise ValueError(f"client_idle_end={value!r} must be 'ok' or 'reset'")
    elif name in _FLAGS:
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r} must be true or false")
    elif value is not None or name not in _MAY_BE_NULL:
        _check_number(name, value)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name}={value!r} must be a number")
    if name.endswith("_seconds"):
        if value < 0 and name in _MAY_BE_ZERO:
            raise ValueError(f"{name}={value!r} must not be negative")
        if value <= 0 and name not in ("clock_offset_seconds", *_MAY_BE_ZERO):
            raise ValueError(f"{name}={value!r} must be above zero")
    elif not isinstance(value, int) or value < (0 if name.endswith("_quota") else 1):
        raise ValueError(f"{name}={value!r} must be a positive whole number")
