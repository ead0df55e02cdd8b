"""Bayeux messages out of a response body, one by one as its bytes arrive, each with the raw bytes of its ``data``."""

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
"""Bytes. Salesforce allows an event of 1 MB; a larger body without an end of a message is not one of its answers."""

# All of JSON's punctuation is ASCII, and no byte of a longer UTF-8 sequence is: bytes can be scanned as they come.
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
    """One message cannot be read, and would not be if it came again; everything before it was delivered."""


class EventMessage(dict[str, Any]):
    """An event message, as aiosfstream's users know it.

    ``data``: the raw bytes of the value of its ``data`` member, UTF-8 JSON exactly as received. ``arrival`` grows from
    message to message, where a replay marker storage counts them. ``refusal`` is set where the parser refused the
    message and its replay ID can be read: of ``data`` it then has ``event`` and ``schema`` alone, beside the raw bytes.
    """

    __slots__ = ("arrival", "data", "refusal")

    def __init__(self, message: dict[str, Any], data: bytes) -> None:
        super().__init__(message)
        self.data = data
        self.arrival = 0
        self.refusal: UnreadableMessageError | None = None


class RawMessage(NamedTuple):
    """The bytes of one JSON object of a response body. ``values`` are where the values of its members that are
    objects or arrays begin and end in it."""

    body: bytes
    values: dict[int, int]

    def data(self) -> bytes | None:
        """Return the bytes of the value of the ``data`` member, ``None`` if there is none.

        As in a parsed object, the last member of that name counts. Expects a body that is valid JSON.
        """
        return self.members()[0].get("data")

    def members(self) -> tuple[dict[str, bytes], bool]:
        """Return the bytes of the members' values by name, and whether that is all there is between the brackets.

        No value is looked into: it may be one that a parser refuses.
        """
        found: dict[str, bytes] = {}
        position = 1
        while (member := _MEMBER.match(self.body, position)) is not None:
            start = member.end()
            end = self.values.get(start)
            if end is None:
                plain = _PLAIN_VALUE.match(self.body, start)
                end = start if plain is None else plain.end()
            found[_name(member[1])] = self.body[start:end]
            following = _NEXT_MEMBER.match(self.body, end)
            if following is None:
                return found, self.body[end:].strip(_WHITESPACE) == b"}"
            position = following.end()
        return found, not found and self.body[1:].strip(_WHITESPACE) == b"}"

    def __str__(self) -> str:
        """Return what can be said of a message that cannot be read, without showing its content."""
        named = _REPLAY_ID.search(self.body)
        replay_id = "no replayId" if named is None else f"replayId {int(named[1])}"
        return f"a message of {len(self.body)} bytes with {replay_id}"


class MessageSplitter:
    """Splits the body of one response, an array of messages or one message, in time linear in its length.

    Only the message that has not arrived in full is held, at most :data:`LARGEST_MESSAGE` bytes of it.
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

        :raises TransportError: at what cannot be part of an array of messages.
        :raises UnreadableMessageError: if a message is too large.
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
        self._forget_read()

    def end(self) -> None:
        """Check that the body was complete.

        :raises TransportError: if it broke off.
        """
        if not self._ended:
            raise TransportError("The response broke off: its array of messages has no end.")

    def _begin(self) -> bool:
        """Go to the beginning of a message, if there is one yet."""
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
        """Go to the next bracket outside of strings, if it has arrived; never look at a byte twice."""
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
        """Take one bracket; return whether it ends the message."""
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

    def _forget_read(self) -> None:
        done = self._start if self._depth else self._position
        del self._buffer[:done]
        self._position -= done
        self._start = 0
        if len(self._buffer) > LARGEST_MESSAGE:
            raise UnreadableMessageError(f"A message of the response is larger than {LARGEST_MESSAGE} bytes.")


def parse_message(raw: RawMessage, json_loads: JsonLoads) -> dict[str, Any]:
    """Return the message, an :class:`EventMessage` where it has ``data``.

    What a parser refuses of an event (a number out of range, half of a surrogate pair, nesting) is in its payload:
    where its replay ID can be read all the same, it is a message with a ``refusal``.

    :param json_loads: applied to the text of the whole message.
    :raises UnreadableMessageError: if it cannot be parsed, or is not a message.
    """
    try:
        message = json_loads(raw.body.decode("utf-8"))
    except Exception as error:  # whatever a custom loader raises
        reason = f"cannot be parsed: {type(error).__name__}."
        event = _event_by_parts(raw)
        if event is None:
            raise UnreadableMessageError(f"{_capitalised(raw)} {reason}") from None
        replay_id = event["data"]["event"]["replayId"]
        event.refusal = UnreadableMessageError(f"A message of {len(raw.body)} bytes with replayId {replay_id} {reason}")
        return event
    if not isinstance(message, dict) or not isinstance(message.get("channel"), str):
        raise UnreadableMessageError(f"{_capitalised(raw)} names no channel.")
    data = raw.data() if "data" in message else None
    return message if data is None else EventMessage(message, data)


def default_loads(text: str) -> Any:
    """Parse JSON, with orjson where it is installed."""
    return json.loads(text) if orjson is None else orjson.loads(text)


def default_dumps(value: Any) -> str:
    """Serialise as JSON, with orjson where it is installed."""
    return json.dumps(value) if orjson is None else orjson.dumps(value).decode("utf-8")


def _event_by_parts(raw: RawMessage) -> EventMessage | None:
    """Return an event message with what places it in its stream; ``None`` if that cannot be read without doubt."""
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
    """Return the bytes of a JSON object as those of a message, ``None`` if it is none."""
    try:
        [found] = MessageSplitter().feed(body)
    except (TransportError, ValueError):
        return None
    return found if len(found.body) == len(body) else None


def _parsed(value: bytes) -> Any:
    """Return what a short piece of JSON says, ``None`` if that cannot be told."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _name(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("utf-8", "replace")
    try:
        return str(json.loads(quoted))
    except ValueError:  # in a message that no parser takes
        return quoted.decode("utf-8", "replace")


def _capitalised(raw: RawMessage) -> str:
    text = str(raw)
    return text[0].upper() + text[1:]
