"""Hook of custom channels against a local org: reading, changing, and refusals that change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AlreadyExistsError,
    ConfigurationError,
    RequestRejectedError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.event_channel import EventChannelHook
from airflow_provider_sfstream.salesforce.rest.event_channels import ChannelMember
from tests.support.localorg import LocalOrg
from tests.support.rest_proxy import RestProxy
from tests.support.tasks import set_connection

ACCOUNT, CONTACT = "AccountChangeEvent", "ContactChangeEvent"


@pytest.fixture
def hook(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> EventChannelHook:
    set_connection(monkeypatch, "sf", **org.airflow_connection())
    return EventChannelHook("sf")


def member(org: LocalOrg, full_name: str, entity: str, channel: str) -> Any:
    body = {"FullName": full_name, "Metadata": {"eventChannel": channel, "selectedEntity": entity}}
    return org.rest("POST", "/tooling/sobjects/PlatformEventChannelMember", body)


def test_get_and_delete_use_the_channels_of_the_org(org: LocalOrg, hook: EventChannelHook) -> None:
    with pytest.raises(TopicNotFoundError, match=r"channel Sales__chn.*SalesforceEventChannelOperator"):
        hook.get("Sales__chn")
    org.channel("Sales__chn", [CONTACT, ACCOUNT])
    org.channel("Others__chn", [ACCOUNT])
    found = hook.get("Sales__chn")
    assert (found.topic, found.members) == ("/data/Sales__chn", (ChannelMember(ACCOUNT), ChannelMember(CONTACT)))
    assert hook.delete("Sales__chn", confirm_removal=True) == found
    assert hook.delete("Sales__chn", confirm_removal=True) is None
    assert hook.get("Others__chn").members == (ChannelMember(ACCOUNT),)


def test_members_of_all_pages_are_read(org: LocalOrg, hook: EventChannelHook, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [member(org, f"Paged_chn_{entity}", entity, "Paged__chn")["id"] for entity in _paged(org)]
    following = "/services/data/v62.0/tooling/query/01g000000000001-1"
    first: dict[str, Any] = {"size": 2, "totalSize": 2, "done": False, "records": [{"Id": ids[0]}]}
    with RestProxy.running(org.instance_url) as proxy:
        extra = {"access_token": org.token(), "instance_url": proxy.url, "organization_id": org.org_id}
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra={**extra, "version": "62.0"})
        with EventChannelHook("sf").get_conn() as client:
            proxy.answer("GET", "/tooling/query/", 200, first | {"nextRecordsUrl": following})
            proxy.answer("GET", following, 200, first | {"done": True, "records": [{"Id": ids[1]}]})
            assert [row.member.entity for row in client.members("Paged__chn")] == [ACCOUNT, CONTACT]
            for broken in ({}, {"nextRecordsUrl": None}, {"nextRecordsUrl": "https://elsewhere.example/"}):
                proxy.answer("GET", "/tooling/query/", 200, first | broken)
                with pytest.raises(RequestRejectedError, match="does not have the documented form"):
                    client.members("Paged__chn")
            proxy.answer("GET", "/tooling/query/", 200, first | {"nextRecordsUrl": following})
            proxy.answer("GET", following, 200, first | {"nextRecordsUrl": following})
            with pytest.raises(RequestRejectedError, match="does not have the documented form"):
                client.members("Paged__chn")


def _paged(org: LocalOrg) -> list[str]:
    """Create a channel without members; return the members to add."""
    body = {"FullName": "Paged__chn", "Metadata": {"channelType": "data", "label": "Paged"}}
    org.rest("POST", "/tooling/sobjects/PlatformEventChannel", body)
    return [ACCOUNT, CONTACT]


def test_members_are_identified_by_entity_and_not_by_name(org: LocalOrg, hook: EventChannelHook) -> None:
    hook.ensure("Known__chn", [CONTACT])
    member(org, "Named_by_somebody_else", ACCOUNT, "Known__chn")
    assert not hook.ensure("Known__chn", [ACCOUNT, CONTACT]).changed
    filters = {ACCOUNT: "Industry = 'Energy'"}
    changed = hook.ensure("Known__chn", [ACCOUNT, CONTACT], filters=filters, confirm_removal=True)
    assert changed.channel.members[0].filter == "Industry = 'Energy'"


def test_member_name_that_is_already_in_use_is_refused(org: LocalOrg, hook: EventChannelHook) -> None:
    hook.ensure("Taken__chn", [CONTACT])
    hook.ensure("Taking__chn", [CONTACT])
    member(org, "Taken_chn_AccountChangeEvent", ACCOUNT, "Taking__chn")
    with pytest.raises(AlreadyExistsError, match=f"member {ACCOUNT} of channel Taken__chn"):
        hook.ensure("Taken__chn", [CONTACT, ACCOUNT])


def test_a_deletion_has_to_be_confirmed(org: LocalOrg, hook: EventChannelHook) -> None:
    with pytest.raises(ConfigurationError, match=r"Deleting channel Sales__chn.*confirm_removal=True"):
        hook.delete("Sales__chn")
    assert not org.requests("http", "POST /services/oauth2/token")


def test_connection_test_checks_the_api_version(
    org: LocalOrg, hook: EventChannelHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok, message = hook.test_connection()
    assert ok, message
    set_connection(monkeypatch, "sf", **org.airflow_connection(version="55.0"))
    ok, message = EventChannelHook("sf").test_connection()
    assert (ok, "56.0 or above" in message) == (False, True), message
