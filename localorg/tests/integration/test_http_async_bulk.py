"""Bulk API 1 with JSON, used by simple-salesforce's ``bulk`` and by Airflow's SalesforceBulkOperator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
from simple_salesforce.api import Salesforce
from simple_salesforce.exceptions import SalesforceGeneralError, SalesforceMalformedRequest

from tests.support.localorg import LocalOrg


@pytest.fixture
def session(org: LocalOrg) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.verify, session.trust_env = org.ca_file, False  # the environment may define another authority
        yield session


@pytest.fixture
def salesforce(org: LocalOrg, session: requests.Session) -> Salesforce:
    return Salesforce(instance_url=org.https_instance_url, session_id=org.token(), version="59.0", session=session)


@pytest.fixture
def http(org: LocalOrg) -> Iterator[httpx.Client]:
    headers = {"X-SFDC-Session": org.token()}
    with httpx.Client(base_url=f"{org.instance_url}/services/async/59.0", headers=headers, trust_env=False) as client:
        yield client


def change_types(org: LocalOrg, count: int) -> list[str]:
    events = org.record("/data/AccountChangeEvent")[-count:]
    return [event["fields"]["ChangeEventHeader"]["changeType"] for event in events]


def open_job(http: httpx.Client, operation: str, **fields: Any) -> str:
    body = {"operation": operation, "object": "Account", "contentType": "JSON", **fields}
    answer = http.post("/job", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def refusal(answer: httpx.Response) -> str:
    assert (answer.status_code, set(answer.json())) == (400, {"exceptionCode", "exceptionMessage"})
    return str(answer.json()["exceptionCode"])


def test_bulk_1_jobs_write_records_and_publish_change_events(org: LocalOrg, salesforce: Salesforce) -> None:
    accounts = salesforce.bulk.Account
    inserted = accounts.insert([{"Name": "one", "AnnualRevenue": 1.5}, {"Industry": "Banking"}])
    assert [one["success"] for one in inserted] == [True, False]
    (problem,) = inserted[1]["errors"]
    assert (inserted[1]["id"], inserted[1]["created"]) == (None, False)
    assert (problem["statusCode"], problem["fields"]) == ("REQUIRED_FIELD_MISSING", ["Name"])
    record_id = inserted[0]["id"]
    (updated,) = accounts.update([{"Id": record_id, "Name": "two", "AnnualRevenue": None}])
    assert (updated["success"], updated["created"], updated["id"]) == (True, False, record_id)
    account = org.rest("GET", f"/sobjects/Account/{record_id}")
    assert (account["Name"], account["AnnualRevenue"]) == ("two", None)
    (deleted,) = accounts.delete([{"Id": record_id}])
    assert deleted["success"]
    assert change_types(org, 3) == ["CREATE", "UPDATE", "DELETE"]
    event = org.record("/data/AccountChangeEvent")[-1]["fields"]["ChangeEventHeader"]
    assert event["changeOrigin"].startswith("com/salesforce/api/bulkapi/59.0")


def test_bulk_1_upserts_by_an_external_id(salesforce: Salesforce) -> None:
    accounts = salesforce.bulk.Account
    rows = [{"Name": "one", "GUID__c": "bulk-1"}, {"Name": "two", "GUID__c": "bulk-2"}]
    assert [one["created"] for one in accounts.upsert(rows, "GUID__c", batch_size=1)] == [True, True]
    changed = accounts.upsert([{"Name": "three", "GUID__c": "bulk-2"}], "GUID__c")
    assert [(one["success"], one["created"]) for one in changed] == [(True, False)]


def test_bulk_1_insert_of_several_transactions_returns_detailed_results(org: LocalOrg, salesforce: Salesforce) -> None:
    rows = [{"Name": f"many {number}", "Site": "async"} for number in range(450)]
    results = salesforce.bulk.Account.insert(rows, include_detailed_results=True)
    assert [one["Name"] for one in results] == [row["Name"] for row in rows]
    assert all(one["success"] for one in results)
    assert salesforce.query("SELECT COUNT() FROM Account WHERE Site = 'async'")["totalSize"] == 450
    found = salesforce.bulk.Account.query("SELECT Id, Name FROM Account WHERE Site = 'async'")
    assert sorted(one["Name"] for one in found) == sorted(row["Name"] for row in rows)
    assert found[0]["attributes"]["type"] == "Account"


def test_bulk_1_query_all_returns_deleted_records(org: LocalOrg, salesforce: Salesforce) -> None:
    accounts = salesforce.bulk.Account
    (inserted,) = accounts.insert([{"Name": "gone", "Site": "gone"}])
    accounts.delete([{"Id": inserted["id"]}])
    soql = "SELECT Id FROM Account WHERE Site = 'gone'"
    assert accounts.query(soql) == []
    assert [one["Id"] for one in accounts.query_all(soql)] == [inserted["id"]]
    with pytest.raises(SalesforceGeneralError, match="MALFORMED_QUERY"):
        accounts.query("SELECT FROM Account")


def test_bulk_1_hard_deletion_requires_its_permission(org: LocalOrg, salesforce: Salesforce) -> None:
    accounts = salesforce.bulk.Account
    (inserted,) = accounts.insert([{"Name": "hard", "Site": "hard"}])
    with pytest.raises(SalesforceMalformedRequest, match="FeatureNotEnabled"):
        accounts.hard_delete([{"Id": inserted["id"]}])
    org.knobs(bulk_hard_delete=True)
    assert [one["success"] for one in accounts.hard_delete([{"Id": inserted["id"]}])] == [True]
    assert change_types(org, 2) == ["CREATE", "DELETE"]
    assert salesforce.query_all("SELECT Id FROM Account WHERE Site = 'hard'", include_deleted=True)["totalSize"] == 0


def test_bulk_1_jobs_and_batches_show_their_progress(http: httpx.Client) -> None:
    job = open_job(http, "insert", concurrencyMode=1)
    added = http.post(f"/job/{job}/batch", json=[{"Name": "one"}, {}])
    batch = added.json()
    assert (added.status_code, batch["state"], batch["jobId"]) == (201, "Queued", job)
    assert refusal(http.get(f"/job/{job}/batch/{batch['id']}/result")) == "InvalidBatch"
    assert http.get(f"/job/{job}").json()["numberBatchesQueued"] == 1
    done = http.get(f"/job/{job}/batch/{batch['id']}").json()
    assert (done["state"], done["numberRecordsProcessed"], done["numberRecordsFailed"]) == ("Completed", 2, 1)
    assert http.get(f"/job/{job}/batch").json() == {"batchInfo": [done]}
    assert http.get(f"/job/{job}/batch/{batch['id']}/request").json() == [{"Name": "one"}, {}]
    closed = http.post(f"/job/{job}", json={"state": "Closed"}).json()
    assert (closed["state"], closed["concurrencyMode"], closed["numberRecordsFailed"]) == ("Closed", "Serial", 1)
    assert refusal(http.post(f"/job/{job}/batch", json=[{"Name": "late"}])) == "InvalidJobState"
    assert refusal(http.post(f"/job/{job}", json={"state": "Aborted"})) == "InvalidJobState"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"contentType": "CSV"}, "FeatureNotEnabled"),
        ({"contentType": "ZIP_JSON"}, "FeatureNotEnabled"),
        ({"contentType": None}, "FeatureNotEnabled"),
        ({"operation": "merge"}, "InvalidJob"),
        ({"operation": "hardDelete"}, "FeatureNotEnabled"),
        ({"operation": "upsert"}, "InvalidJob"),
        ({"operation": "upsert", "externalIdFieldName": "Name"}, "InvalidJob"),
        ({"object": "Nothing"}, "InvalidJob"),
        ({"object": "PushTopic"}, "InvalidEntity"),
    ],
)
def test_invalid_bulk_1_jobs_are_refused(http: httpx.Client, fields: dict[str, Any], code: str) -> None:
    body = {"operation": "insert", "object": "Account", "contentType": "JSON", **fields}
    assert refusal(http.post("/job", json=body)) == code


def test_invalid_bulk_1_requests_are_refused(org: LocalOrg, http: httpx.Client) -> None:
    job = open_job(http, "insert")
    for content, code in (
        ("", "InvalidBatch"),
        ("{}", "InvalidBatch"),
        ("[]", "InvalidBatch"),
        ("[1]", "InvalidBatch"),
    ):
        assert refusal(http.post(f"/job/{job}/batch", content=content)) == code
    assert refusal(http.post("/job", content="no JSON")) == "InvalidJob"
    assert refusal(http.get("/job/750000000000000AAA")) == "InvalidJob"
    assert refusal(http.get(f"/job/{job}/batch/751000000000000AAA")) == "InvalidBatch"
    url = f"{org.instance_url}/services/async"
    assert refusal(http.get(f"{url}/36.0/job/{job}")) == "InvalidVersion"
    assert refusal(httpx.get(f"{url}/59.0/job/{job}", trust_env=False)) == "InvalidSessionId"


def test_bulk_1_xml_request_is_refused_with_an_xml_response(http: httpx.Client) -> None:
    job = '<jobInfo xmlns="http://www.force.com/2009/06/asyncapi/dataload"><operation>insert</operation></jobInfo>'
    answer = http.post("/job", content=job, headers={"Content-Type": "application/xml"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/xml; charset=utf-8")
    assert "<exceptionCode>FeatureNotEnabled</exceptionCode>" in answer.text
