"""Bulk API 2.0 ingest jobs of the local org."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastavro
import httpx
import pytest
import requests
from simple_salesforce.api import Salesforce

from tests.support.localorg import LocalOrg, wait_until
from tests.support.sobject_client import SObjectClient, error_of

TOPIC = "/data/AccountChangeEvent"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        yield local_org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, client_name="loader")
    yield client
    client.close()


def submit(client: SObjectClient, operation: str, **fields: Any) -> httpx.Response:
    return client.call("POST", "/jobs/ingest", {"object": "Account", "operation": operation, **fields})


def open_job(client: SObjectClient, operation: str, **fields: Any) -> str:
    response = submit(client, operation, **fields)
    assert response.status_code == 200, response.text
    job = response.json()
    assert (job["state"], job["operation"], job["contentType"]) == ("Open", operation, "CSV")
    assert job["contentUrl"] == f"services/data/v59.0/jobs/ingest/{job['id']}/batches"
    return f"/jobs/ingest/{job['id']}"


def upload(client: SObjectClient, path: str, text: str) -> httpx.Response:
    return client.call("PUT", path + "/batches", content=text.encode(), headers={"Content-Type": "text/csv"})


def run_job(client: SObjectClient, operation: str, text: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    path = open_job(client, operation, **fields)
    assert (upload(client, path, text).status_code, client.call("GET", path).json()["state"]) == (201, "Open")
    closed = client.call("PATCH", path, {"state": "UploadComplete"})
    assert (closed.status_code, closed.json()["state"]) == (200, "UploadComplete")
    infos = [client.call("GET", path).json() for _ in range(3)]
    assert infos[0]["state"] == "InProgress"
    assert infos[1] == infos[2]
    return path, infos[2]


def results(client: SObjectClient, path: str, kind: str, delimiter: str = ",") -> list[dict[str, str]]:
    response = client.call("GET", f"{path}/{kind}/")
    assert response.headers["Content-Type"] == "text/csv; charset=UTF-8"
    return list(csv.DictReader(io.StringIO(response.text, newline=""), delimiter=delimiter))


def headers(client: SObjectClient) -> list[dict[str, Any]]:
    """Return the headers of all change events of accounts."""
    schemas: dict[str, Any] = {}
    decoded = []
    for event in client.org.record(TOPIC):
        schema_id = event["schema_id"]
        schemas[schema_id] = schemas.get(schema_id) or fastavro.parse_schema(client.schema(schema_id))
        record: Any = fastavro.schemaless_reader(io.BytesIO(event["payload"]), schemas[schema_id], None)
        decoded.append(record["ChangeEventHeader"])
    return decoded


def test_ingest_job_inserts_records_and_reports_failed_rows(client: SObjectClient, org: LocalOrg) -> None:
    before = len(org.record(TOPIC))
    text = 'Name,AnnualRevenue,Some_Check_Box__c,Phone\n"quoted, ""x""\nline",1.5,yes,\n,2,,1\nbad,much,,1\n'
    path, info = run_job(client, "insert", text)
    assert (info["state"], info["jobType"]) == ("JobComplete", "V2Ingest")
    assert (info["numberRecordsProcessed"], info["numberRecordsFailed"]) == (3, 2)
    (good,) = results(client, path, "successfulResults")
    assert list(good) == ["sf__Id", "sf__Created", "Name", "AnnualRevenue", "Some_Check_Box__c", "Phone"]
    assert (good["sf__Created"], good["AnnualRevenue"]) == ("true", "1.5")
    (record,) = client.query(f"SELECT Name, Some_Check_Box__c, Phone FROM Account WHERE Id = '{good['sf__Id']}'")
    del record["attributes"]
    assert record == {"Name": 'quoted, "x"\nline', "Some_Check_Box__c": True, "Phone": None}
    missing, wrong = results(client, path, "failedResults")
    assert missing["sf__Error"] == "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --"
    assert (missing["sf__Id"], missing["AnnualRevenue"]) == ("", "2")
    assert wrong["sf__Error"].startswith("INVALID_TYPE_ON_FIELD_IN_RECORD:AnnualRevenue: value not of required type")
    assert results(client, path, "unprocessedrecords") == []
    assert len(org.record(TOPIC)) == before + 1


def test_ingest_jobs_publish_change_events(client: SObjectClient) -> None:
    known = client.create("Account", Name="known", Phone="1")
    path, _ = run_job(client, "update", f"Id,Phone,Name\n{known},#N/A,\n001000000009999AAA,1,\n{known[:15]},2,\n")
    assert [row["sf__Created"] for row in results(client, path, "successfulResults")] == ["false"]
    failed = results(client, path, "failedResults")
    assert [row["sf__Error"].partition(":")[0] for row in failed] == ["NOT_FOUND", "INVALID_ID_FIELD"]
    assert failed[0]["sf__Id"] == "001000000009999AAA"
    assert client.query(f"SELECT Name, Phone FROM Account WHERE Id = '{known}'")[0]["Phone"] is None
    run_job(client, "delete", f"Id\n{known}\n")
    assert client.query(f"SELECT Id FROM Account WHERE Id = '{known}'") == []
    of_known = [change for change in headers(client) if known in change["recordIds"]]
    assert [change["changeType"] for change in of_known] == ["CREATE", "UPDATE", "DELETE"]
    assert {change["changeOrigin"] for change in of_known[1:]} == {"com/salesforce/api/bulkapi/59.0;client=loader"}


def test_ingest_job_upserts_by_external_id(client: SObjectClient) -> None:
    known = client.create("Account", Name="known", GUID__c="b1")
    text = "GUID__c|Name\r\nB1|changed\r\nb2|new\r\n|none\r\n"
    path, info = run_job(
        client, "upsert", text, externalIdFieldName="guid__c", columnDelimiter="PIPE", lineEnding="CRLF"
    )
    assert (info["externalIdFieldName"], info["numberRecordsFailed"]) == ("GUID__c", 1)
    updated, created = results(client, path, "successfulResults", "|")
    assert (updated["sf__Id"], updated["sf__Created"], created["sf__Created"]) == (known, "false", "true")
    assert results(client, path, "failedResults", "|")[0]["sf__Error"] == "MISSING_ARGUMENT:GUID__c not specified:--"
    found = client.query("SELECT Name FROM Account WHERE GUID__c IN ('b1', 'b2') ORDER BY GUID__c")
    assert [record["Name"] for record in found] == ["changed", "new"]


def test_ingest_job_upserts_by_record_id(client: SObjectClient) -> None:
    known = client.create("Account", Name="known")
    path, _ = run_job(client, "upsert", f"Id,Name\n{known},changed\n,new\n", externalIdFieldName="Id")
    assert [row["sf__Created"] for row in results(client, path, "successfulResults")] == ["false", "true"]


def test_ingest_job_writes_200_rows_per_transaction(client: SObjectClient) -> None:
    _, info = run_job(client, "insert", "Name\n" + "".join(f"chunk {number}\n" for number in range(450)))
    assert (info["numberRecordsProcessed"], info["numberRecordsFailed"]) == (450, 0)
    keys = [header["transactionKey"] for header in headers(client)[-450:]]
    assert [keys.count(key) for key in dict.fromkeys(keys)] == [200, 200, 50]


@pytest.mark.parametrize(
    ("operation", "text", "error"),
    [
        ("insert", "Name,Nothing\na,b\n", "InvalidBatch : Field name not found : Nothing"),
        ("insert", "Name\r\na\r\n", "ClientInputError : LineEnding is invalid on user data."),
        ("update", "Name\na\n", "InvalidBatch : Field name not found : Id"),
        ("delete", "Id,Name\n001000000000001AAA,b\n", "InvalidBatch : The 'delete' batch must contain only ids."),
    ],
)
def test_ingest_job_with_an_invalid_header_fails_without_processing_rows(
    client: SObjectClient, operation: str, text: str, error: str
) -> None:
    path, info = run_job(client, operation, text)
    assert (info["state"], info["numberRecordsProcessed"]) == ("Failed", 0)
    assert info["errorMessage"].startswith(error)
    assert results(client, path, "successfulResults") == []
    unprocessed = [] if "LineEnding" in error else [dict(row) for row in csv.DictReader(io.StringIO(text))]
    assert results(client, path, "unprocessedrecords") == unprocessed


@pytest.mark.parametrize(
    ("operation", "fields", "code"),
    [
        ("query", {}, "INVALIDJOB"),
        ("hardDelete", {}, "FEATURENOTENABLED"),
        ("insert", {"object": "Nothing"}, "INVALIDJOB"),
        ("insert", {"object": "PushTopic"}, "INVALIDENTITY"),
        ("insert", {"contentType": "XML"}, "INVALIDJOB"),
        ("insert", {"columnDelimiter": "DOT"}, "INVALIDJOB"),
        ("upsert", {}, "INVALIDJOB"),
        ("upsert", {"externalIdFieldName": "Name"}, "INVALIDJOB"),
    ],
)
def test_invalid_ingest_jobs_are_refused(
    client: SObjectClient, operation: str, fields: dict[str, str], code: str
) -> None:
    assert error_of(submit(client, operation, **fields)) == (400, code)


def test_aborted_ingest_job_returns_its_unprocessed_rows(client: SObjectClient) -> None:
    path = open_job(client, "insert")
    assert upload(client, path, "Name\nnever\n").status_code == 201
    assert error_of(client.call("GET", path + "/successfulResults")) == (400, "INVALIDJOBSTATE")
    assert error_of(client.call("DELETE", path)) == (400, "INVALIDJOBSTATE")
    assert client.call("PATCH", path, {"state": "Aborted"}).json()["state"] == "Aborted"
    assert results(client, path, "unprocessedrecords") == [{"Name": "never"}]
    assert error_of(client.call("PATCH", path, {"state": "UploadComplete"})) == (400, "INVALIDJOBSTATE")
    assert client.query("SELECT Id FROM Account WHERE Name = 'never'") == []
    assert path.rpartition("/")[2] in {job["id"] for job in client.call("GET", "/jobs/ingest").json()["records"]}
    assert client.call("DELETE", path).status_code == 204
    assert error_of(client.call("GET", path)) == (404, "NOT_FOUND")


def test_ingest_job_aborted_during_processing_keeps_its_processed_rows(client: SObjectClient) -> None:
    path = open_job(client, "insert", object="Contact")
    assert upload(client, path, "LastName\n" + "".join(f"half {number}\n" for number in range(10_000))).is_success
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(client.call, "PATCH", path, {"state": "UploadComplete"})
        other = SObjectClient(client.org)
        wait_until(lambda: other.call("GET", path).json()["state"] != "Open")
        assert other.call("PATCH", path, {"state": "Aborted"}).json()["state"] == "Aborted"
        assert closing.result().json()["state"] == "UploadComplete"
        other.close()
    info = client.call("GET", path).json()
    successful, left = (results(client, path, kind) for kind in ("successfulResults", "unprocessedrecords"))
    assert (info["state"], info["numberRecordsProcessed"]) == ("Aborted", len(successful))
    assert len(left) > 0
    assert [row["LastName"] for row in successful + left] == [f"half {number}" for number in range(10_000)]
    counted = client.call("GET", "/query", params={"q": "SELECT COUNT() FROM Contact WHERE LastName LIKE 'half%'"})
    assert counted.json()["totalSize"] == len(successful)


def test_data_is_uploaded_once_to_an_open_job(client: SObjectClient) -> None:
    path = open_job(client, "insert")
    assert error_of(client.call("PATCH", path, {"state": "UploadComplete"})) == (400, "INVALIDJOBSTATE")
    assert error_of(client.call("PATCH", path, {"state": "Open"})) == (400, "INVALIDJOB")
    latin = client.call("PUT", path + "/batches", content="Name\nä".encode("latin-1"))
    assert error_of(latin) == (400, "INVALIDBATCH")
    assert upload(client, path, "Name\nonce\n").status_code == 201
    assert error_of(upload(client, path, "Name\ntwice\n")) == (400, "INVALIDJOBSTATE")
    client.call("PATCH", path, {"state": "UploadComplete"})
    assert error_of(client.call("PATCH", path, {"state": "UploadComplete"})) == (400, "INVALIDJOBSTATE")
    assert error_of(upload(client, path, "Name\nlate\n")) == (400, "INVALIDJOBSTATE")


def test_ingest_endpoint_does_not_find_a_query_job(client: SObjectClient) -> None:
    path = open_job(client, "insert")
    query = client.call("POST", "/jobs/query", {"operation": "query", "query": "SELECT Id FROM Account"}).json()["id"]
    assert path.rpartition("/")[2] != query
    assert error_of(client.call("GET", f"/jobs/ingest/{query}")) == (404, "NOT_FOUND")


def test_simple_salesforce_loads_and_reads_the_results(org: LocalOrg) -> None:
    with requests.Session() as session:
        session.verify, session.trust_env = org.ca_file, False  # the environment may define another authority
        salesforce = Salesforce(
            instance_url=org.https_instance_url, session_id=org.token(), version="59.0", session=session
        )
        account = salesforce.bulk2.Account
        records = [{"Name": f"simple {number}", "GUID__c": f"s{number}"} for number in range(3)]
        (inserted,) = account.insert(records=records, wait=0.01)
        assert (inserted["numberRecordsProcessed"], inserted["numberRecordsFailed"]) == (3, 0)
        changed = [{"Name": "simple changed", "GUID__c": "s1"}, {"Name": "", "GUID__c": "s9"}]
        (upserted,) = account.upsert(records=changed, external_id_field="GUID__c", wait=0.01)
        assert (upserted["numberRecordsProcessed"], upserted["numberRecordsFailed"]) == (2, 1)
        assert "REQUIRED_FIELD_MISSING" in account.get_failed_records(upserted["job_id"])
        found = salesforce.query("SELECT Id, Name FROM Account WHERE GUID__c LIKE 's_' AND (NOT Name LIKE '% 0')")
        assert {one["Name"] for one in found["records"]} == {"simple changed", "simple 2"}
        (deleted,) = account.delete(records=[{"Id": one["Id"]} for one in found["records"]], wait=0.01)
        assert deleted["numberRecordsFailed"] == 0
        assert salesforce.query("SELECT COUNT() FROM Account WHERE GUID__c LIKE 's_'")["totalSize"] == 1


def test_ingest_job_hard_deletes_with_the_permission(org: LocalOrg, client: SObjectClient) -> None:
    org.knobs(bulk_hard_delete=True)
    record_id = client.create("Account", Name="hard", Site="hard deletion")
    _, info = run_job(client, "hardDelete", f"Id\n{record_id}\n")
    assert (info["state"], info["numberRecordsFailed"]) == ("JobComplete", 0)
    assert client.query("SELECT Id FROM Account WHERE Site = 'hard deletion'", deleted=True) == []
    org.reset_knobs()
