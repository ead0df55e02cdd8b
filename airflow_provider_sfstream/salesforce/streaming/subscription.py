"""One subscription on the Streaming API: a CometD session, its messages as batches, and its errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiocometd.exceptions import AiocometdException
from aiosfstream.exceptions import ServerError

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    ContactError,
    InvalidReplayIdError,
    SalesforceStreamError,
    SchemaError,
    SessionExpiredError,
)
from airflow_provider_sfstream.salesforce.auth.tokens import Session
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_reply, error_from_status
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom, check_amounts
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_from_integer, replay_id_to_integer
from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from airflow_provider_sfstream.salesforce.streaming.cometd.http import NoAnswerError, SessionAuthenticator
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage, UnreadableMessageError
from airflow_provider_sfstream.salesforce.topics import Topic, channel_of

log = logging.getLogger(__name__)

MOST_EVENTS_OF_A_BATCH = 1_000
CLOSED = "The Streaming API client is closed."

_NOT_SKIPPED = "It was not skipped: no later event was read, and the position was not moved past it."
_REPLAY_OPTIONS = {StartFrom.LATEST: -1, StartFrom.EARLIEST: -2}


def check_arguments(topic: str, after: bytes | StartFrom, limit: int | None, **seconds: float) -> int:
    """Return the replay ID to subscribe with: a number, or one of the replay options -1 and -2."""
    Topic.parse(topic, "streaming")
    check_amounts(topic, limit, **seconds)
    if isinstance(after, StartFrom):
        if after not in _REPLAY_OPTIONS:
            raise ConfigurationError(f"{topic}: the Streaming API stores no committed position. Nothing was read.")
        return _REPLAY_OPTIONS[after]
    try:
        return replay_id_to_integer(after)
    except InvalidReplayIdError as error:
        raise InvalidReplayIdError(f"{topic}: {error}") from None


def message_batch(topic: str, messages: Sequence[EventMessage], received_at: int) -> EventBatch:
    """Return the columns of event messages that arrived at ``received_at`` (nanoseconds since the epoch).

    :raises SchemaError: if one has no replay ID, so that it can neither be landed nor be a position.
    """
    replay_ids: list[bytes] = []
    event_ids: list[str | None] = []
    schema_ids: list[str] = []
    payloads: list[bytes] = []
    for message in messages:
        try:
            data = message["data"]
            event = data["event"]
            replay_ids.append(replay_id_from_integer(event["replayId"]))
        except (KeyError, TypeError, AttributeError, InvalidReplayIdError):
            raise _without_replay_id(topic, message, replay_ids) from None
        event_ids.append(_text(event.get("EventUuid")))
        schema_ids.append(_text(data.get("schema")) or channel_of(message["channel"]))
        payloads.append(message.data)
    return EventBatch(
        replay_ids=replay_ids,
        event_ids=event_ids,
        schema_ids=schema_ids,
        payloads=payloads,
        latest_replay_id=replay_ids[-1] if replay_ids else b"",
        pending=0,
        received_at=received_at,
    )


def _text(value: Any) -> str | None:
    """Return ``value`` if it is text that can be stored: parsed JSON can contain unpaired surrogates."""
    if not isinstance(value, str):
        return None
    return value if value.isascii() or value.encode(errors="ignore").decode() == value else None


def _without_replay_id(topic: str, message: Mapping[str, Any], before: Sequence[bytes]) -> SchemaError:
    after = f"after replay ID {before[-1].hex()}" if before else "first of its batch"
    return SchemaError(
        f"{topic}: an event message on channel {message.get('channel')!r} ({after}) has no data.event.replayId, so "
        f"no run can resume after it. {_NOT_SKIPPED} The replay extension needs API version 37.0 or above: check "
        "`version` of the connection, and report the error if that is correct."
    )


def _honour_cancellation() -> None:
    """Raise the cancellation of the task if a library swallowed it while it connected.

    Otherwise the task would wait for events without a consumer.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class StreamingSubscription:
    """A CometD session that is subscribed to one topic. Its methods raise only this package's errors.

    :param cometd: a client with a :class:`SessionAuthenticator` of ``session``, which records a refused token.
    """

    def __init__(self, cometd: CometdClient, session: Session, topic: str) -> None:
        self._cometd, self._session, self._topic = cometd, session, topic
        self._authenticator: SessionAuthenticator = cometd.auth
        self._closed = False

    async def open(self, *, subscribe: bool = True) -> None:
        """Log in, shake hands and subscribe. Call :meth:`aclose` afterwards, also after an error."""
        with self._converted_errors():
            await self._cometd.open()
            _honour_cancellation()
            if subscribe:
                await self._cometd.subscribe(self._topic)
                _honour_cancellation()

    async def next_batch(self, most: int, silence_timeout: float) -> EventBatch:
        """Return the next events, at most ``most``; an empty batch when Salesforce answered without any.

        A cancelled call consumes nothing.
        """
        with self._converted_errors():
            try:
                async with asyncio.timeout(silence_timeout):
                    messages = await self._cometd.receive_many(most, heartbeats=True, refused=True)
            except TimeoutError:
                raise self._no_answer(
                    f"no response for {silence_timeout:g} seconds, but Salesforce answers a poll within 110 seconds"
                ) from None
        refusals = [message.refusal for message in messages if message.refusal is not None]
        if refusals:
            log.warning(
                "%s: %d events cannot be parsed. They are delivered as raw bytes; a job that cannot parse them either "
                "quarantines them. %s",
                self._topic,
                len(refusals),
                refusals[0],
            )
        return message_batch(self._topic, messages, time.time_ns())

    async def aclose(self) -> None:
        """End the session at Salesforce, if it can be reached, and release its resources."""
        self._closed = True
        await self._cometd.close()

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        try:
            yield
        except (AiocometdException, aiohttp.ClientError, OSError) as fault:
            if self._closed:
                raise RuntimeError(CLOSED) from None
            error = self._error_from(fault)
        except SalesforceStreamError as converted:
            error = converted
        else:
            return
        token = self._authenticator.token
        if isinstance(error, SessionExpiredError) and token is not None:
            self._session.refused(token)
        # Without the cause: it may contain the request.
        raise error from None

    def _error_from(self, fault: BaseException) -> SalesforceStreamError:
        if isinstance(fault.__cause__, SalesforceStreamError):  # a login's error is the cause of aiosfstream's
            return fault.__cause__
        text = str(fault) or type(fault).__name__
        if isinstance(fault, UnreadableMessageError):  # a retry would receive the same message
            return SchemaError(f"{self._topic}: {text} {_NOT_SKIPPED} Check for a proxy that changes responses.")
        if isinstance(fault, NoAnswerError):
            return self._no_answer(text)
        if isinstance(fault, ServerError):
            reply = fault.response or {}
            reason = ((reply.get("ext") or {}).get("sfdc") or {}).get("failureReason")
            return error_from_reply(reply.get("error"), reason, topic=self._topic)
        return error_from_status(getattr(fault, "status", None), text, topic=self._topic)

    def _no_answer(self, reason: str) -> ContactError:
        host = urlsplit(self._authenticator.instance_url).netloc
        return ContactError(
            f"{self._topic}: the Streaming API at {host} did not answer, although the login succeeded ({reason}). "
            "Nothing that was received is lost: resume from the last replay ID."
        )
