"""Assets with ``sfstream://`` URIs: the URI handler, the factory and the dataset converter that Airflow discovers."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk import Asset
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.assets.sfstream import create_asset, sanitize_uri
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from tests.support.airflow_names import lineage

ORDERS = "sfstream://salesforce_default/event/Order__e"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (ORDERS, ORDERS),
        ("SFStream://salesforce_default/event/Order__e/", ORDERS),
        (f"{ORDERS}?min_interval=5.0&min_events=1", ORDERS),
        (f"{ORDERS}?min_events=2&max_wait=60.0", f"{ORDERS}?max_wait=60&min_events=2"),
        (f"{ORDERS}?subscription=a+b", f"{ORDERS}?subscription=a%20b"),
        ("sfstream://eu%3aprod/event/Order__e", "sfstream://eu%3Aprod/event/Order__e"),
    ],
)
def test_different_spellings_of_a_uri_are_one_asset(written: str, kept: str) -> None:
    asset = Asset("orders", uri=written)
    assert asset.uri == kept
    assert asset.normalized_uri == kept


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sfstream://salesforce_default:443/event/Order__e", "must not contain a port"),
        ("sfstream:///event/Order__e", "no connection"),
        ("sfstream://salesforce_default/events/Order__e", "is not a topic name"),
        (f"{ORDERS}?min_event=2", "key 'min_event' is not supported"),
        (f"{ORDERS}?min_events=2&min_events=3", "contains min_events twice"),
    ],
)
def test_invalid_uri_raises_a_value_error(uri: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Asset(uri)


def test_uri_with_a_user_name_is_refused() -> None:
    """The test calls the handler directly, because Airflow 3.1.1 removes the user name before it calls the handler."""
    with pytest.raises(ValueError, match="must not contain a user name or password"):
        sanitize_uri(urlsplit("sfstream://me@salesforce_default/event/Order__e"))


TEXTS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=40).filter(lambda text: text.strip())


@given(TEXTS, TEXTS)
def test_airflow_does_not_change_a_canonical_uri(connection: str, subscription: str) -> None:
    uri = str(StreamUri(connection, "/u/a//b/", subscription))
    assert Asset("landed", uri=uri).uri == uri


def test_factory_creates_the_asset_that_a_drain_emits() -> None:
    asset = create_asset(salesforce_conn_id="c", topic="/event/Order__e", subscription="on_event", extra={"rows": 3})
    assert asset == Asset("sfstream://c/event/Order__e?subscription=on_event", extra={"rows": 3})
    assert create_asset(salesforce_conn_id="c", topic="/event/Order__e").uri == "sfstream://c/event/Order__e"
    with pytest.raises(ConfigurationError, match="is not a topic name"):
        create_asset(salesforce_conn_id="c", topic="Order__e")


def test_lineage_finds_the_factory_by_the_scheme() -> None:
    collector = lineage.HookLineageCollector()
    hook = object()
    collector.add_input_asset(
        hook, scheme="sfstream", asset_kwargs={"salesforce_conn_id": "c", "topic": "/event/Order__e"}
    )
    assert [each.asset.uri for each in collector.collected_assets.inputs] == ["sfstream://c/event/Order__e"]


@pytest.mark.parametrize("query", ["", "?min_events=5", "?subscription=airflow"])
def test_airflow_converts_the_asset_into_a_dataset(query: str) -> None:
    """Airflow converts outlets, inlets and the assets of hooks. The conditions of a watch do not change the dataset."""
    dataset = translate_airflow_asset(Asset("orders", uri=f"{ORDERS}{query}"), None)
    assert dataset is not None
    kept = "" if "min_events" in query else query
    assert (dataset.namespace, dataset.name) == ("sfstream://salesforce_default", f"/event/Order__e{kept}")
