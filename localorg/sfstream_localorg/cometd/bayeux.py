"""Bayeux messages of the Streaming API except ``/meta/connect``: handshake, subscribe, unsubscribe, disconnect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfstream_localorg.bus.event_bus import ReplayIdCorruptedError
from sfstream_localorg.cometd import replies
from sfstream_localorg.cometd.filters import parse_filter
from sfstream_localorg.cometd.replies import BayeuxError, Message
from sfstream_localorg.cometd.responses import COOKIE
from sfstream_localorg.cometd.sessions import CometdSession, CometdSubscription, Condition

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


@dataclass
class Caller:
    """Credentials of a client. ``set_cookie`` is the cookie that the response to a handshake sets."""

    token: str | None = field(repr=False)
    cookie: str | None = field(repr=False)
    set_cookie: str | None = field(default=None, repr=False)


class Bayeux:
    """Message handler of one org."""

    def __init__(self, org: Org) -> None:
        self._org = org
        self._answers: dict[str, Callable[[Message, Caller], Message]] = {
            replies.HANDSHAKE: self._handshake,
            replies.SUBSCRIBE: self._subscribe,
            replies.UNSUBSCRIBE: self._unsubscribe,
            replies.DISCONNECT: self._disconnect,
        }

    def answer(self, message: Message, caller: Caller) -> Message:
        """Return the reply to a message.

        :raises BayeuxError: if the message is refused; nothing was changed.
        """
        channel = str(message.get("channel", ""))
        if channel in self._answers:
            return self._answers[channel](message, caller)
        self.session(message, caller)
        raise BayeuxError("404::Unknown channel" if channel.startswith("/meta/") else replies.PUBLISH_DENIED)

    def session(self, message: Message, caller: Caller) -> CometdSession:
        """Return the session of a message.

        :raises BayeuxError: if the token is invalid, the session does not exist, or the cookie is of another session.
        """
        self.check_token(caller)
        session = self._org.cometd.get(message.get("clientId"))
        if session is None:
            raise replies.session_ended(self._org.cometd.ending(message.get("clientId")))
        if caller.cookie != session.cookie:
            raise BayeuxError(
                f"400::Client {session.client_id} has established a session, but no {COOKIE} cookie present"
            )
        return session

    def check_token(self, caller: Caller) -> None:
        """Validate the caller's token.

        :raises BayeuxError: if the token is missing, unknown or revoked.
        """
        if caller.token is None:
            raise BayeuxError(replies.NO_TOKEN, advice=replies.ADVICE_NONE)
        if self._org.sessions.check(caller.token) is None:
            raise BayeuxError(replies.UNAUTHENTICATED, advice=replies.ADVICE_NONE)

    def _handshake(self, message: Message, caller: Caller) -> Message:
        try:
            self.check_token(caller)
        except BayeuxError as error:
            raise replies.handshake_denied(error.error) from None
        limit = self._org.knobs.cometd_clients
        if limit is not None and len(self._org.cometd) >= limit:
            raise replies.handshake_denied(replies.CLIENTS_EXCEEDED)
        if self._org.deliveries.left() == 0:
            raise replies.handshake_denied(replies.LIMIT_EXCEEDED)
        session = self._org.cometd.begin()
        caller.set_cookie = session.cookie
        return replies.reply(
            message,
            ext={"replay": True, "payload.format": True},
            minimumVersion="1.0",
            clientId=session.client_id,
            supportedConnectionTypes=["long-polling"],
            version="1.0",
        )

    def _subscribe(self, message: Message, caller: Caller) -> Message:
        session = self.session(message, caller)
        names = message.get("subscription")
        listed = names if isinstance(names, list) else [names]
        made = [self._new_subscription(name, message) for name in listed]
        session.subscriptions |= {subscribed.name: subscribed for subscribed in made}
        session.wake.set()
        return replies.reply(message, subscription=names)

    def _new_subscription(self, name: object, message: Message) -> CometdSubscription:
        if not isinstance(name, str) or not name:
            raise BayeuxError("400::Channel name not specified")
        if not name.startswith("/"):
            raise BayeuxError("400::Channel subscriptions must start with a leading '/'")
        channel, condition = _find_channel(self._org, name)
        if self._org.deliveries.left() == 0:
            raise BayeuxError(replies.LIMIT_EXCEEDED, advice=replies.ADVICE_NONE)
        return CometdSubscription(
            name, channel, self._position(channel, (message.get("ext") or {}).get("replay")), condition
        )

    def _position(self, channel: str, replay: Any) -> int:
        if not isinstance(replay, dict):
            return self._org.bus.last()
        if channel not in replay:
            raise replies.missing_replay_id(channel, replay)
        replay_id = replay[channel]
        if replay_id == -1:
            return self._org.bus.last()
        if replay_id == -2:
            return self._org.bus.earliest(channel)
        try:
            return self._org.bus.position_of(channel, replay_id.to_bytes(8, "big"))
        except (ReplayIdCorruptedError, AttributeError, OverflowError):
            raise replies.invalid_replay_id(replay_id) from None

    def _unsubscribe(self, message: Message, caller: Caller) -> Message:
        session = self.session(message, caller)
        names = message.get("subscription")
        for name in names if isinstance(names, list) else [names]:
            session.subscriptions.pop(str(name), None)
        return replies.reply(message, subscription=names)

    def _disconnect(self, message: Message, caller: Caller) -> Message:
        self._org.cometd.end(self.session(message, caller), "disconnected")
        return replies.reply(message)


def _find_channel(org: Org, name: str) -> tuple[str, Condition | None]:
    """Split the name in a subscription into the channel and its filter. Wildcards are not supported.

    :raises BayeuxError: if the channel does not exist (names are case-sensitive), or the filter is invalid for it.
    """
    channel, question_mark, query = name.partition("?")
    if channel.startswith("/topic/"):
        topic = org.streaming_channels.push_topic(channel)
        if topic is None:
            raise replies.no_such_channel(channel)
        return channel, parse_filter(query, topic) if question_mark else None
    if question_mark:
        raise replies.no_such_channel(name)
    if channel.startswith("/u/"):
        if channel not in org.streaming_channels:
            raise replies.no_such_channel(channel)
    elif org.topics.get(channel) is None:
        raise BayeuxError(replies.CREATE_DENIED)
    return channel, None
