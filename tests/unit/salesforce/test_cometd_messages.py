"""Messages of a response body: equal for any chunks, with the raw bytes of their data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiosfstream.exceptions import TransportError
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.streaming.cometd import messages as cometd_messages
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import (
    EventMessage,
    MessageSplitter,
    RawMessage,
    UnreadableMessageError,
    default_dumps,
    default_loads,
    parse_message,
)
from tests.support.examples import for_examples

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = st.dictionaries(st.sampled_from(["data", "channel", "id", "ext", 'd"{', "\\", "é"]) | st.text(), values)
dumped = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 1]),
        "separators": st.sampled_from([(",", ":"), (" , ", " : ")]),
    }
)


def split(body: bytes, *sizes: int) -> list[RawMessage]:
    """Split a body that arrives in chunks of ``sizes``, followed by the rest."""
    splitter = MessageSplitter()
    found: list[RawMessage] = []
    for size in sizes:
        chunk, body = body[:size], body[size:]
        found += splitter.feed(chunk)
    found += splitter.feed(body)
    splitter.end()
    return found


def text_of(value: Any, form: dict[str, Any]) -> str:
    # A lone surrogate cannot be UTF-8; JSON carries it as an escape.
    form = {**form, "ensure_ascii": True} if "\\ud" in json.dumps(value) else form
    return json.dumps(value, **form)


@for_examples(
    few=20,
    many=100,
    messages=st.lists(members, max_size=5),
    form=dumped,
    sizes=st.lists(st.integers(0, 40), max_size=30),
)
def test_messages_do_not_depend_on_the_chunks(
    messages: list[dict[str, Any]], form: dict[str, Any], sizes: list[int]
) -> None:
    body = text_of(messages, form).encode()

    found = split(body, *sizes)

    assert [json.loads(raw.body) for raw in found] == messages
    assert all(raw.body in body for raw in found)
    assert found == split(body)


@for_examples(few=30, many=100, before=members, data=values, after=members, form=dumped)
def test_data_is_the_slice_as_received(
    before: dict[str, Any], data: Any, after: dict[str, Any], form: dict[str, Any]
) -> None:
    first, last = ({key: value for key, value in given.items() if key != "data"} for given in (before, after))
    sliced = text_of(data, form)
    body = f'{{ "first":{json.dumps(first)} , "data" :\t{sliced}\r\n,"last":{json.dumps(last)}}}'.encode()

    [raw] = split(body)

    assert raw.data() == sliced.encode()


def test_body_that_arrives_one_byte_at_a_time_is_split() -> None:
    body = '[ {"channel":"/topic/Ünïcode","data":{"a":"]}\\"[{\\\\","😀":[[],{}]}} ,\n{"id":"3"}]\n'.encode()

    found = split(body, *[1] * len(body))

    assert [raw.body for raw in found] == [body[2 : body.index(b" ,")], b'{"id":"3"}']
    assert found[0].data() == '{"a":"]}\\"[{\\\\","😀":[[],{}]}'.encode()


def test_single_message_without_an_array_is_accepted() -> None:
    assert [raw.body for raw in split(b' {"channel":"/meta/connect"} ', 5)] == [b'{"channel":"/meta/connect"}']


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"data":1}', "1"),
        ('{"data" : -1.5e3 }', "-1.5e3"),
        ('{"data":"a,}b"}', '"a,}b"'),
        ('{"data":null,"x":1}', "null"),
        ('{"x":{"data":1},"y":["data",{"data":2}],"z":"data"}', None),
        ('{"d\\u0061ta":{"a":1}}', '{"a":1}'),
        ('{"data":1,"data":{"last":true}}', '{"last":true}'),
        ("{}", None),
    ],
)
def test_data_may_be_any_value(text: str, data: str | None) -> None:
    [raw] = split(text.encode())

    assert raw.data() == (None if data is None else data.encode())


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"text"', b"[{}]x", b"{}{}", b"[[{}]]", b"nu", b"[{}]]"])
def test_body_that_is_no_array_of_messages_is_refused(body: bytes) -> None:
    with pytest.raises(TransportError):
        split(body)


@pytest.mark.parametrize("body", [b"", b" ", b"[", b"[{}", b'[{"a":1},', b'[{"a":"', b'{"a":[}', b'[{"a":"\\'])
def test_incomplete_body_is_refused(body: bytes) -> None:
    with pytest.raises(TransportError, match="response is incomplete"):
        split(body)


def test_complete_messages_of_an_incomplete_body_are_returned() -> None:
    splitter = MessageSplitter()

    assert [raw.body for raw in splitter.feed(b'[{"a":1},{"b":2},{"c"')] == [b'{"a":1}', b'{"b":2}']
    with pytest.raises(TransportError):
        splitter.end()


def test_only_the_incomplete_message_is_buffered() -> None:
    splitter = MessageSplitter()
    message = b'{"channel":"/topic/X","data":{"payload":"' + b"x" * 400 + b'"}},'

    for chunk in [b"[", *[message * 10 + message[:100], message[100:]] * 200]:
        list(splitter.feed(chunk))
        assert len(splitter._buffer) < len(message)


def test_no_byte_is_scanned_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'[{"channel":"/x","data":{"p":"' + b"y\\n" * 300_000 + b'"}}]'
    scanned = 0

    class Counting:
        def __init__(self, pattern: Any) -> None:
            self.pattern = pattern

        def match(self, text: bytes, position: int) -> Any:
            nonlocal scanned
            found = self.pattern.match(text, position)
            scanned += found.end() - position
            return found

    for name in ("_WITHIN_STRING", "_UP_TO_BRACKET"):
        monkeypatch.setattr(cometd_messages, name, Counting(getattr(cometd_messages, name)))

    [raw] = split(body, *[100] * (len(body) // 100))

    assert len(raw.body) == len(body) - 2
    assert scanned < 2 * len(body)


def test_message_over_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cometd_messages, "LARGEST_MESSAGE", 1000)
    splitter = MessageSplitter()
    list(splitter.feed(b'[{"a":"' + b"x" * 900))

    with pytest.raises(UnreadableMessageError, match="larger than 1000"):
        list(splitter.feed(b"x" * 200))


def test_an_event_message_is_a_dict_with_raw_data() -> None:
    [raw] = split(b'[{"channel":"/topic/X","data":{"event":{"replayId": 7},"n":1.10}}]')

    message = parse_message(raw, default_loads)

    assert isinstance(message, EventMessage)
    assert message == {"channel": "/topic/X", "data": {"event": {"replayId": 7}, "n": 1.1}}
    assert message.data == b'{"event":{"replayId": 7},"n":1.10}'


def test_reply_is_a_plain_dict() -> None:
    [raw] = split(b'[{"channel":"/meta/connect","successful":true}]')

    assert not isinstance(parse_message(raw, default_loads), EventMessage)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"channel":"/topic/X","data":{"event":{"replayId":42} "n":1}}', "replayId 42"),
        ('{"channel":"/topic/X","data":{"event":{"replayId":42},"n":NaN}"x"}', "replayId 42"),
        ('{"channel":"/topic/X","data":{"event":{"replayId":4e1},"n":NaN}}', "no replayId"),
        ('{"channel":"/topic/X","data":{"event":{"replayId":-1},"n":NaN}}', "replayId -1"),
        ('{"channel":"/topic/X","data":{"payload":{"replayId":42},"n":1e400}}', "replayId 42"),
        ('{"channel":"/topic/X","data":[{"event":{"replayId":42}},NaN]}', "replayId 42"),
        ('{"channel":"/meta/connect","data":{"event":{"replayId":42},"n":NaN}}', "replayId 42"),
        ('{"channel":"/\\ud8x","data":{"event":{"replayId":42},"n":NaN}}', "replayId 42"),
        ('{"channel":"/topic/X","data":{"SECRET":tru}}', "no replayId"),
        ('{"data":{}}', "has no channel"),
        ('{"channel":5}', "has no channel"),
    ],
)
def test_error_of_an_unreadable_message_has_its_replay_id_and_no_content(text: str, named: str) -> None:
    [raw] = split(text.encode())

    with pytest.raises(UnreadableMessageError, match=named) as unreadable:
        parse_message(raw, default_loads)

    assert "SECRET" not in str(unreadable.value)
    assert unreadable.value.__cause__ is None


UNREADABLE = {
    "not a number": b"NaN",
    "out of range": b"1e400",
    "half of a pair": b'"\\ud800"',
    "nested": b"[" * 5_000 + b"]" * 5_000,
    "no UTF-8": b'"\xff"',
}


def refuse(text: str) -> Any:
    raise RecursionError


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("first", [True, False])
def test_unparsable_event_keeps_its_replay_id_and_its_bytes(value: bytes, first: bool) -> None:
    payload = b'"payload":{"replayId":7,"n":%b}' % value
    rest = [b'"schema":"s-1"', b'"event":{"EventUuid":"e-1","replayId":\t42}']
    data = b"{%b}" % b" , ".join([payload, *rest] if first else [*rest, payload])
    [raw] = split(b'[{"data":%b,"channel":"/event/A__e"}]' % data, 30)

    message = parse_message(raw, refuse)

    assert isinstance(message, EventMessage)
    assert message == {
        "channel": "/event/A__e",
        "data": {"schema": "s-1", "event": {"EventUuid": "e-1", "replayId": 42}},
    }
    assert message.data == data
    assert "replayId 42" in str(message.refusal)


def test_unparsable_envelope_yields_the_replay_id_only() -> None:
    nested = b"[" * 200_000 + b"]" * 200_000  # Python 3.14 parses more than 50,000
    [raw] = split(b'[{"channel":"/u/a","data":{"event":{"replayId":42,"x":%b}}}]' % nested)

    message = parse_message(raw, default_loads)

    assert message["data"] == {"event": {"replayId": 42}, "schema": None}


def test_message_that_is_not_utf8_is_unreadable() -> None:
    [raw] = split(b'{"channel":"/topic/\xff"}')

    with pytest.raises(UnreadableMessageError):
        parse_message(raw, default_loads)


def test_custom_loader_receives_the_text_of_each_message() -> None:
    texts: list[str] = []

    def loads(text: str) -> Any:
        texts.append(text)
        return json.loads(text)

    for raw in split('[{"channel":"/é"},{"channel":"/b"}]'.encode()):
        parse_message(raw, loads)

    assert texts == ['{"channel":"/é"}', '{"channel":"/b"}']


@pytest.mark.parametrize("installed", [True, False])
def test_default_json_functions_work_with_and_without_orjson(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    if installed:
        pytest.importorskip("orjson")
    else:
        monkeypatch.setattr(cometd_messages, "orjson", None)

    assert default_loads(default_dumps([{"channel": "/é", "n": 1}])) == [{"channel": "/é", "n": 1}]
