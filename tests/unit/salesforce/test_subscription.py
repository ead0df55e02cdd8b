"""Decoding of Pub/Sub API responses into columns, and the first request of a subscription."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ProtocolError
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.pubsub.subscription import first_request, response_batch

EVENTS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.text(max_size=40), st.text(max_size=30), st.binary(max_size=300)),
    max_size=20,
)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def chunk(number: int, data: bytes) -> bytes:
    return tag(number, 2) + varint(len(data)) + data


@given(
    EVENTS,
    st.binary(max_size=12),
    st.integers(0, 100),
    st.sampled_from([b"", tag(99, 0) + varint(2**40), chunk(77, b"new")]),
)
def test_columns_equal_the_fields_on_the_wire(
    events: list[tuple[bytes, str, str, bytes]], latest: bytes, pending: int, unknown: bytes
) -> None:
    """The test writes the wire format itself, with unknown fields of a future version between the known ones."""
    wire = unknown
    for replay_id, event_id, schema_id, payload in events:
        event = chunk(1, event_id.encode()) + unknown + chunk(2, schema_id.encode()) + chunk(3, payload)
        wire += chunk(1, chunk(1, event + unknown) + unknown + chunk(2, replay_id))
    wire += chunk(2, latest) + chunk(3, b"rpc") + tag(4, 0) + varint(pending) + unknown

    batch = response_batch("/event/Order__e", messages.FetchResponse.FromString(wire), 7)
    assert batch.replay_ids == [event[0] for event in events]
    assert batch.event_ids == [event[1] or None for event in events]
    assert batch.schema_ids == [event[2] for event in events]
    assert batch.payloads == [event[3] for event in events]
    assert (batch.latest_replay_id, batch.pending, batch.received_at) == (latest, pending, 7)
    assert len(batch) == len(events)


def test_missing_fields_are_empty() -> None:
    batch = response_batch("/event/Order__e", messages.FetchResponse.FromString(chunk(1, chunk(2, b"8"))), 1)
    assert batch.replay_ids == [b"8"]
    assert batch.event_ids == [None]
    assert batch.payloads == [b""]


@pytest.mark.parametrize(
    "wire",
    [
        chunk(1, chunk(2, b"1")) + chunk(1, b""),
        chunk(1, chunk(2, b"1")) + chunk(1, chunk(2, b"2" * 65)),
        chunk(2, b"3" * 65),
    ],
    ids=["none", "65 bytes", "65 bytes for the end of the stream"],
)
def test_response_with_an_unusable_replay_id_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^/event/Order__e: .* The response was discarded") as raised:
        response_batch("/event/Order__e", messages.FetchResponse.FromString(wire), 1)
    assert not raised.value.retriable


@pytest.mark.parametrize(
    ("after", "preset", "replay_id"),
    [
        (StartFrom.EARLIEST, messages.EARLIEST, b""),
        (StartFrom.LATEST, messages.LATEST, b""),
        (b"\x00\x01\x00\x00", messages.CUSTOM, b"\x00\x01\x00\x00"),
    ],
)
def test_a_subscription_opens_with_its_start(after: bytes | StartFrom, preset: int, replay_id: bytes) -> None:
    request = first_request("/event/A__e", after)
    assert (request.topic_name, request.replay_preset, request.replay_id) == ("/event/A__e", preset, replay_id)
    assert request.auth_refresh == "", "auth_refresh is internal to Salesforce"
