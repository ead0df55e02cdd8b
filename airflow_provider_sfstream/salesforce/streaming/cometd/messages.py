"""Incremental parser of Bayeux messages in a response body, which preserves the raw bytes of each ``data``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aiosfstream.exceptions import TransportError

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

JsonLoads = Callable[[str], Any]
JsonDumps = Callable[[Any], str | bytes]

LARGEST_MESSAGE = 16 * 1024 * 1024
"""Bytes. Salesforce allows events of 1 MB; a longer body without the end of a message is not from Salesforce."""

# All of JSON's punctuation is ASCII, and no byte of a longer UTF-8 sequence is, so bytes can be scanned undecoded.
_IN_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_STRING = rb'"' + _IN_STRING + rb'"'
_WITHIN_STRING = re.compile(_IN_STRING, re.DOTALL)
_UP_TO_BRACKET = re.compile(rb'[^{}\[\]"]*+(?:' + _STRING + rb'[^{}\[\]"]*+)*+', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n,]*+")
_MEMBER = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_PLAIN_VALUE = re.compile(_STRING + rb"|[^ \t\r\n,}\]]++", re.DOTALL)
_NEXT_MEMBER = re.compile(rb"[ \t\r\n]*+,")
_REPLAY_ID = re.compile(rb'"replayId"\s*:\s*(-?\d{1,20})\b')
_NUMBER = re.compile(rb"\d{1,20}")

_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OPEN, _CLOSE = b"{[", b"}]"
_WHITESPACE = b" \t\r\n"


class UnreadableMessageError(TransportError):  # type: ignore[misc]
    """An unreadable message, which a retry cannot repair; all earlier messages were delivered."""


class EventMessage(dict[str, Any]):
    """An event message in the form of aiosfstream.

    ``data``: the raw bytes of the value of its ``data`` member, UTF-8 JSON exactly as received. ``arrival`` grows from
    message to message if a replay marker storage counts them. ``refusal`` is set if the parser refused the message but
    its replay ID is readable: its ``data`` member then has only ``event`` and ``schema``, besides the raw bytes.
    """

    __slots__ = ("arrival", "data", "refusal")

    def __init__(self, message: dict[str, Any], data: bytes) -> None:
        super().__init__(message)
        self.data = data
        self.arrival = 0
        self.refusal: UnreadableMessageError | None = None


class RawMessage(NamedTuple):
    """The bytes of one JSON object of a response body. ``values`` are the start and end offsets of those members that
    are objects or arrays."""

    body: bytes
    values: dict[int, int]

    def data(self) -> bytes | None:
        """Return the bytes of the value of the ``data`` member; ``None`` if it is missing.

        As in a parsed object, the last member of that name counts. Expects a body that is valid JSON.
        """
        return self.members()[0].get("data")

    def members(self) -> tuple[dict[str, bytes], bool]:
        """Return the bytes of the members' values by name, and whether the object has no other content.

        It does not parse values: they may be ones that a parser refuses.
        """
        members: dict[str, bytes] = {}
        position = 1
        while (member := _MEMBER.match(self.body, position)) is not None:
            start = member.end()
            end = self.values.get(start)
            if end is None:
                plain = _PLAIN_VALUE.match(self.body, start)
                end = start if plain is None else plain.end()
            members[_name(member[1])] = self.body[start:end]
            following = _NEXT_MEMBER.match(self.body, end)
            if following is None:
                return members, self.body[end:].strip(_WHITESPACE) == b"}"
            position = following.end()
        return members, not members and self.body[1:].strip(_WHITESPACE) == b"}"

    def __str__(self) -> str:
        """Return a description of an unreadable message, without its content."""
        match = _REPLAY_ID.search(self.body)
        replay_id = "no replayId" if match is None else f"replayId {int(match[1])}"
        return f"A message of {len(self.body)} bytes with {replay_id}"


class MessageSplitter:
    """Splits the body of one response, an array of messages or one message, in time linear in its length.

    It stores only the incomplete message, at most :data:`LARGEST_MESSAGE` bytes.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        self._start = 0
        self._depth = 0
        self._in_string = False
        self._in_array = False
        self._ended = False
        self._value_start = 0
        self._values: dict[int, int] = {}

    def feed(self, chunk: bytes) -> Iterator[RawMessage]:
        """Yield the messages that ``chunk`` completes, in order. Exhaust it before feeding the next chunk.

        :raises TransportError: at bytes that are invalid in an array of messages, or if a message is too large.
        """
        self._buffer += chunk
        while self._position < len(self._buffer):
            if self._depth == 0:
                if not self._begin():
                    break
            elif not self._to_bracket():
                break
            elif self._bracket():
                yield self._message()
        self._discard_read()

    def end(self) -> None:
        """Raise :class:`TransportError` if the body was incomplete."""
        if not self._ended:
            raise TransportError("The response is incomplete: its array of messages has no end.")

    def _begin(self) -> bool:
        """Move to the beginning of a message, if it has arrived."""
        between = _BETWEEN.match(self._buffer, self._position)
        self._position = self._position if between is None else between.end()
        if self._position == len(self._buffer):
            return False
        byte = self._buffer[self._position]
        if byte == b"["[0] and not self._in_array and not self._ended:
            self._in_array = True
            self._position += 1
            return True
        if byte == b"]"[0] and self._in_array:
            self._in_array, self._ended = False, True
            self._position += 1
            return True
        if byte != b"{"[0] or self._ended:
            raise TransportError("The response is not a JSON array of Bayeux messages.")
        self._start = self._position
        self._position += 1
        self._depth = 1
        return True

    def _to_bracket(self) -> bool:
        """Move to the next bracket outside of strings, if it has arrived; never read a byte twice."""
        while True:
            pattern = _WITHIN_STRING if self._in_string else _UP_TO_BRACKET
            scanned = pattern.match(self._buffer, self._position)
            self._position = self._position if scanned is None else scanned.end()
            if self._position == len(self._buffer):
                return False
            byte = self._buffer[self._position]
            if byte == _BACKSLASH and self._in_string:  # the character that it escapes has not arrived
                return False
            if byte != _QUOTE:
                return True
            self._position += 1
            self._in_string = not self._in_string

    def _bracket(self) -> bool:
        """Process one bracket; return whether it ends the message."""
        byte = self._buffer[self._position]
        if byte in _OPEN:
            if self._depth == 1:
                self._value_start = self._position - self._start
            self._depth += 1
        else:
            self._depth -= 1
            if self._depth == 1:
                self._values[self._value_start] = self._position + 1 - self._start
        self._position += 1
        return self._depth == 0

    def _message(self) -> RawMessage:
        message = RawMessage(bytes(self._buffer[self._start : self._position]), self._values)
        self._values = {}
        self._start = self._position
        self._ended = not self._in_array
        return message

    def _discard_read(self) -> None:
        end = self._start if self._depth else self._position
        del self._buffer[:end]
        self._position -= end
        self._start = 0
        if len(self._buffer) > LARGEST_MESSAGE:
            raise UnreadableMessageError(f"A message of the response is larger than {LARGEST_MESSAGE} bytes.")


def parse_message(raw: RawMessage, json_loads: JsonLoads) -> dict[str, Any]:
    """Return the message, an :class:`EventMessage` if it has ``data``.

    Values of an event that a parser refuses (a number out of range, an unpaired surrogate, nesting) are in its payload:
    if its replay ID is readable, it becomes a message with a ``refusal``.

    :raises UnreadableMessageError: if it cannot be parsed, or is not a message.
    """
    try:
        message = json_loads(raw.body.decode("utf-8"))
    except Exception as error:  # a custom loader may raise any exception
        reason = f"cannot be parsed: {type(error).__name__}."
        event = _event_by_parts(raw)
        if event is None:
            raise UnreadableMessageError(f"{raw} {reason}") from None
        replay_id = event["data"]["event"]["replayId"]
        event.refusal = UnreadableMessageError(f"A message of {len(raw.body)} bytes with replayId {replay_id} {reason}")
        return event
    if not isinstance(message, dict) or not isinstance(message.get("channel"), str):
        raise UnreadableMessageError(f"{raw} has no channel.")
    data = raw.data() if "data" in message else None
    return message if data is None else EventMessage(message, data)


def default_loads(text: str) -> Any:
    """Parse JSON, with orjson if it is installed."""
    return json.loads(text) if orjson is None else orjson.loads(text)


def default_dumps(value: Any) -> str:
    """Serialise as JSON, with orjson if it is installed."""
    return json.dumps(value) if orjson is None else orjson.dumps(value).decode("utf-8")


def _event_by_parts(raw: RawMessage) -> EventMessage | None:
    """Return an event message with its channel and replay ID; ``None`` if they are not certainly readable."""
    message = _members_of(raw)
    data = message.get("data", b"")
    of_data = _members_of(_object(data))
    event = of_data.get("event", b"")
    number = _NUMBER.fullmatch(_members_of(_object(event)).get("replayId", b""))
    channel = _parsed(message.get("channel", b"null"))
    if number is None or not isinstance(channel, str) or channel.startswith(("/meta/", "/service/")):
        return None
    readable = _parsed(event)
    envelope = readable if isinstance(readable, dict) else {}
    body = {"event": {**envelope, "replayId": int(number[0])}, "schema": _parsed(of_data.get("schema", b"null"))}
    return EventMessage({"channel": channel, "data": body}, data)


def _members_of(raw: RawMessage | None) -> dict[str, bytes]:
    members, are_all = ({}, False) if raw is None else raw.members()
    return members if are_all else {}


def _object(body: bytes) -> RawMessage | None:
    """Return the bytes of a JSON object as a raw message; ``None`` if it is not an object."""
    try:
        [message] = MessageSplitter().feed(body)
    except (TransportError, ValueError):
        return None
    return message if len(message.body) == len(body) else None


def _parsed(value: bytes) -> Any:
    """Return the value of a short JSON text; ``None`` if it cannot be parsed."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _name(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("utf-8", "replace")
    try:
        return str(json.loads(quoted))
    except ValueError:  # in a message that parsers refuse
        return quoted.decode("utf-8", "replace")
