"""Every timer and limit of the local org, adjustable while it runs."""

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
    """Timers in seconds, sizes in bytes. The defaults are Salesforce's, as far as they are known.

    ``keepalive_seconds``
        An owed but empty stream gets an empty response this often (270 at most by contract, about 120 in practice).
    ``client_idle_seconds``, ``client_idle_end``
        A client that is owed nothing must ask again within this time, else its stream ends: ``"ok"``, or
        ``"reset"`` for a connection closed without a status.
    ``publish_idle_seconds``
        PublishStream ends with ``publish.stream.sweeper.timeout`` after this long without a request.
    ``retention_seconds``, ``clock_offset_seconds``
        Events older than this on the org's clock are gone. The offset moves that clock: of the bus, of records and of
        the header ``Date``.
    ``credit_cap``, ``batch_events``, ``response_bytes``
        The most events outstanding on a stream, in one response, and bytes in one response.
    ``event_bytes``, ``publish_request_bytes``
        The largest event, and the largest publish request.
    ``overflow_changes``
        Changes of one transaction beyond this many are a GAP_OVERFLOW event for each entity; a create, delete or
        undelete is one change, an update one for each field.
    ``diff_text_characters``
        Updates of long texts of at least this many characters (1,000 at Salesforce) are sent as the difference to the
        former text, where that is small; ``null`` for never.
    ``delivery_quota``, ``publish_quota``
        Events delivered to all clients in 24 hours, and published in one hour; ``null`` for no limit.
    ``cometd_connect_seconds``, ``cometd_reconnect_seconds``
        How long a ``/meta/connect`` without events is held, and how soon after an answer the next one must come.
    ``cometd_batch_events``
        The most events in one answer to ``/meta/connect``; ``null`` for all there are.
    ``cometd_clients``
        The most CometD clients at a time; ``null`` for no limit.
    ``streaming_retention_seconds``, ``standard_volume_retention_seconds``
        ``retention_seconds`` for PushTopics and generic channels, and for standard-volume platform events.
    ``view_setup``
        The user has the permission View Setup and Configuration. Without it the Tooling API has none of its objects.
    ``bulk_hard_delete``
        The user has the permission Bulk API Hard Delete, which no profile has at first.
    ``http_date``
        Answers over HTTP have the header ``Date``, by the org's clock.
    ``managed_commit_seconds``
        A managed stream without a commit request for this long ends.
    ``managed_release_seconds``, ``managed_half_open_seconds``
        How long a managed subscription stays taken after its stream ended (15 at most at Salesforce), and after its
        client vanished without closing the connection (about 900 there).
    ``managed_visibility_seconds``
        How long the Pub/Sub API takes to see a change of a managed subscription (about 120 at Salesforce).
    ``managed_ack_every``, ``managed_ack_seconds``
        One answer acknowledges this many commits, or those that came within this time.
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
        """Return every knob by name."""
        return asdict(self)

    def update(self, changes: Mapping[str, Any]) -> None:
        """Turn several knobs at once.

        :raises ValueError: if a name is unknown or a value is not of its knob's type or sign; nothing was changed.
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
