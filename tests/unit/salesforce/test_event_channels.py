"""Declared channels and members, and declarations that Salesforce cannot store."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.rest.event_channels import (
    ChannelMember,
    channel_name,
    member_name,
    members_of,
    topic_of,
    type_of,
)

ACCOUNT, CONTACT = "AccountChangeEvent", "ContactChangeEvent"


def test_members_are_read_from_the_declaration() -> None:
    members = members_of([CONTACT, ACCOUNT], {ACCOUNT: " Industry = 'Energy' "}, {ACCOUNT: ["Phone", "Fax"]})
    assert members == (ChannelMember(CONTACT), ChannelMember(ACCOUNT, "Industry = 'Energy'", ("Phone", "Fax")))
    assert [str(member) for member in members] == [CONTACT, f"{ACCOUNT} where Industry = 'Energy' with Phone, Fax"]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (ChannelMember(ACCOUNT, "x", ("fax", "Phone")), True),
        (ChannelMember(ACCOUNT, "y", ("Phone", "Fax")), False),
        (ChannelMember(ACCOUNT, "x", ("Phone",)), False),
        (ChannelMember(CONTACT, "x", ("Phone", "Fax")), False),
    ],
)
def test_the_order_of_enriched_fields_makes_no_difference(other: ChannelMember, same: bool) -> None:
    assert ChannelMember(ACCOUNT, "x", ("Phone", "Fax")).equals(other) is same


@pytest.mark.parametrize(
    ("members", "more", "named"),
    [
        ([], {}, "at least one"),
        (ACCOUNT, {}, "list of names"),
        ({ACCOUNT: 1}, {}, "list of names"),
        ([1], {}, "list of names"),
        (["/data/AccountChangeEvent"], {}, "not a selected entity"),
        (["Sales__chn"], {}, "not a selected entity"),
        (["Shipment__c"], {}, "not a selected entity"),
        ([ACCOUNT, "Order__e"], {}, "never both"),
        ([ACCOUNT, ACCOUNT], {}, "twice"),
        ([ACCOUNT], {"filters": {CONTACT: "x = 1"}}, "'ContactChangeEvent', which is not a member"),
        ([ACCOUNT], {"enriched_fields": {CONTACT: ["Fax"]}}, "'ContactChangeEvent', which is not a member"),
        ([ACCOUNT], {"filters": [ACCOUNT]}, "filters must be a dict"),
        ([ACCOUNT], {"filters": {ACCOUNT: " "}}, "must be an expression"),
        ([ACCOUNT], {"filters": {ACCOUNT: 1}}, "must be an expression"),
        ([ACCOUNT], {"enriched_fields": {ACCOUNT: "Fax"}}, "list of names"),
        ([ACCOUNT], {"enriched_fields": {ACCOUNT: ["Fax", "fax"]}}, "twice"),
        ([ACCOUNT], {"enriched_fields": {ACCOUNT: ["Owner.Name"]}}, "name of a field"),
        (["Order__e"], {"enriched_fields": {"Order__e": ["City__c"]}}, "already contains all its fields"),
    ],
)
def test_invalid_members_are_refused(members: Any, more: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{re.escape(named)}(.|\n)*Nothing was contacted"):
        members_of(members, **more)


@pytest.mark.parametrize("name", ["Sales__chn", "A__chn", "Order_Events_2__chn", "x" * 80 + "__chn"])
def test_valid_channel_names_are_accepted(name: str) -> None:
    assert channel_name(name) == name


@pytest.mark.parametrize(
    "name", ["Sales", "/data/Sales__chn", "Sales_chn", "_S__chn", "S___chn", "A__B__chn", "x" * 81 + "__chn", "", None]
)
def test_invalid_channel_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"example: Sales__chn.*Nothing was contacted"):
        channel_name(name)


def test_the_standard_channel_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"standard channel.*Setup.*custom channel"):
        channel_name("ChangeEvents")


def test_type_and_topic_of_a_channel() -> None:
    kinds = {name: type_of(name) for name in (ACCOUNT, "Shipment__ChangeEvent", "Order__e", "LoginEventStream")}
    assert list(kinds.values()) == ["data", "data", "event", "event"]
    assert topic_of("Sales__chn", "data") == "/data/Sales__chn"


def test_names_of_members() -> None:
    assert member_name("Sales__chn", ACCOUNT) == "Sales_chn_AccountChangeEvent"
    assert member_name("Sales__chn", "Order_Event__e") == "Sales_chn_Order_Event_e"
    long = [member_name("x" * 80 + "__chn", entity) for entity in (ACCOUNT, CONTACT)]
    assert long[0] != long[1]
    assert all(len(name) <= 80 and re.fullmatch(r"[A-Za-z](?:_?[A-Za-z0-9])*", name) for name in long)
