"""Records that a refresh fetches from a local org and passes to the job. Most tests do not start the job."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.operators.refresh_replica import RefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.privacy.field_rules import FieldRules
from airflow_provider_sfstream.salesforce.rest.records import RecordClient
from airflow_provider_sfstream.tables.refresh import fetch as _fetch
from airflow_provider_sfstream.tables.refresh.fetch import SWITCHABLE_NAME
from airflow_provider_sfstream.tables.replica.refresh import flag_after
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER, RefreshDocument
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Flag, Snapshot, StreamState, TableState
from tests.support.localorg import LocalOrg
from tests.support.spark import MASTER, SETTINGS, short_lived_environment
from tests.support.tasks import context_for, set_connection

COLUMNS = {
    "Name": "string",
    "LastName": "string",
    "FirstName": "string",
    "AnnualRevenue": "double",
    "Gone__c": "string",
}
SYSTEM = {"_found": "true", "_deleted": "false"}
NEVER = "001zzzzzzzzzzzzAAA"


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture(scope="module")
def accounts(running_org: LocalOrg) -> dict[str, str]:
    """Create accounts in the org; return their record IDs by name."""
    records = [
        {"Name": "one", "AnnualRevenue": 1.5},
        {"FirstName": "Ada", "LastName": "Lovelace"},
        {"Name": "binned"},
        *({"Name": f"number {number}"} for number in range(40)),
    ]
    ids = [str(running_org.rest("POST", "/sobjects/Account", record)["id"]) for record in records]
    running_org.rest("DELETE", f"/sobjects/Account/{ids[2]}")
    return dict(zip([str(record.get("Name") or "Ada") for record in records], ids, strict=True))


class Fetching:
    """A handmade replica state, and the files that the refresh operator passes to the job for it."""

    def __init__(self, org: LocalOrg, output: Path) -> None:
        self.org, self.output = org, output
        self.tables: dict[str, TableState] = {}
        self.state = StreamState(
            org.org_id, "pubsub", "/data/ChangeEvents", "", AppliedWindow("window-1", "", 1, 50), None, 49
        )

    def table(self, dirty: dict[str, int] | None = None, *, flagged: bool = False) -> TableState:
        place = "_sfstream/replica/dirty/Account/list"
        if dirty:
            (self.output / place).mkdir(parents=True)
            lines = [json.dumps({"Id": record_id, "sequence": number}) for record_id, number in dirty.items()]
            (self.output / place / "part-0.json").write_text("\n".join(lines) + "\n")
            (self.output / place / "_SUCCESS").touch()
        flag = Flag("new", "2026-01-01T00:00:00+00:00", 1) if flagged else None
        return TableState(
            "stream",
            columns=COLUMNS,
            fields={**dict.fromkeys(COLUMNS, ""), "Name": SWITCHABLE_NAME},
            dirty=len(dirty or {}),
            dirty_list=place if dirty else None,
            flag=flag,
        )

    def publish(self) -> None:
        files = ObjectStorageFiles(None)
        store = SnapshotStore(files, self.output.as_uri())
        files.delete(f"{self.output.as_uri()}/_sfstream/replica/snapshots")
        store.publish(Snapshot(3, None, {"stream": self.state}, self.tables))

    def run(self, **arguments: Any) -> dict[str, Any]:
        self.publish()
        given = {
            "output_url": self.output.as_uri(),
            "salesforce_conn_id": "sf",
            "computed_fields": "never",
            **arguments,
        }
        operator = CapturingRefreshOperator(task_id="refresh", **given)
        operator.job_input = self.output.parent / "job_input"
        try:
            return operator.execute(context_for("refresh"))
        finally:
            self.submitted = operator.submitted
            assert not (self.output / FOLDER).exists(), "the operator did not delete its working folder"

    def document(self) -> RefreshDocument:
        return RefreshDocument.from_json((self.output.parent / "job_input/refresh.json").read_text(), "job_input")

    def lines(self, table: str = "Account") -> list[dict[str, str]]:
        names = self.document().tables[table].files
        texts = [(self.output.parent / "job_input" / name).read_text() for name in names]
        return [json.loads(line) for text in texts for line in text.splitlines()]


class CapturingRefreshOperator(SparkSubmitRefreshReplicaOperator):
    """Refresh operator that copies the input of the job and does not start the job."""

    job_input: Path
    submitted: Any = None

    def run_job(self, context: Any, config: Any) -> dict[str, Any] | None:
        self.submitted = config
        shutil.copytree(Path(config.refresh_url.removeprefix("file://")).parent, self.job_input)
        return None


@pytest.fixture
def fetching(
    running_org: LocalOrg, accounts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Fetching:
    set_connection(monkeypatch, "sf", **running_org.airflow_connection())
    waits = RecordClient.__init__.__kwdefaults__ | {"job_wait": 0.01}
    monkeypatch.setattr(RecordClient.__init__, "__kwdefaults__", waits)
    return Fetching(running_org, tmp_path / "replica")


@pytest.fixture(params=["rest", "bulk"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose the API for records by ID: Bulk is used if an object's fields leave no room for IDs in a URL."""
    if request.param == "bulk":
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.soql.ids_in_url", lambda *_: 19)
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.soql.ids_in_body", lambda *_: 20)
    else:
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.soql.ids_in_url", lambda *_: 20)
    return str(request.param)


def test_dirty_rows_are_fetched_by_record_id(
    fetching: Fetching, accounts: dict[str, str], api: str, caplog: pytest.LogCaptureFixture
) -> None:
    listed = {record_id: number for number, record_id in enumerate([*accounts.values(), NEVER], 5)}
    fetching.tables = {"Account": replace(fetching.table(listed), deletes="hard"), "Contact": TableState("stream")}
    before = len(fetching.org.requests("http"))
    result = fetching.run(deletes="hard", keep_snapshots=7)
    assert result["tables"]["Account"] | {"seconds": 0} == {
        **{"mode": "records", "fetched": len(accounts), "deleted": 2, "seconds": 0, "still_dirty": None, "flag": None}
    }
    assert (fetching.submitted.keep_snapshots, fetching.submitted.deletes) == (7, "hard")
    document = fetching.document()
    table = document.tables["Account"]
    assert (document.snapshot, list(document.tables)) == (3, ["Account"])
    assert (table.mode, table.columns) == ("records", ("Name", "LastName", "FirstName", "AnnualRevenue"))
    assert (table.applied_sequence, table.next_sequence, table.last_window) == (49, 51, "window-1")
    lines = {line["Id"]: line for line in fetching.lines()}
    assert {record_id: int(line["_sequence"]) for record_id, line in lines.items()} == listed
    assert len(fetching.lines()) == len(listed)
    moments = [line.pop("_refreshed_at", "") for line in lines.values()]
    assert moments.count("") == 1
    of = {name: lines[record_id] for name, record_id in accounts.items()}
    assert of["one"] == {**SYSTEM, "Id": accounts["one"], "_sequence": "5", "Name": "one", "AnnualRevenue": "1.5"}
    # SOQL returns the Name "Ada Lovelace"; a change event of a person account has no Name.
    assert of["Ada"] == {
        **SYSTEM, "Id": accounts["Ada"], "_sequence": "6", "FirstName": "Ada", "LastName": "Lovelace"
    }  # fmt: skip
    assert of["binned"]["_deleted"] == "true"
    assert lines[NEVER] == {"Id": NEVER, "_found": "false", "_sequence": str(listed[NEVER])}
    asked = [request["method"] for request in fetching.org.requests("http")[before:]]
    assert any(method.endswith("/jobs/query") for method in asked) is (api == "bulk")
    assert "Account: columns that do not change" in caplog.text
    assert "Gone__c" in caplog.text


@pytest.mark.parametrize("bulk_threshold", [43, 44])
def test_a_flagged_table_is_fetched_in_full(fetching: Fetching, accounts: dict[str, str], bulk_threshold: int) -> None:
    assert len(accounts) == 43
    before = len(fetching.org.requests("http"))
    fetching.tables = {"Account": fetching.table(flagged=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fetch, "LINES_PER_FILE", 10)
        fetching.run(bulk_threshold=bulk_threshold, bulk_page_records=9)
    table = fetching.document().tables["Account"]
    assert (table.mode, table.fetched) == ("full", len(accounts))
    assert table.files == tuple(f"Account/part-{number:05d}.jsonl" for number in range(5))
    assert {line["Id"] for line in fetching.lines()} == set(accounts.values())
    assert len(fetching.lines()) == len(accounts)
    asked = [request["method"] for request in fetching.org.requests("http")[before:]]
    assert any("/jobs/query" in method for method in asked) is (bulk_threshold == 43)


@pytest.mark.parametrize(("given", "mode"), [({}, "full"), ({"scope": "all", "verify": True}, "compare")])
def test_all_records_of_a_table_without_a_readable_column_are_fetched(
    fetching: Fetching, accounts: dict[str, str], given: dict[str, Any], mode: str
) -> None:
    fetching.tables = {"Account": replace(fetching.table(flagged=True), columns={}, fields={})}
    fetching.run(**({"computed_fields": None} if given else {}), **given)
    table = fetching.document().tables["Account"]
    assert (table.mode, table.fetched) == (mode, len(accounts))
    assert {line["Id"] for line in fetching.lines()} == set(accounts.values())


def test_a_flagged_table_without_records_in_the_org_gets_no_files(fetching: Fetching) -> None:
    fetching.tables = {"Shipment__c": fetching.table(flagged=True)}
    fetching.run()
    assert fetching.document().tables["Shipment__c"].files == ()


def test_flagged_columns_hidden_from_the_user_start_no_job(
    fetching: Fetching, caplog: pytest.LogCaptureFixture
) -> None:
    table = fetching.table()
    flag = Flag("schema", "2026-01-01T00:00:00+00:00", 1, ("Gone__c",))
    fetching.tables = {"Account": replace(table, flag=flag)}
    with pytest.raises(AirflowSkipException, match="may not read any of the values"):
        fetching.run()
    assert fetching.submitted is None
    assert "the user of the connection may not read: Gone__c" in caplog.text
    fetching.tables = {
        "Account": replace(table, flag=replace(flag, columns=("Gone__c", "Name")), fields={"Gone__c": ""})
    }
    fetching.run()
    assert fetching.document().tables["Account"].hidden == ("Gone__c",)


HIDDEN = Flag("schema", "2026-01-01T00:00:00+00:00", 1, ("Gone__c",))


def test_a_hidden_field_causes_no_full_fetch(
    fetching: Fetching, accounts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The refresh fetches dirty rows by record ID, and keeps the flag until the user may read the field."""
    table = replace(fetching.table({accounts["one"]: 5}), flag=HIDDEN)
    fetching.tables = {"Account": table}
    assert fetching.run()["tables"]["Account"]["mode"] == "records"
    refresh = fetching.document().tables["Account"]
    assert (refresh.mode, refresh.fetched) == ("records", 1)
    assert flag_after(HIDDEN, refresh, fetching.state) == HIDDEN
    assert "Account: flagged columns that the user of the connection may not read: Gone__c" in caplog.text
    assert "field-level security" in caplog.text


def test_a_hidden_field_costs_one_describe_call(fetching: Fetching) -> None:
    fetching.tables = {"Account": replace(fetching.table(), flag=HIDDEN)}
    before = len(fetching.org.requests("http"))
    with pytest.raises(AirflowSkipException, match="may not read any of the values"):
        fetching.run()
    asked = [request["method"] for request in fetching.org.requests("http")[before:]]
    (only,) = (method for method in asked if "/services/data/" in method)
    assert only.endswith("/sobjects/Account/describe")


def test_a_field_of_another_type_is_fetched_for_its_new_column(
    fetching: Fetching, caplog: pytest.LogCaptureFixture
) -> None:
    columns = {"NumberOfEmployees": "double", "NumberOfEmployees__int": "int"}
    flag = Flag("schema", "2026-01-01T00:00:00+00:00", 1, tuple(columns))
    table = replace(fetching.table(), columns=columns, flag=flag, fields={"NumberOfEmployees__int": "Data:Integer"})
    fetching.tables = {"Account": table}
    fetching.run()
    refresh = fetching.document().tables["Account"]
    assert (refresh.columns, refresh.hidden) == (("NumberOfEmployees__int", "NumberOfEmployees"), ())
    assert flag_after(flag, refresh, fetching.state) is None
    assert "become null, because the org has no field for them, or the user cannot read it: NumberOfEmployees" in (
        caplog.text
    )


def test_a_refresh_without_dirty_rows_is_skipped_without_calls(fetching: Fetching) -> None:
    fetching.tables = {"Account": fetching.table()}
    before = len(fetching.org.requests("http"))
    for arguments, reason in (
        ({}, "No row of the replica is dirty"),
        ({"tables": ["Account"]}, "No row of the replica is dirty"),
        ({"tables": [], "scope": "all"}, "The replica has no table yet"),
    ):
        with pytest.raises(AirflowSkipException, match=reason):
            fetching.run(**arguments)
    nowhere = RefreshReplicaOperator(task_id="refresh", output_url=f"{fetching.output.as_uri()}s")
    with pytest.raises(AirflowSkipException, match="There is no replica at output_url yet"):
        nowhere.execute(context_for("refresh"))
    assert len(fetching.org.requests("http")) == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"tables": ["Acount"]}, r"no table Acount\.(?s:.*)Its tables: Account(?s:.*)Nothing was fetched"),
        ({"tables": "Account"}, r"tables='Account' must be a list"),
        ({"output_url": " "}, r"output_url is empty"),
    ],
)
def test_invalid_refresh_arguments_are_refused_without_calls(
    fetching: Fetching, arguments: dict[str, Any], text: str
) -> None:
    fetching.tables = {"Account": fetching.table(flagged=True)}
    before = len(fetching.org.requests("http"))
    with pytest.raises(AirflowFailException, match=text):
        fetching.run(**arguments)
    assert (len(fetching.org.requests("http")), fetching.submitted) == (before, None)


@pytest.mark.parametrize("argument", ["bulk_threshold", "bulk_page_records", "keep_snapshots"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10"])
def test_invalid_numbers_are_refused_when_the_refresh_is_parsed(argument: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"{argument}=.* must be a whole number above zero"):
        SparkSubmitRefreshReplicaOperator(task_id="refresh", output_url="s3://lake", **{argument: value})


def test_a_connection_to_another_org_is_refused(
    fetching: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching.tables = {"Account": fetching.table(flagged=True)}
    with LocalOrg.running(tmp_path / "other") as other:
        set_connection(monkeypatch, "sf", **other.airflow_connection())
        with pytest.raises(
            AirflowFailException, match=rf"(?s)'sf' connects to the org {other.org_id}, .* {fetching.org.org_id}"
        ):
            fetching.run()
        asked = {request["method"] for request in other.requests("http")}
    assert (asked, fetching.submitted) == ({"POST /services/oauth2/token"}, None)


def test_an_object_hidden_from_the_user_fails_the_refresh(fetching: Fetching) -> None:
    fetching.tables = {"Secret__c": fetching.table(flagged=True)}
    with pytest.raises(
        AirflowFailException, match=r"(?s)Secret__c: its fields: .*'View All'.*The replica is unchanged"
    ):
        fetching.run()


def test_a_missing_list_of_dirty_rows_fails_the_refresh(fetching: Fetching, accounts: dict[str, str]) -> None:
    fetching.tables = {"Account": fetching.table({accounts["one"]: 1})}
    shutil.rmtree(fetching.output / "_sfstream/replica/dirty")
    with pytest.raises(LandingError, match=r"The list of dirty rows .*dirty/Account/list cannot be read"):
        fetching.run()


def test_a_refresh_without_simple_salesforce_names_the_extra(
    fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching.tables = {"Account": fetching.table(flagged=True)}
    monkeypatch.setitem(sys.modules, "simple_salesforce", None)
    with pytest.raises(AirflowFailException, match=r"airflow-provider-sfstream\[salesforce\]"):
        fetching.run()


SECRET = "Sekretnaja"


@pytest.mark.parametrize("part", ["FirstName", "LastName"])
@pytest.mark.parametrize(("how", "stored"), [("exclude", None), ("mask", "***")])
def test_a_fetched_name_contains_no_protected_part(
    part: str, how: str, stored: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SOQL builds the name of a contact and of a person account from parts that may be protected."""
    other = next(name for name in ("FirstName", "LastName") if name != part)
    rules = FieldRules.from_arguments(
        *([part] if how == each else [] for each in ("exclude", "mask", "hash"))
    ).recorded()
    flag = Flag("new", "2026-01-01T00:00:00+00:00", 1)
    kept = {name: "string" for name in ("FirstName", "LastName") if (name, how) != (part, "exclude")}
    hidden = {part.lower(): how}
    person = TableState("stream", columns=kept, flag=flag, rules=rules, hidden=hidden)
    # A job records only the fields that have a column.
    parts = dict.fromkeys(kept, "Data:PersonName")
    switchable = dict.fromkeys(("Name", *kept), SWITCHABLE_NAME)
    with LocalOrg.running(tmp_path / "org") as org:
        set_connection(monkeypatch, "sf", **org.airflow_connection())
        for entity in ("Contact", "Account"):
            org.rest("POST", f"/sobjects/{entity}", {part: SECRET, other: "Ada"})
        fetching = Fetching(org, tmp_path / "replica")
        fetching.tables = {
            "Contact": replace(person, fields=parts),
            "Account": replace(person, fields=switchable, columns={"Name": "string", **kept}),
        }
        fetching.run(computed_fields="on_fetch")
    for entity, name in (("Contact", stored), ("Account", None)):
        [line] = fetching.lines(entity)
        assert SECRET not in json.dumps(line)
        assert (line.get(part), line.get(other), line.get("Name")) == (stored, "Ada", name)


@pytest.mark.parametrize("how", ["mask", "hash"])
def test_a_masked_or_hashed_number_is_null(
    how: str, fetching: Fetching, accounts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "a key of sixteen or more characters"
    set_connection(monkeypatch, "key", conn_type="generic", password=key)
    rules = FieldRules.from_arguments(
        *(["AnnualRevenue"] if how == each else [] for each in ("exclude", "mask", "hash")), key
    )
    fetching.tables = {"Account": replace(fetching.table({accounts["one"]: 1}), rules=rules.recorded())}
    fetching.run(hash_conn_id="key")
    [line] = fetching.lines()
    assert (line["Name"], line.get("AnnualRevenue")) == ("one", None)


@pytest.mark.extended
def test_full_refresh_by_spark_submit(
    fetching: Fetching, accounts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in short_lived_environment().items():
        monkeypatch.setenv(name, value)
    set_connection(monkeypatch, "spark_local", conn_type="spark", host=MASTER)
    arguments = {"output_url": fetching.output.as_uri(), "salesforce_conn_id": "sf"}
    operator = SparkSubmitRefreshReplicaOperator(task_id="refresh", conn_id="spark_local", conf=SETTINGS, **arguments)
    check_full_refresh(operator, fetching, accounts)


def test_full_refresh_in_the_worker(fetching: Fetching, accounts: dict[str, str]) -> None:
    operator = RefreshReplicaOperator(task_id="refresh", output_url=fetching.output.as_uri(), salesforce_conn_id="sf")
    check_full_refresh(operator, fetching, accounts)
    with pytest.raises(AirflowSkipException):
        operator.execute(context_for("refresh"))


def check_full_refresh(operator: Any, fetching: Fetching, accounts: dict[str, str]) -> None:
    """Run a refresh operator for a flagged table; compare the table with the org."""
    fetching.tables = {"Account": fetching.table(flagged=True)}
    fetching.publish()
    result = operator.execute(context_for("refresh"))
    assert result | {"seconds": 0} == {"snapshot": 4, "tables": result["tables"], "seconds": 0}
    assert result["tables"]["Account"] | {"seconds": 0} == {
        **{"mode": "full", "fetched": len(accounts), "deleted": 1, "seconds": 0, "still_dirty": 0, "flag": None}
    }
    table = read_snapshot(fetching.output.as_uri(), None).tables["Account"]
    assert table.flag is None
    stored = DeltaTable(fetching.output / "Account", table.version).to_pyarrow_table()
    rows = {row["Id"]: row for row in stored.to_pylist()}
    assert rows.keys() == set(accounts.values())
    assert {row["_sequence"] for row in rows.values()} == {49}
    ada, one, binned = (rows[accounts[name]] for name in ("Ada", "one", "binned"))
    assert (ada["Name"], ada["FirstName"], ada["LastName"]) == (None, "Ada", "Lovelace")
    assert (one["Name"], one["AnnualRevenue"], one["_deleted"], one["_dirty"]) == ("one", 1.5, False, False)
    assert binned["_deleted"]
    assert not (fetching.output / FOLDER).exists()
