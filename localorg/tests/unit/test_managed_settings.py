"""Metadata of managed subscriptions, and Tooling queries of them."""

from __future__ import annotations

from typing import Any

import pytest

from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import ManagedSettings, check_full_name
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.rest.tooling_managed import SUBSCRIPTION, stored_record
from sfstream_localorg.rest.tooling_query import answer_query

TOPIC = "/event/Order__e"
USER = "005000000000001AAA"


def settings(**metadata: Any) -> ManagedSettings:
    given = {"topicName": TOPIC, "state": "RUN", **metadata}
    return ManagedSettings.from_metadata(
        given, full_name="Orders", version="62.0", is_topic=lambda name: name in (TOPIC, "/event/Other__e")
    )


def record(number: int = 1, name: str = "Orders") -> ManagedRecord:
    return ManagedRecord(number, name, settings(label=f"label {number}"), None, 1_000.0, 2_000.5, 2_000.5)


def run_query(soql: str, *records: ManagedRecord) -> dict[str, Any]:
    rows = [stored_record(one, USER) for one in records]
    return answer_query(soql, [SUBSCRIPTION], {SUBSCRIPTION.entity.name: lambda: rows}, base="/services/data/v62.0")


def test_missing_elements_of_metadata_have_the_defaults_of_salesforce() -> None:
    assert settings(label="", defaultReplay=None).as_metadata() == {
        "label": "Orders",
        "topicName": TOPIC,
        "defaultReplay": "LATEST",
        "errorRecoveryReplay": "LATEST",
        "state": "RUN",
        "version": "62.0",
    }


def test_metadata_of_managed_settings_equal_the_input() -> None:
    given = {"label": "L", "defaultReplay": "EARLIEST", "errorRecoveryReplay": "EARLIEST", "version": "66.0"}
    assert settings(**given).as_metadata() == {"topicName": TOPIC, "state": "RUN", **given}


def test_state_pause_is_refused_with_the_text_of_salesforce() -> None:
    with pytest.raises(ApiError, match=r"INVALID_INPUT: You can create a .* state field only to RUN or STOP"):
        settings(state="PAUSE")


def test_error_names_all_missing_elements_of_metadata() -> None:
    with pytest.raises(ApiError, match=r"REQUIRED_FIELD_MISSING: .*\[topicName, state\]"):
        settings(topicName=None, state="")


def test_change_to_another_topic_is_refused() -> None:
    settings().check_change(settings(state="STOP"))
    with pytest.raises(ApiError, match=r"INVALID_INPUT: .*topicName"):
        settings().check_change(settings(topicName="/event/Other__e"))


@pytest.mark.parametrize("name", ["A", "a1", "Order_Sync_2", "x" * 80])
def test_valid_developer_names_are_accepted(name: str) -> None:
    assert check_full_name(name) == name


def test_columns_of_a_managed_record() -> None:
    row = SUBSCRIPTION.shown(stored_record(record(), USER), base="/services/data/v62.0")
    assert row["attributes"]["url"] == f"/services/data/v62.0/tooling/sobjects/ManagedEventSubscription/{record().id}"
    assert (row["Id"], row["FullName"], row["MasterLabel"]) == (record().id, "Orders", "label 1")
    assert row["Metadata"] == record().settings.as_metadata()
    assert (row["CreatedDate"], row["LastModifiedDate"], row["CreatedById"]) == (
        "1970-01-01T00:16:40.000+0000",
        "1970-01-01T00:33:20.500+0000",
        USER,
    )


def test_query_of_metadata_requires_a_single_row() -> None:
    two = (record(1, "A"), record(2, "B"))
    with pytest.raises(ApiError, match=r"MALFORMED_QUERY: .*Result size: 2"):
        run_query("SELECT Metadata FROM ManagedEventSubscription", *two)
    (row,) = run_query("SELECT Metadata FROM ManagedEventSubscription WHERE DeveloperName = 'B'", *two)["records"]
    assert row["Metadata"]["label"] == "label 2"
    assert run_query("SELECT Id FROM ManagedEventSubscription", *two)["size"] == 2


def test_api_version_without_managed_subscriptions_refuses_the_query() -> None:
    assert not SUBSCRIPTION.is_in("59.0")
    with pytest.raises(ApiError, match="INVALID_TYPE"):
        answer_query("SELECT Id FROM ManagedEventSubscription", [], {}, base="/services/data/v59.0")
