"""REST resources about the org: user, organization, describe, limits, versions and composite requests."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from airflow_provider_sfstream.salesforce.events import StartFrom
from tests.support.clients import pubsub_client
from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


def get(org: LocalOrg, path: str) -> httpx.Response:
    return httpx.get(f"{org.instance_url}{path}", headers={"Authorization": f"Bearer {org.token()}"})


def identity(org: LocalOrg) -> dict[str, str]:
    return dict(get(org, get(org, "/services/data/v62.0").json()["identity"].removeprefix(org.instance_url)).json())


def test_user_record_matches_the_identity_of_the_session(org: LocalOrg, client: SObjectClient) -> None:
    who = identity(org)
    user = get(org, f"/services/data/v62.0/sobjects/User/{who['user_id']}").json()
    assert (user["Id"], user["Username"], user["Name"]) == (who["user_id"], who["username"], who["name"])
    assert user["attributes"]["type"] == "User"
    [found] = client.query(f"SELECT Id, IsActive FROM User WHERE Username = '{org.username}'")
    assert (found["Id"], found["IsActive"]) == (user["Id"], True)
    assert get(org, "/services/data/v62.0/sobjects/User/005000000000000AAA").status_code == 404


def test_organization_record_matches_the_org(org: LocalOrg, client: SObjectClient) -> None:
    fields = "Id, Name, IsSandbox, OrganizationType, InstanceName"
    [found] = client.query(f"SELECT {fields} FROM Organization")
    assert found["Id"] == org.org_id == identity(org)["organization_id"]
    assert (found["IsSandbox"], found["OrganizationType"]) == (False, "Developer Edition")
    read = get(org, f"/services/data/v62.0/sobjects/Organization/{org.org_id}").json()
    assert {name: read[name] for name in fields.split(", ")} == {name: found[name] for name in fields.split(", ")}


def test_user_and_organization_are_read_only(org: LocalOrg) -> None:
    for name in ("User", "Organization"):
        describe = get(org, f"/services/data/v62.0/sobjects/{name}/describe").json()
        assert (describe["queryable"], describe["createable"]) == (True, False)
        assert not any(field["updateable"] for field in describe["fields"])
        url = f"{org.instance_url}/services/data/v62.0/sobjects/{name}"
        refused = httpx.post(url, json={"Name": "x"}, headers={"Authorization": f"Bearer {org.token()}"})
        assert refused.status_code == 404
    listed = {each["name"] for each in get(org, "/services/data/v62.0/sobjects").json()["sobjects"]}
    assert {"Account", "User", "Organization"} <= listed


def test_limits_count_api_calls_and_published_events(org: LocalOrg) -> None:
    org.define("Counted__e", Number__c="double")
    before = get(org, "/services/data/v62.0/limits")
    published = before.json()["HourlyPublishedPlatformEvents"]
    assert published["Max"] == 50_000
    org.rest("POST", "/sobjects/Counted__e", {"Number__c": 1.0})
    after = get(org, "/services/data/v62.0/limits")
    assert after.json()["HourlyPublishedPlatformEvents"]["Remaining"] == published["Remaining"] - 1
    calls = before.json()["DailyApiRequests"]["Remaining"] - after.json()["DailyApiRequests"]["Remaining"]
    assert calls == 2
    used, _, most = after.headers["Sforce-Limit-Info"].removeprefix("api-usage=").partition("/")
    assert (int(most), int(used)) == (15_000, 15_000 - after.json()["DailyApiRequests"]["Remaining"] + 1)
    org.knobs(publish_quota=50_000 - published["Remaining"] + 10)
    limited = get(org, "/services/data/v62.0/limits").json()
    assert limited["HourlyPublishedPlatformEvents"]["Remaining"] == 9
    org.reset_knobs()


@pytest.mark.parametrize("version", ["67.0", "99.0", "30.0", "62", "62.1"])
def test_unsupported_rest_api_version_is_not_found(org: LocalOrg, version: str) -> None:
    newest = get(org, "/services/data").json()[-1]["version"]
    assert newest == "66.0"
    assert get(org, f"/services/data/v{newest}/limits").status_code == 200
    answer = get(org, f"/services/data/v{version}/limits")
    assert (answer.status_code, answer.json()[0]["errorCode"]) == (404, "NOT_FOUND")


def test_limits_count_delivered_events(org: LocalOrg) -> None:
    org.define("Delivered__e", Number__c="double")
    org.publish("/event/Delivered__e", [{"Number__c": float(n)} for n in range(7)])
    before = get(org, "/services/data/v62.0/limits").json()
    with pubsub_client(org) as client:
        taken = 0
        for batch in client.subscribe("/event/Delivered__e", StartFrom.EARLIEST, limit=7, idle_timeout=10.0):
            taken += len(batch or ())
    after = get(org, "/services/data/v62.0/limits").json()
    for name in ("DailyDeliveredPlatformEvents", "MonthlyPlatformEvents"):
        assert before[name]["Remaining"] - after[name]["Remaining"] == taken == 7


def test_events_are_described_and_listed(org: LocalOrg) -> None:
    org.define("Described__e", Number__c="double", Text__c="string", When__c="datetime")
    describe = get(org, "/services/data/v62.0/sobjects/Described__e/describe").json()
    types = {field["name"]: (field["type"], field["createable"]) for field in describe["fields"]}
    assert types == {
        "CreatedDate": ("datetime", False),
        "CreatedById": ("reference", False),
        "Number__c": ("double", True),
        "Text__c": ("string", True),
        "When__c": ("datetime", True),
    }
    assert (describe["createable"], describe["queryable"]) == (True, False)
    change = get(org, "/services/data/v62.0/sobjects/AccountChangeEvent/describe").json()
    assert change["createable"] is False
    assert {"ChangeEventHeader", "AnnualRevenue"} <= {field["name"] for field in change["fields"]}
    listed = {each["name"]: each["createable"] for each in get(org, "/services/data/v62.0/sobjects").json()["sobjects"]}
    assert (listed["Described__e"], listed["AccountChangeEvent"]) == (True, False)


def test_platform_events_are_published_as_a_collection(org: LocalOrg) -> None:
    org.define("Several__e", Number__c="double")

    def post(*records: dict[str, object]) -> httpx.Response:
        url = f"{org.instance_url}/services/data/v62.0/composite/sobjects"
        return httpx.post(url, json={"records": records}, headers={"Authorization": f"Bearer {org.token()}"})

    event = {"attributes": {"type": "Several__e"}}
    answers = post({**event, "Number__c": 1.0}, {**event, "Nothing__c": 1.0}, {**event, "Number__c": 2.0}).json()
    assert [answer["success"] for answer in answers] == [True, False, True]
    assert answers[1]["errors"][0]["statusCode"] == "INVALID_FIELD"
    record = org.record("/event/Several__e")
    assert [each["fields"]["Number__c"] for each in record] == [1.0, 2.0]
    assert [each["event_id"] for each in record] == [answers[n]["errors"][0]["message"] for n in (0, 2)]
    mixed = post({**event, "Number__c": 3.0}, {"attributes": {"type": "Account"}, "Name": "x"})
    assert (mixed.status_code, "not modelled" in mixed.text) == (400, True)
    assert len(org.record("/event/Several__e")) == 2


def test_composite_request_publishes_events_and_resolves_references(org: LocalOrg, client: SObjectClient) -> None:
    org.define("Composed__e", Number__c="double")
    base = "/services/data/v62.0"

    def post(*parts: dict[str, object], **options: object) -> httpx.Response:
        body = {"compositeRequest": [{"referenceId": f"r{n}", **part} for n, part in enumerate(parts)], **options}
        return httpx.post(
            f"{org.instance_url}{base}/composite", json=body, headers={"Authorization": f"Bearer {org.token()}"}
        )

    parts: list[dict[str, object]] = [
        {"method": "POST", "url": f"{base}/sobjects/Composed__e", "body": {"Number__c": 1.0}},
        {"method": "POST", "url": f"{base}/sobjects/Account", "body": {"Name": "Composed"}},
        {"method": "GET", "url": f"{base}/sobjects/Account/@{{r1.id}}?fields=Name"},
        {"method": "POST", "url": f"{base}/sobjects/Composed__e", "body": {"Nothing__c": 1.0}},
        {"method": "GET", "url": f"{base}/sobjects/Account/@{{r9.id}}"},
    ]
    answers = post(*parts).json()["compositeResponse"]
    assert [answer["httpStatusCode"] for answer in answers] == [201, 201, 200, 400, 400]
    assert answers[2]["body"]["Name"] == "Composed"
    assert answers[1]["httpHeaders"] == {"Location": f"{base}/sobjects/Account/{answers[1]['body']['id']}"}
    [event] = org.record("/event/Composed__e")
    assert event["event_id"] == answers[0]["body"]["errors"][0]["message"]
    assert [answer["referenceId"] for answer in answers] == [f"r{n}" for n in range(5)]
    refused = post(parts[0], allOrNone=True)
    assert (refused.status_code, "not modelled" in refused.text) == (400, True)
    assert post(*[parts[2]] * 26).status_code == 400
    assert len(org.record("/event/Composed__e")) == 1


@pytest.mark.parametrize(
    "path",
    ["sobjects/Account/updated?start=x&end=y", "sobjects/Account/deleted", "tooling/sobjects/ApexClass/describe"],
)
def test_endpoints_that_are_not_modelled_return_501(org: LocalOrg, path: str) -> None:
    answer = get(org, f"/services/data/v62.0/{path}")
    assert (answer.status_code, "not modelled" in answer.text) == (501, True)


def test_describe_contains_field_properties_that_clients_read(org: LocalOrg) -> None:
    describe = get(org, "/services/data/v62.0/sobjects/Contact/describe").json()
    fields = {field["name"]: field for field in describe["fields"]}
    assert (fields["AccountId"]["referenceTo"], fields["AccountId"]["relationshipName"]) == (["Account"], "Account")
    assert (fields["AccountId"]["length"], fields["LastName"]["length"], fields["Birthdate"]["length"]) == (18, 255, 0)
    assert (fields["LastName"]["referenceTo"], fields["LastName"]["picklistValues"]) == ([], [])
    assert (fields["GUID__c"]["externalId"], fields["LastName"]["externalId"]) == (True, False)


@pytest.mark.parametrize("name", ["User", "Organization"])
def test_built_in_records_have_the_creation_time_of_the_org(client: SObjectClient, name: str) -> None:
    soql = f"SELECT CreatedDate, LastModifiedDate, LastModifiedById, SystemModstamp FROM {name}"
    [record] = client.query(soql + " WHERE SystemModstamp >= YESTERDAY")
    assert record["CreatedDate"] == record["LastModifiedDate"] == record["SystemModstamp"]
    assert client.query(f"SELECT Id FROM {name} WHERE SystemModstamp > TOMORROW") == []
    assert client.query(soql) == [record]
