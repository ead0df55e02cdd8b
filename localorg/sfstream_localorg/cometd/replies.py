"""Bayeux replies with Salesforce's texts (§5 of the protocol notes). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfstream_localorg.cometd.sessions import Ending

Message = dict[str, Any]

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"
DISCONNECT = "/meta/disconnect"

ADVICE_NONE = {"reconnect": "none", "interval": 0}
ADVICE_HANDSHAKE = {"reconnect": "handshake", "interval": 0}
LIMIT_EXCEEDED = "403::Organization total events daily limit exceeded"
CLIENTS_EXCEEDED = "403::Organization concurrent user limit exceeded"
CREATE_DENIED = "403:denied_by_security_policy:create_denied"
PUBLISH_DENIED = "403:denied_by_security_policy:publish_denied"
UNKNOWN_CLIENT = "403::Unknown client"
UNAUTHENTICATED = "401::Authentication invalid"
NO_TOKEN = "401::Request requires authentication"  # noqa: S105 - Salesforce's words
TOO_BUSY = "503::Server is too busy. Please try your request again later."


OVERLOADED = {HANDSHAKE: "403::Handshake denied"}
"""The ``error`` of messages whose real error (:data:`TOO_BUSY`) is in ``ext``."""


class BayeuxError(Exception):
    """Refusal of a message, with Salesforce's ``error`` and, for some errors, an ``advice``.

    :param failure_reason: the real cause, if ``error`` hides it (``ext.sfdc.failureReason``).
    :param before: messages to send before the reply.
    """

    def __init__(
        self,
        error: str,
        *,
        advice: Mapping[str, Any] | None = None,
        failure_reason: str | None = None,
        before: Sequence[Message] = (),
    ) -> None:
        super().__init__(error)
        self.error = error
        self.advice = advice
        self.failure_reason = failure_reason
        self.before = before


def reply(message: Mapping[str, Any], **fields: Any) -> Message:
    """Return the successful reply to a message. It has the ``id`` of the message, if any."""
    answer = {**fields, "channel": message["channel"], "successful": True}
    return _echo(message, answer)


def refusal(message: Mapping[str, Any], error: BayeuxError) -> Message:
    """Return the reply to a refused message."""
    answer: Message = {"channel": message.get("channel"), "error": error.error, "successful": False}
    if error.failure_reason is not None:
        answer["ext"] = {"sfdc": {"failureReason": error.failure_reason}, "replay": True, "payload.format": True}
    if error.advice is not None:
        answer["advice"] = dict(error.advice)
    if message.get("subscription") is not None:
        answer["subscription"] = message["subscription"]
    return _echo(message, answer)


def handshake_denied(reason: str) -> BayeuxError:
    """Return the refusal of a handshake, with the cause in ``ext`` as at Salesforce."""
    return BayeuxError("403::Handshake denied", advice={"reconnect": "none"}, failure_reason=reason)


def session_ended(ending: Ending) -> BayeuxError:
    """Return the error for a session that is unknown or has ended."""
    if ending == "no_advice":
        return BayeuxError(UNKNOWN_CLIENT)
    if ending == "disconnect":
        return BayeuxError(UNKNOWN_CLIENT, advice=ADVICE_NONE, before=[{"channel": DISCONNECT}])
    return BayeuxError(UNKNOWN_CLIENT, advice=ADVICE_HANDSHAKE)


def invalid_replay_id(replay_id: object) -> BayeuxError:
    """Return the error for a replay ID that cannot be resumed from."""
    return BayeuxError(
        f"400::The replayId {{{replay_id}}} you provided was invalid.  Please provide a valid ID, -2 to replay all "
        "events, or -1 to replay only new events."
    )


def missing_replay_id(channel: str, replay: Mapping[str, Any]) -> BayeuxError:
    """Return the error for a replay map without the channel's name; that name has no filter."""
    given = ", ".join(f"{name}={replay_id}" for name, replay_id in replay.items())
    return BayeuxError(
        f"400::The replayId for channel {{{channel}}} wasn't found using the provided replay ID map {{{{{given}}}}}. "
        "Ensure that the channel name you provided in the replay map is valid and matches the channel name used for "
        "subscribing."
    )


def no_such_channel(channel: str) -> BayeuxError:
    """Return the error for a channel that the org does not have."""
    return BayeuxError(f"400::The channel you requested to subscribe to does not exist {{{channel}}}")


def _echo(message: Mapping[str, Any], answer: Message) -> Message:
    if message.get("clientId") is not None:
        answer["clientId"] = message["clientId"]
    if message.get("id") is not None:
        answer["id"] = message["id"]
    return answer
