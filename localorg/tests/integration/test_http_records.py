"""Writes of sObjects over REST, and the resulting change events, received over gRPC and decoded with fastavro."""

from __future__ import annotations

import contextlib
import io
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import AdminError, LocalOrg, wait_until
from tests.support.sobject_client import SObjectClient, error_of, names, not_null


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


class Feed:
    """Pub/Sub subscription to the later events of a topic, which decodes each event with its schema."""

    def __init__(self, org: LocalOrg, topic: str) -> None:
        self._org = org
        self._stub = org.stub()
        self._metadata = org.metadata()
        self._requests: queue.Queue[pb.FetchRequest | None] = queue.Queue()
        recorded = org.record(topic)
        start = {"replay_preset": pb.EARLIEST}
        if recorded:
            start = {"replay_preset": pb.CUSTOM, "replay_id": recorded[-1]["replay_id"]}
        self._requests.put(pb.FetchRequest(topic_name=topic, num_requested=100, **start))
        self._call = self._stub.Subscribe(iter(self._requests.get, None), metadata=self._metadata)

    def take(self, count: int) -> list[dict[str, Any]]:
        """Return the next events with their fields, replay ID, event id and schema."""
        taken: list[dict[str, Any]] = []
        while len(taken) < count:
            taken += [self._decoded(event) for event in next(self._call).events]
        assert len(taken) == count
        return taken

    def _decoded(self, event: pb.ConsumerEvent) -> dict[str, Any]:
        answer = self._stub.GetSchema(pb.SchemaRequest(schema_id=event.event.schema_id), metadata=self._metadata)
        schema = json.loads(answer.schema_json)
        decoded = fastavro.schemaless_reader(io.BytesIO(event.event.payload), fastavro.parse_schema(schema), None)
        assert isinstance(decoded, dict)
        return decoded | {"_schema": schema, "_event_id": event.event.id, "_replay_id": event.replay_id}

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()


@pytest.fixture
def feed(org: LocalOrg) -> Iterator[Any]:
    feeds: list[Feed] = []

    def start(topic: str) -> Feed:
        feeds.append(Feed(org, topic))
        return feeds[-1]

    yield start
    for one in feeds:
        one.close()


def header(event: dict[str, Any]) -> dict[str, Any]:
    return dict(event["ChangeEventHeader"])


def changed(event: dict[str, Any]) -> set[str]:
    return set(names(event, "changedFields", event["_schema"]))


def nulled(event: dict[str, Any]) -> set[str]:
    return set(names(event, "nulledFields", event["_schema"]))


def body(event: dict[str, Any]) -> dict[str, Any]:
    return not_null({name: value for name, value in event.items() if not name.startswith("_")})


def test_created_updated_deleted_and_undeleted_record_has_change_events(client: SObjectClient, feed: Any) -> None:
    events = feed("/data/AccountChangeEvent")
    account = client.create("Account", Name="Acme", BillingCity="Graz", BillingStreet="Ring 1", AnnualRevenue=12.5)
    client.update("Account", account, Name="Acme Ltd", BillingCity=None, Phone="0316", Some_Date__c="2026-02-28")
    client.delete("Account", account)
    client.undelete("Account", account)
    create, update, delete, undelete = events.take(4)

    assert header(create)["changeType"] == "CREATE"
    assert header(create)["recordIds"] == [account]
    assert header(create)["entityName"] == "Account"
    assert header(create)["changeOrigin"] == "com/salesforce/api/rest/59.0"
    assert changed(create) == nulled(create) == set()
    assert create["Name"] == "Acme"  # the text branch of a switchable name
    full = body(create)
    assert full["BillingAddress.City"] == "Graz"
    assert full["AnnualRevenue"] == 12.5
    assert full["CreatedDate"] == full["LastModifiedDate"]
    assert full["CreatedDate"] % 1000 == 0
    assert full["CreatedById"] == full["OwnerId"] == header(create)["commitUser"]

    assert changed(update) == {"Name", "BillingAddress.City", "Phone", "Some_Date__c", "LastModifiedDate"}
    assert nulled(update) == {"BillingAddress.City"}
    assert set(body(update)) == changed(update) - nulled(update)
    assert update["Some_Date__c"] == 1_772_236_800_000
    assert header(update)["changedFields"][0] == header(update)["changedFields"][0].upper().replace("0X", "0x")

    assert header(delete)["changeType"] == "DELETE"
    assert body(delete) == {}
    assert header(undelete)["changeType"] == "UNDELETE"
    assert body(undelete)["Name"] == "Acme Ltd"
    assert "BillingAddress.City" not in body(undelete)

    headers = [header(event) for event in (create, update, delete, undelete)]
    assert len({h["transactionKey"] for h in headers}) == 4
    assert {h["sequenceNumber"] for h in headers} == {1}
    assert sorted(h["commitNumber"] for h in headers) == [h["commitNumber"] for h in headers]
    assert min(h["commitNumber"] for h in headers) > 2**53
    assert {event["_event_id"] for event in (create, update, delete, undelete)} == {""}


def test_bitmaps_select_exactly_the_changed_fields(client: SObjectClient, feed: Any) -> None:
    events = feed("/data/ContactChangeEvent")
    contact = client.create("Contact", FirstName="Ann", LastName="Lee", MailingCity="Wien", DoNotCall=True)
    client.update("Contact", contact, FirstName=None, LastName="Lee", DoNotCall=True, MailingCity="Wien", Title="Dr")
    client.update("Contact", contact, MailingLatitude=48.2, MailingLongitude=16.4)
    client.update("Contact", contact, Title="Dr")  # no change, so no event
    client.update("Contact", contact, MailingCity="")  # empty text is null
    first, name, place, city = events.take(4)
    assert first["Name"] == {"Salutation": None, "FirstName": "Ann", "LastName": "Lee"}
    assert (changed(name), nulled(name)) == ({"Name.FirstName", "Title", "LastModifiedDate"}, {"Name.FirstName"})
    assert changed(place) == {"MailingAddress.Latitude", "MailingAddress.Longitude", "LastModifiedDate"}
    assert nulled(place) == set()
    assert (changed(city), nulled(city)) == ({"MailingAddress.City", "LastModifiedDate"}, {"MailingAddress.City"})
    assert header(city)["nulledFields"] == ["5-0x02"]  # only a part changed: no entry for top-level fields


def test_name_of_a_person_account_is_a_record_in_change_events(client: SObjectClient, feed: Any) -> None:
    events = feed("/data/AccountChangeEvent")
    account = client.create("Account", FirstName="Ann", LastName="Lee")
    client.update("Account", account, FirstName="Anna")
    create, update = events.take(2)
    assert create["Name"] == {"Salutation": None, "FirstName": "Ann", "LastName": "Lee"}
    assert changed(update) == {"Name.FirstName", "LastModifiedDate"}
    business = client.create("Account", Name="Acme")
    for record_id, name in ((business, "FirstName"), (account, "Name")):
        refused = client.call("PATCH", f"/sobjects/Account/{record_id}", {name: "x"})
        assert error_of(refused) == (400, "INVALID_FIELD_FOR_INSERT_UPDATE")
    (record,) = client.query(f"SELECT Name, FirstName FROM Account WHERE Id = '{account}'")
    assert (record["Name"], record["FirstName"]) == ("Anna Lee", "Anna")


def test_a_collection_is_one_transaction_and_equal_changes_are_merged(client: SObjectClient, feed: Any) -> None:
    events = feed("/data/ChangeEvents")
    records = [
        {"attributes": {"type": "Account"}, "Name": "One"},
        {"attributes": {"type": "Contact"}, "LastName": "Two"},
        {"attributes": {"type": "Account"}, "Name": "Three"},
        {"attributes": {"type": "Shipment__c"}, "Status__c": "Packed"},
    ]
    results = client.call("POST", "/composite/sobjects", {"allOrNone": True, "records": records}).json()
    assert [result["success"] for result in results] == [True] * 4
    one, two, three, shipment = (result["id"] for result in results)
    created = events.take(4)
    assert [header(e)["entityName"] for e in created] == ["Account", "Contact", "Account", "Shipment__c"]
    assert [header(e)["sequenceNumber"] for e in created] == [1, 2, 3, 4]
    assert len({header(e)["transactionKey"] for e in created}) == 1
    assert len({header(e)["commitTimestamp"] for e in created}) == 1

    changes = [{"id": i, "attributes": {"type": "Account"}, "Rating": "Hot"} for i in (one, three)]
    changes.append({"id": shipment, "attributes": {"type": "Shipment__c"}, "Weight__c": 4})
    changes.append({"id": two, "attributes": {"type": "Contact"}, "Title": "Dr"})
    assert all(r["success"] for r in client.call("PATCH", "/composite/sobjects", {"records": changes}).json())
    merged, weighed, titled = events.take(3)
    assert header(merged)["recordIds"] == [one, three]
    assert changed(merged) == {"Rating", "LastModifiedDate"}
    assert [header(e)["sequenceNumber"] for e in (merged, weighed, titled)] == [1, 2, 3]

    ids = ",".join((one, two, three))
    assert all(r["success"] for r in client.call("DELETE", "/composite/sobjects", params={"ids": ids}).json())
    accounts, contact = events.take(2)
    assert header(accounts)["recordIds"] == [one, three]
    assert header(contact)["recordIds"] == [two]


def test_all_or_none_rolls_back_a_collection_with_one_invalid_record(client: SObjectClient, org: LocalOrg) -> None:
    before = len(org.record("/data/ChangeEvents"))
    good, bad = {"attributes": {"type": "Account"}, "Name": "G"}, {"attributes": {"type": "Account"}, "Rating": "Hot"}
    undone = client.call("POST", "/composite/sobjects", {"allOrNone": True, "records": [good, bad, good]}).json()
    assert [r["errors"][0]["statusCode"] for r in undone] == [
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
        "REQUIRED_FIELD_MISSING",
        "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    ]
    assert len(org.record("/data/ChangeEvents")) == before
    partly = client.call("POST", "/composite/sobjects", {"records": [good, bad, good]}).json()
    assert [r["success"] for r in partly] == [True, False, True]
    # Both records have the same values, so they share one event with two record ids.
    (event,) = org.record("/data/ChangeEvents")[before:]
    assert event["fields"]["ChangeEventHeader"]["recordIds"] == [partly[0]["id"], partly[2]["id"]]


def test_invalid_collections_are_refused(client: SObjectClient) -> None:
    record = {"attributes": {"type": "Account"}, "Name": "A"}
    assert error_of(client.call("POST", "/composite/sobjects", {"records": [record] * 201})) == (
        400,
        "EXCEEDED_ID_LIMIT",
    )
    assert error_of(client.call("POST", "/composite/sobjects", {"records": "x"})) == (400, "JSON_PARSER_ERROR")
    account = client.create("Account", Name="A")
    wrong = [
        {"attributes": {"type": "Nothing"}, "Name": "A"},
        {"Name": "A"},
        {"attributes": {"type": "Account"}, "Name": "A"},
        {"attributes": {"type": "Account"}, "id": "abc", "Name": "A"},
        {"attributes": {"type": "Account"}, "id": account, "Name": "B"},
        {"attributes": {"type": "Account"}, "id": account, "Name": "C"},
    ]
    results = client.call("PATCH", "/composite/sobjects", {"records": wrong}).json()
    codes = [None if result["success"] else result["errors"][0]["statusCode"] for result in results]
    assert codes == ["INVALID_TYPE", "INVALID_TYPE", "MISSING_ARGUMENT", "MALFORMED_ID", None, "INVALID_ID_FIELD"]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "REQUIRED_FIELD_MISSING"),
        ({"Name": ""}, "REQUIRED_FIELD_MISSING"),
        ({"Name": "A", "Nothing": 1}, "INVALID_FIELD"),
        ({"Name": "A", "CreatedDate": "2026-01-01T00:00:00Z"}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"Name": "A", "Id": "001000000000001AAA"}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"Name": "A", "BillingAddress": {"city": "Graz"}}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"Name": "A", "LastName": "B"}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"Name": "A", "Salutation": "Dr"}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"FirstName": "A"}, "REQUIRED_FIELD_MISSING"),
        ({"Name": "A", "AnnualRevenue": "much"}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "AnnualRevenue": True}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "NumberOfEmployees": 1.5}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "NumberOfEmployees": 2**31}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "Some_Date__c": "28.2.2026"}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "Some_Date_Time__c": "2026-02-28"}, "JSON_PARSER_ERROR"),
        ({"Name": 5}, "JSON_PARSER_ERROR"),
        ({"Name": "A", "ParentId": "001"}, "MALFORMED_ID"),
    ],
)
def test_invalid_field_values_are_refused_without_an_event(
    client: SObjectClient, org: LocalOrg, values: Any, code: str
) -> None:
    before = len(org.record("/data/ChangeEvents"))
    assert error_of(client.call("POST", "/sobjects/Account", values)) == (400, code)
    assert len(org.record("/data/ChangeEvents")) == before


def test_requests_for_missing_and_deleted_records_are_refused(client: SObjectClient) -> None:
    account = client.create("Account", Name="Gone")
    assert error_of(client.call("POST", f"/sobjects/Account/{account}/undelete")) == (400, "UNDELETE_FAILED")
    client.delete("Account", account[:15])  # the 15-character form of the same id
    for method, values in (("GET", None), ("PATCH", {"Name": "B"}), ("DELETE", None)):
        deleted = client.call(method, f"/sobjects/Account/{account}", values)
        assert error_of(deleted) == (404, "ENTITY_IS_DELETED")
        missing = client.call(method, "/sobjects/Account/001zzzzzzzzzzzzAAA", values)
        assert error_of(missing) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", f"/sobjects/Contact/{account}")) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", "/sobjects/Account/nonsense")) == (400, "MALFORMED_ID")
    assert error_of(client.call("GET", f"/sobjects/Nothing/{account}")) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", "/no/such/path")) == (404, "NOT_FOUND")
    assert error_of(client.call("POST", "/sobjects/Account", ["a list"])) == (400, "JSON_PARSER_ERROR")


def test_values_of_every_field_type_are_read_as_written(client: SObjectClient) -> None:
    given = {
        "Name": "All",
        "BillingLatitude": 47.07,
        "NumberOfEmployees": 7,
        "Some_Check_Box__c": True,
        "Some_Date__c": "1999-12-31",
        "Some_Date_Time__c": "2026-11-21T03:14:15.000+0000",
        "Some_Time__c": "23:59:58.250Z",
        "Some_Percent__c": 12.5,
        "Some_Geolocation__Latitude__s": 1.5,
        "ParentId": "001000000000001AAA",
        "Description": "zwei\nZeilen, ü, 漢",
    }
    account = client.create("Account", **given)
    got = client.call("GET", f"/sobjects/Account/{account}").json()
    assert {name: got[name] for name in given} == given
    assert got["BillingAddress"]["latitude"] == 47.07
    assert got["ShippingAddress"] is None
    assert got["Some_Geolocation__c"] == {"latitude": 1.5, "longitude": None}
    assert got["attributes"] == {"type": "Account", "url": f"/services/data/v59.0/sobjects/Account/{account}"}
    assert (got["Id"], got["IsDeleted"]) == (account, False)
    few = client.call("GET", f"/sobjects/Account/{account}", params={"fields": "Name,Id"}).json()
    assert set(few) == {"attributes", "Name", "Id"}


@pytest.mark.parametrize("version", ["37.0", "59.0", "66.0"])
def test_change_origin_names_the_api_version_and_the_client(org: LocalOrg, version: str) -> None:
    client = SObjectClient(org, version=version, client_name="Astro")
    client.create("Opportunity", Name="O", StageName="New", CloseDate="2026-12-31")
    client.close()
    event = org.record("/data/OpportunityChangeEvent")[-1]
    origin = event["fields"]["ChangeEventHeader"]["changeOrigin"]
    assert origin == f"com/salesforce/api/rest/{version};client=Astro"


def test_old_api_versions_and_revoked_sessions_are_refused(org: LocalOrg, client: SObjectClient) -> None:
    old = SObjectClient(org, version="36.0")
    assert error_of(old.call("GET", "/sobjects")) == (404, "NOT_FOUND")
    assert client.call("GET", "/").json()["sobjects"] == "/services/data/v59.0/sobjects"
    assert client.http.get(f"{org.instance_url}/services/data/").json()[0]["version"] == "37.0"
    org.revoke()
    refused = client.call("GET", "/sobjects/Account/describe")
    assert error_of(refused) == (401, "INVALID_SESSION_ID")
    old.close()


def test_describe_names_every_column(client: SObjectClient) -> None:
    described = client.call("GET", "/sobjects/Contact/describe").json()
    fields = {field["name"]: field for field in described["fields"]}
    assert fields["Id"]["type"] == "id"
    assert fields["FirstName"]["compoundFieldName"] == "Name"
    assert fields["Name"]["createable"] is False
    assert fields["MailingAddress"]["type"] == "address"
    assert fields["Birthdate"]["type"] == "date"
    assert fields["LastName"]["nillable"] is False
    contact = client.create("Contact", LastName="Lee")
    assert set(client.call("GET", f"/sobjects/Contact/{contact}").json()) == {"attributes", *fields}
    listed = [one["name"] for one in client.call("GET", "/sobjects/").json()["sobjects"] if one["queryable"]]
    written = ["Account", "Contact", "Opportunity", "Shipment__c", "PushTopic", "StreamingChannel"]
    assert listed == [*written, "User", "Organization"]


def test_records_and_events_survive_kill_9(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path) as org:
        client = SObjectClient(org)
        first = client.create("Shipment__c", Status__c="Packed")
        org.kill()
        org.start()
        (event,) = org.record("/data/Shipment__ChangeEvent")
        assert event["fields"]["ChangeEventHeader"]["recordIds"] == [first]
        second = client.create("Shipment__c", Status__c="Sent")  # with the session from before the restart
        found = client.query("SELECT Id, Name, Status__c FROM Shipment__c")
        assert [(r["Id"], r["Name"], r["Status__c"]) for r in found] == [
            (first, first, "Packed"),
            (second, second, "Sent"),
        ]
        numbers = [e["fields"]["ChangeEventHeader"]["commitNumber"] for e in org.record("/data/ChangeEvents")]
        assert numbers[0] < numbers[1]
        client.close()


@pytest.mark.parametrize("attempt", [0, *(pytest.param(again, marks=pytest.mark.extended) for again in (1, 2))])
def test_killed_org_stores_no_record_without_its_change_event(tmp_path: Path, attempt: int) -> None:
    with LocalOrg.running(tmp_path) as org:
        client, acknowledged = SObjectClient(org), []
        records = [{"attributes": {"type": "Account"}, "Name": str(n)} for n in range(100)]

        def write() -> None:
            with contextlib.suppress(httpx.TransportError):
                while True:
                    results = client.call("POST", "/composite/sobjects", {"allOrNone": True, "records": records}).json()
                    acknowledged.extend(result["id"] for result in results)

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(acknowledged) >= 300 * (attempt + 1), what="the first writes")
        org.kill()
        writer.join()
        org.start()
        stored = [record["Id"] for record in client.query("SELECT Id FROM Account")]
        events = [event["fields"]["ChangeEventHeader"] for event in org.record("/data/AccountChangeEvent")]
        assert sorted(record_id for header in events for record_id in header["recordIds"]) == stored
        assert set(acknowledged) <= set(stored)
        assert len(stored) - len(acknowledged) in (0, 100)  # whole transactions only
        client.close()


def test_change_events_after_an_added_field_have_a_new_schema_id(
    client: SObjectClient, org: LocalOrg, feed: Any
) -> None:
    events = feed("/data/Shipment__ChangeEvent")
    before = client.create("Shipment__c", Status__c="Packed")
    schema_id = org.admin("POST", "/entities/Shipment__c/fields", {"name": "Colour__c", "type": "Text"})["schema_id"]
    client.update("Shipment__c", before, Colour__c="red")
    old, new = events.take(2)
    assert "Colour__c" not in old
    assert new["Colour__c"] == "red"
    assert new["_schema"]["uuid"] == schema_id != old["_schema"]["uuid"]
    assert changed(new) == {"Colour__c", "LastModifiedDate"}
    assert [f["name"] for f in new["_schema"]["fields"]][:-1] == [f["name"] for f in old["_schema"]["fields"]]
    org.restart()
    (record,) = client.query(f"SELECT Colour__c FROM Shipment__c WHERE Id = '{before}'")
    assert record["Colour__c"] == "red"
    shown = {entity["name"]: entity for entity in org.admin("GET", "/entities")["entities"]}
    assert shown["Shipment__c"]["schema_id"] == schema_id


@pytest.mark.parametrize(
    ("entity", "field"),
    [
        ("Account", {"name": "Colour", "type": "Text"}),
        ("Account", {"name": "Colour__c", "type": "Nothing"}),
        ("Account", {"name": "Colour__c", "type": "Address"}),
        ("Account", {"name": "Active__c", "type": "Text"}),
        ("Account", {"name": "Colour__c"}),
        ("Nothing", {"name": "Colour__c", "type": "Text"}),
    ],
)
def test_invalid_custom_fields_are_refused(org: LocalOrg, entity: str, field: dict[str, str]) -> None:
    before = org.admin("GET", "/entities")
    with pytest.raises(AdminError, match="400"):
        org.admin("POST", f"/entities/{entity}/fields", field)
    assert org.admin("GET", "/entities") == before


def test_admin_gaps_replaces_change_events_with_gap_events(client: SObjectClient, org: LocalOrg, feed: Any) -> None:
    events = feed("/data/OpportunityChangeEvent")
    org.admin("POST", "/entities/Opportunity/gaps", {"percent": 100})
    opportunity = client.create("Opportunity", Name="O", StageName="New", CloseDate="2026-12-31")
    client.update("Opportunity", opportunity, StageName="Won")
    client.delete("Opportunity", opportunity)
    org.admin("POST", "/entities/Opportunity/gaps", {"percent": 0})
    client.undelete("Opportunity", opportunity)
    org.admin("POST", "/entities/Opportunity/overflow")
    *gaps, whole, overflow = events.take(5)
    assert [header(gap)["changeType"] for gap in gaps] == ["GAP_CREATE", "GAP_UPDATE", "GAP_DELETE"]
    assert all(header(gap)["recordIds"] == [opportunity] for gap in gaps)
    assert all(body(gap) == {} and changed(gap) == set() for gap in gaps)
    assert header(whole)["changeType"] == "UNDELETE"
    assert body(whole)["StageName"] == "Won"
    assert header(overflow)["changeType"] == "GAP_OVERFLOW"
    assert header(overflow)["recordIds"] == ["000000000000000AAA"]


def test_change_event_above_the_size_limit_becomes_a_gap_event(client: SObjectClient, org: LocalOrg, feed: Any) -> None:
    events = feed("/data/ContactChangeEvent")
    contact = client.create("Contact", LastName="Lee", Description="x" * 1_100_000)
    (gap,) = events.take(1)
    assert header(gap)["changeType"] == "GAP_CREATE"
    (record,) = client.query(f"SELECT Description FROM Contact WHERE Id = '{contact}'")
    assert len(record["Description"]) == 1_100_000


def test_change_events_are_on_the_channels_of_their_entity(client: SObjectClient, org: LocalOrg) -> None:
    org.channel("Sales__chn", ["AccountChangeEvent", "ContactChangeEvent"])
    client.create("Account", Name="A")
    client.create("Opportunity", Name="O", StageName="New", CloseDate="2026-12-31")
    client.create("Contact", LastName="C")
    on_channel = org.record("/data/Sales__chn")
    entities = [event["fields"]["ChangeEventHeader"]["entityName"] for event in on_channel]
    assert entities == ["Account", "Contact"]
    assert on_channel[0]["replay_id"] == org.record("/data/AccountChangeEvent")[-1]["replay_id"]


def test_diffs_events_for_all_records_and_overflow_on_request(client: SObjectClient, org: LocalOrg, feed: Any) -> None:
    events = feed("/data/ChangeEvents")
    text = "\n".join(f"This is line {n} of the instructions." for n in range(40))
    shipment = client.create("Shipment__c", Instructions__c=text)
    org.knobs(diff_text_characters=1000)
    client.update("Shipment__c", shipment, Instructions__c=text.replace("line 7 ", "line seven "))
    org.admin("POST", "/entities/Shipment__c/all_records", {})
    org.admin("POST", "/entities/Account/all_records", {"change_type": "GAP_UPDATE"})
    with pytest.raises(AdminError, match="must be one of"):
        org.admin("POST", "/entities/Account/all_records", {"change_type": "CREATE"})
    org.knobs(diff_text_characters=None, overflow_changes=2)
    records = [{"attributes": {"type": name}, "LastName": "A"} for name in ("Account", "Contact", "Contact", "Contact")]
    assert all(r["success"] for r in client.call("POST", "/composite/sobjects", {"records": records}).json())
    org.reset_knobs()
    _, diff, all_shipments, all_accounts, *overflowed = events.take(7)

    assert names(diff, "diffFields", diff["_schema"]) == ["Instructions__c"]
    assert changed(diff) == {"Instructions__c", "LastModifiedDate"}
    assert diff["Instructions__c"].splitlines()[2:] == [
        "@@ -8,1 +8,1 @@",
        "-This is line 7 of the instructions.",
        "+This is line seven of the instructions.",
    ]
    in_cometd = json.loads(org.record("/data/ChangeEvents", api="streaming")[-6]["payload"])
    assert in_cometd["payload"]["Instructions__c"] == {"diff": diff["Instructions__c"]}
    for event, record_id, change_type in ((all_shipments, "a00*", "UPDATE"), (all_accounts, "001*", "GAP_UPDATE")):
        assert (header(event)["recordIds"], header(event)["changeType"]) == ([record_id], change_type)
        assert body(event) == {}
        assert changed(event) == nulled(event) == set()
    assert [(header(e)["entityName"], header(e)["changeType"]) for e in overflowed] == [
        ("Account", "CREATE"),
        ("Contact", "CREATE"),
        ("Contact", "GAP_OVERFLOW"),
    ]
    assert len({header(e)["transactionKey"] for e in overflowed}) == 1
    assert len(client.query("SELECT Id FROM Contact WHERE LastName = 'A'")) == 3
