"""Custom channel operator against a local org: life cycle of a channel, repeated tries and delivered events."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.hooks.event_channel import EventChannelHook
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_channel import SalesforceEventChannelOperator
from tests.support.localorg import LocalOrg
from tests.support.rest_proxy import RestProxy
from tests.support.sobject_client import SObjectClient
from tests.support.tasks import context_for, error_text, set_connection

ACCOUNT, CONTACT = "AccountChangeEvent", "ContactChangeEvent"
OBJECTS = "/tooling/sobjects/PlatformEventChannel"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.define("Order__e", City__c="string", Number__c="double")
        org.define("Invoice__e", Number__c="double")
        yield org


@pytest.fixture
def org(running_org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    set_connection(monkeypatch, "salesforce_default", **running_org.airflow_connection())
    running_org.admin("DELETE", "/requests")
    yield running_org
    running_org.clear_faults()
    running_org.reset_knobs()


@pytest.fixture
def name() -> str:
    return f"Sales{next(_numbers)}__chn"


def run(channel: str, *members: str, **arguments: Any) -> dict[str, Any]:
    """Run a task as Airflow does, including its templates and the serialisation of its result."""
    operator = SalesforceEventChannelOperator(task_id="it", channel=channel, members=members, **arguments)
    context = {**context_for("it"), "params": {"industry": "Energy"}}
    operator.render_template_fields(context)
    result = operator.execute(context)
    assert json.loads(json.dumps(result)) == result
    return dict(result)


def shown(channel: str) -> dict[str, Any]:
    """Return filter and enriched fields of each member as stored in the org."""
    found = EventChannelHook("salesforce_default").get(channel)
    return {member.entity: (member.filter, list(member.enriched_fields)) for member in found.members}


def writes(org: LocalOrg) -> list[str]:
    return [
        each["method"].split(OBJECTS)[0].split()[0] + each["method"].split(OBJECTS)[1].split("/")[0]
        for each in org.requests("http")
        if OBJECTS in each["method"] and not each["method"].startswith("GET")
    ]


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the log lines of the task since the previous call."""
    out, err = capsys.readouterr()
    return (out + err).splitlines()


def drain(tmp_path: Path, topic: str, **arguments: Any) -> list[dict[str, Any]]:
    """Land the new events of a topic; return the landed rows, decoded."""
    operator = DrainReplayWindowOperator(
        **{
            "task_id": "drain",
            "topic": topic,
            "landing_url": str(tmp_path / "landing"),
            "replay_store": "landing",
            "idle_timeout": 5.0,
            **arguments,
        }
    )
    result = operator.execute(context_for("drain", run_id=f"run-{next(_numbers)}"))
    schemas = {path.stem: fastavro.parse_schema(json.loads(path.read_text())) for path in tmp_path.rglob("*.avsc")}
    parts = sorted(Path(result["manifest_url"].removeprefix("file://")).parent.glob("*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    for row in rows:
        row["record"] = fastavro.schemaless_reader(io.BytesIO(row["payload"]), schemas[row["schema_id"]], None)
    return rows


def test_a_channel_is_created_changed_and_deleted(org: LocalOrg, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    filters, enriched = {ACCOUNT: "Industry = '{{ params.industry }}'"}, {ACCOUNT: ["Phone", "Website"]}
    declared: dict[str, Any] = {"filters": filters, "enriched_fields": enriched}
    created = run(name, ACCOUNT, CONTACT, **declared)
    assert created == {
        "channel": name,
        "topic": f"/data/{name}",
        "label": name.removesuffix("__chn"),
        "members": [
            {"entity": ACCOUNT, "filter": "Industry = 'Energy'", "enriched_fields": ["Phone", "Website"]},
            {"entity": CONTACT, "filter": None, "enriched_fields": []},
        ],
        "state": "present",
        "changed": True,
    }
    assert shown(name) == {ACCOUNT: ("Industry = 'Energy'", ["Phone", "Website"]), CONTACT: (None, [])}
    before = writes(org)
    again = run(name, CONTACT, ACCOUNT, **{**declared, "enriched_fields": {ACCOUNT: ["Website", "Phone"]}})
    assert again == {**created, "changed": False}
    assert writes(org) == before

    narrower: dict[str, Any] = {"filters": {CONTACT: "Phone != null"}, "channel_label": "Of sales"}
    with pytest.raises(AirflowFailException, match=rf"(?s)Changing the filter of {CONTACT}.*confirm_removal=True"):
        run(name, ACCOUNT, CONTACT, **narrower)
    assert writes(org) == before
    changed = run(name, ACCOUNT, CONTACT, **narrower, confirm_removal=True)
    assert shown(name) == {ACCOUNT: (None, []), CONTACT: ("Phone != null", [])}
    assert (changed["label"], changed["changed"]) == ("Of sales", True)
    assert writes(org)[len(before) :] == ["PATCH", "PATCHMember", "PATCHMember"]
    last_line = logged(capsys)[-1]
    assert f"{ACCOUNT} filter \"Industry = 'Energy'\" -> None" in last_line
    assert f"{ACCOUNT} enriched fields ['Phone', 'Website'] -> []" in last_line
    assert f"{CONTACT} filter None -> 'Phone != null'" in last_line
    assert "-> 'Of sales'" in last_line

    gone = run(name, state="absent", confirm_removal=True)
    assert (gone["changed"], [one["entity"] for one in gone["members"]]) == (True, [ACCOUNT, CONTACT])
    assert name not in json.dumps(org.admin("GET", "/topics"))
    assert run(name, state="absent", confirm_removal=True)["changed"] is False


def test_a_removal_without_confirm_removal_changes_nothing(
    org: LocalOrg, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, ACCOUNT, CONTACT, filters={ACCOUNT: "Industry = 'Energy'"})
    before = writes(org)
    refused = rf"(?s)Removing {CONTACT} from channel {name}.*confirm_removal=True"
    with pytest.raises(AirflowFailException, match=refused):
        run(name, ACCOUNT, "OpportunityChangeEvent", filters={ACCOUNT: "Industry = 'Energy'"})
    assert writes(org) == before
    run(name, ACCOUNT, confirm_removal=True)
    assert shown(name) == {ACCOUNT: (None, [])}
    (warned,) = [line for line in logged(capsys) if "Removed" in line]
    assert "warning" in warned
    assert f"member {CONTACT} of channel {name}" in warned
    assert f"no longer delivered on /data/{name}" in warned


def test_an_existing_channel_of_another_type_is_refused(org: LocalOrg, name: str) -> None:
    run(name, ACCOUNT)
    before = writes(org)
    with pytest.raises(AirflowFailException, match="for change events, but the requested members are platform events"):
        run(name, "Order__e", confirm_removal=True)
    assert writes(org) == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"filters": {ACCOUNT: "Nothing__c = 'x'"}},
        {"filters": {ACCOUNT: "Industry == 'x'"}},
        {"enriched_fields": {ACCOUNT: ["Nothing__c"]}},
    ],
)
def test_settings_that_salesforce_rejects_fail_without_retry(
    org: LocalOrg, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException) as caught:
        run(name, ACCOUNT, **arguments)
    assert "INVALID_INPUT" in error_text(caught.value)
    assert run(name, ACCOUNT)["changed"] is True


@pytest.mark.parametrize(
    ("method", "declared", "differs"),
    [
        ("PATCH", {"filters": {ACCOUNT: "Industry = 'Energy'"}}, f"{ACCOUNT} instead of {ACCOUNT} where Industry ="),
        ("PATCH", {"enriched_fields": {ACCOUNT: ["Name"]}}, f"{ACCOUNT} instead of {ACCOUNT} with Name"),
        ("POST", {"members": [ACCOUNT, CONTACT]}, f"no member instead of {CONTACT}"),
        ("DELETE", {"members": [ACCOUNT]}, "OpportunityChangeEvent instead of no member"),
    ],
)
def test_members_that_salesforce_did_not_store_fail_the_task(
    org: LocalOrg, name: str, monkeypatch: pytest.MonkeyPatch, method: str, declared: dict[str, Any], differs: str
) -> None:
    members = [ACCOUNT, "OpportunityChangeEvent"]
    run(name, *members)
    arguments: dict[str, Any] = {"members": members, "confirm_removal": True, **declared}
    with RestProxy.running(org.instance_url) as proxy:
        extra = {"access_token": org.token(), "instance_url": proxy.url}
        set_connection(monkeypatch, "salesforce_default", conn_type="salesforce", extra=extra)
        proxy.answer(method, f"{OBJECTS}Member", 200, {})
        with pytest.raises(AirflowFailException, match=rf"(?s)channel {name}: .*stored {differs}.*run the task again"):
            run(name, *arguments.pop("members"), **arguments)


@pytest.mark.parametrize("forwards", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", f"{OBJECTS}Member"), ("PATCH", OBJECTS), ("DELETE", OBJECTS), ("POST", OBJECTS)]
)
def test_the_next_try_completes_a_partly_applied_channel(
    org: LocalOrg, name: str, monkeypatch: pytest.MonkeyPatch, method: str, path: str, forwards: bool
) -> None:
    declared: dict[str, Any] = {"filters": {ACCOUNT: "Industry = 'Energy'"}, "confirm_removal": True}
    if method != "POST" or path != OBJECTS:
        run(name, ACCOUNT, "OpportunityChangeEvent")
    with RestProxy.running(org.instance_url) as proxy:
        extra = {"access_token": org.token(), "instance_url": proxy.url}
        set_connection(monkeypatch, "salesforce_default", conn_type="salesforce", extra=extra)
        proxy.answer(method, path, 503, [{"errorCode": "SERVER_UNAVAILABLE", "message": "later"}], forwards=forwards)
        with pytest.raises(ServiceUnavailableError):
            run(name, ACCOUNT, CONTACT, **declared)
        result = run(name, ACCOUNT, CONTACT, **declared)
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    assert shown(name) == {ACCOUNT: ("Industry = 'Energy'", []), CONTACT: (None, [])}
    assert run(name, ACCOUNT, CONTACT, **declared) == {**result, "changed": False}


def test_a_drain_lands_exactly_the_events_that_match_the_filters(org: LocalOrg, name: str, tmp_path: Path) -> None:
    topic = run(name, "Order__e", "Invoice__e", filters={"Order__e": "City__c LIKE 'o%' AND Number__c >= 20"})["topic"]
    for n in range(60):
        org.publish("/event/Order__e", [{"City__c": ("Oslo", "Bergen", "oppegård")[n % 3], "Number__c": float(n)}])
        org.publish("/event/Invoice__e", [{"Number__c": float(n)}])
    on_the_bus = org.record("/event/Order__e") + org.record("/event/Invoice__e")
    expected = [
        (event["replay_id"], event["payload"])
        for event in sorted(on_the_bus, key=lambda event: event["replay_id"])
        if "City__c" not in event["fields"]
        or (event["fields"]["City__c"][0] in "Oo" and event["fields"]["Number__c"] >= 20)
    ]
    delivered = org.admin("GET", "/org")["delivered"]
    rows = drain(tmp_path, topic)
    assert [(row["replay_id"], row["payload"]) for row in rows] == expected
    assert len(expected) == 87
    assert org.admin("GET", "/org")["delivered"] - delivered == len(expected)


def test_enriched_changes_are_drained(org: LocalOrg, name: str, tmp_path: Path) -> None:
    topic = run(name, ACCOUNT, filters={ACCOUNT: "Industry = 'Energy'"}, enriched_fields={ACCOUNT: ["Website"]})[
        "topic"
    ]
    client = SObjectClient(org)
    ids = [
        client.create("Account", Name=f"A{n}", Website=f"w{n}", Industry=("Energy", "Media")[n % 2]) for n in range(4)
    ]
    for record_id in ids:
        client.update("Account", record_id, Phone="1")
    client.delete("Account", ids[0])
    client.close()
    rows = [row["record"] for row in drain(tmp_path, topic)]
    seen = [(row["ChangeEventHeader"]["changeType"], *row["ChangeEventHeader"]["recordIds"]) for row in rows]
    passing = [ids[0], ids[2]]
    assert seen == [
        *(("CREATE", one) for one in passing),
        *(("UPDATE", one) for one in passing),
        ("DELETE", ids[0]),
    ]
    assert [(row["Industry"], row["Website"], row["Phone"]) for row in rows[2:]] == [
        ("Energy", "w0", "1"),
        ("Energy", "w2", "1"),
        ("Energy", "w0", None),
    ]


@pytest.mark.parametrize("limits", [{}, {"max_events": 1}, {"max_bytes": 1}], ids=["none", "max_events", "max_bytes"])
def test_events_that_share_a_replay_id_are_in_one_window(
    org: LocalOrg, name: str, tmp_path: Path, limits: dict[str, int]
) -> None:
    """Salesforce splits an enriched change of several records into events with one replay ID.

    A subscription that continues after that replay ID receives none of them.
    """
    topic = run(name, ACCOUNT, enriched_fields={ACCOUNT: ["Website"]})["topic"]
    client = SObjectClient(org)
    ids = [client.create("Account", Name=f"A{n}", Website=f"w{n}") for n in range(3)]
    for phone in ("1", "2"):
        records = [{"attributes": {"type": "Account"}, "id": one, "Phone": phone} for one in ids]
        assert client.call("PATCH", "/composite/sobjects", {"records": records}).status_code == 200
    client.close()
    windows: list[list[tuple[str, str | None, str | None]]] = []
    while rows := drain(tmp_path, topic, **limits):
        records = [row["record"] for row in rows]
        windows.append([(one["ChangeEventHeader"]["recordIds"][0], one["Phone"], one["Website"]) for one in records])
    assert [row for window in windows for row in window] == [
        (one, phone, f"w{n}") for phone in (None, "1", "2") for n, one in enumerate(ids)
    ]
    assert [len(window) for window in windows] == ([1, 1, 1, 3, 3] if limits else [9])
