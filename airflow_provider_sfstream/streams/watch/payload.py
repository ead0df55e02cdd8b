"""Payload that a trigger passes to tasks and asset events: a small dict of plain values, never an event's body."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.watch.conditions import WakeUp

_ERROR = "error"


def payload(stream: Stream, wake_up: WakeUp) -> dict[str, Any]:
    """Return ``wake_up`` as ``reason``, ``stream`` (``org_id``, ``api``, ``topic``, ``subscription``),
    ``first_replay_id``, ``through`` (hex text or ``None``) and ``event_count``; a confirmed end of the stream also as
    ``confirmed_at`` and ``contact_at`` (ISO 8601)."""
    document = {
        "reason": wake_up.reason.value,
        "stream": asdict(stream),
        "first_replay_id": _text(wake_up.first_replay_id),
        "through": _text(wake_up.through),
        "event_count": wake_up.event_count,
    }
    if wake_up.confirmed_at is None or wake_up.contact_at is None:
        return document
    times = {"confirmed_at": wake_up.confirmed_at, "contact_at": wake_up.contact_at}
    return document | {name: time.isoformat() for name, time in times.items()}


def error_payload(error: SalesforceStreamError) -> dict[str, Any]:
    """Return ``error`` as ``reason`` (``"error"``), ``error`` (the name of its class) and ``message``."""
    return {"reason": _ERROR, "error": type(error).__name__, "message": str(error)}


def error_from_payload(event: dict[str, Any]) -> SalesforceStreamError | None:
    """Return the error that ``event`` reports, of the same class; ``None`` if it reports none.

    A class that is missing from :mod:`airflow_provider_sfstream.exceptions` (the triggerer runs another version)
    becomes the base class of the errors, which is not retriable.
    """
    if event.get("reason") != _ERROR:
        return None
    name, message = str(event.get("error")), str(event.get("message"))
    error_class = getattr(exceptions, name, None)
    if isinstance(error_class, type) and issubclass(error_class, SalesforceStreamError):
        return error_class(message)
    return SalesforceStreamError(f"{name}: {message}")


def _text(replay_id: bytes | None) -> str | None:
    return None if replay_id is None else replay_id_to_text(replay_id)
