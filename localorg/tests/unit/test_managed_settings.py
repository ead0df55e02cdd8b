"""The Metadata of a managed subscription, and queries of it."""

from __future__ import annotations

from typing import Any

import pytest

from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import ManagedSettings, check_full_name
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.rest.tooling_managed import SUBSCRIPTION, stored
from sfstream_localorg.rest.tooling_query import run

TOPIC = "/event/Order__e"
USER = "005000000000001AAA"


def settings(**metadata: Any) -> ManagedSettings:
    given = {"topicName": TOPIC, "state": "RUN", **metadata}
    return ManagedSettings.from_metadata(
        given, full_name="Orders", version="62.0", is_topic=lambda name: name in (TOPIC, "/event/Other__e")
    )


def record(number: int = 1, name: str = "Orders") -> ManagedRecord:
    return ManagedRecord(number, name, settings(label=f"label {number}"), None, 1_000.0, 2_000.5, 2_000.5)


def answered(soql: str, *records: ManagedRecord) -> dict[str, Any]:
    rows = [stored(one, USER) for one in records]
    return run(soql, [SUBSCRIPTION], {SUBSCRIPTION.entity.name: lambda: rows}, base="/services/data/v62.0")


def test_what_is_left_out_is_as_salesforce_has_it() -> None:
    assert settings(label="", defaultReplay=None).as_metadata() == {
        "label": "Orders",
        "topicName": TOPIC,
        "defaultReplay": "LATEST",
        "errorRecoveryReplay": "LATEST",
        "state": "RUN",
        "version": "62.0",
    }


def test_metadata_come_back_as_they_were_given() -> None:
    given = {"label": "L", "defaultReplay": "EARLIEST", "errorRecoveryReplay": "EARLIEST", "version": "66.0"}
    assert settings(**given).as_metadata() == {"topicName": TOPIC, "state": "RUN", **given}


def test_pause_is_refused_in_the_words_of_salesforce() -> None:
    with pytest.raises(ApiError, match=r"INVALID_INPUT: You can create a .* state field only to RUN or STOP"):
        settings(state="PAUSE")


def test_all_that_is_missing_is_named() -> None:
    with pytest.raises(ApiError, match=r"REQUIRED_FIELD_MISSING: .*\[topicName, state\]"):
        settings(topicName=None, state="")


def test_another_topic_is_no_change() -> None:
    settings().check_change(settings(state="STOP"))
    with pytest.raises(ApiError, match=r"INVALID_INPUT: .*topicName"):
        settings().check_change(settings(topicName="/event/Other__e"))


@pytest.mark.parametrize("name", ["A", "a1", "Order_Sync_2", "x" * 80])
def test_developer_names(name: str) -> None:
    assert check_full_name(name) == name


def test_every_column_of_a_record() -> None:
    row = SUBSCRIPTION.shown(stored(record(), USER), base="/services/data/v62.0")
    assert row["attributes"]["url"] == f"/services/data/v62.0/tooling/sobjects/ManagedEventSubscription/{record().id}"
    assert (row["Id"], row["FullName"], row["MasterLabel"]) == (record().id, "Orders", "label 1")
    assert row["Metadata"] == record().settings.as_metadata()
    assert (row["CreatedDate"], row["LastModifiedDate"], row["CreatedById"]) == (
        "1970-01-01T00:16:40.000+0000",
        "1970-01-01T00:33:20.500+0000",
        USER,
    )


def test_metadata_are_for_a_single_row() -> None:
    two = (record(1, "A"), record(2, "B"))
    with pytest.raises(ApiError, match=r"MALFORMED_QUERY: .*Result size: 2"):
        answered("SELECT Metadata FROM ManagedEventSubscription", *two)
    (row,) = answered("SELECT Metadata FROM ManagedEventSubscription WHERE DeveloperName = 'B'", *two)["records"]
    assert row["Metadata"]["label"] == "label 2"
    assert answered("SELECT Id FROM ManagedEventSubscription", *two)["size"] == 2


def test_an_api_version_without_the_object() -> None:
    assert not SUBSCRIPTION.is_in("59.0")
    with pytest.raises(ApiError, match="INVALID_TYPE"):
        run("SELECT Id FROM ManagedEventSubscription", [], {}, base="/services/data/v59.0")
