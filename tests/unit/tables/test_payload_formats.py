from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.decode.self_described import own_format, table_of_topic
from airflow_provider_sfstream.tables.event_log.tables import check_table_name


@pytest.mark.parametrize(
    ("topic", "format_", "table"),
    [
        ("/topic/InvoiceUpdates", "push_topic", "InvoiceUpdates"),
        ("/topic/InvoiceUpdates?Status='Open'&Region='a/b'", "push_topic", "InvoiceUpdates"),
        ("/u/notifications/Orders", "generic", "u_notifications__Orders"),
        ("/u/Test_Streaming", "generic", "u_Test_Streaming"),
        ("/event/Order__e", "event", "Order__e"),
        ("/data/ChangeEvents", "event", "ChangeEvents"),
    ],
)
def test_topic_determines_payload_format_and_table(topic: str, format_: str, table: str) -> None:
    assert own_format(topic) == format_
    assert table_of_topic(topic) == table


def test_channels_never_share_a_table() -> None:
    channels = ["/u/a/b", "/u/a__b", "/u/a_/b", "/u/a/_b", "/u/a-b", "/u/a.b", "/u/\u00e9", "/u/\u00e8", "/u/1"]
    channels += ["/topic/u_a__b", "/topic/a", "/u/" + "x" * 250, "/u/" + "x" * 249, "/topic/" + "x" * 200, "/u/../x"]
    assert len({table_of_topic(channel) for channel in channels}) == len(channels)


@given(st.text(min_size=1, max_size=250), st.text(min_size=1, max_size=250), st.sampled_from(["/u/", "/topic/"]))
def test_every_table_is_safe_and_belongs_to_one_channel(one: str, other: str, prefix: str) -> None:
    tables = [check_table_name(table_of_topic(prefix + name)) for name in (one, other)]
    assert (tables[0] == tables[1]) == (one.partition("?")[0] == other.partition("?")[0])
