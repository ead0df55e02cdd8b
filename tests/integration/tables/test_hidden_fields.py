"""Field protection of tables, on each engine: rows, quarantines and refreshes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from deltalake import DeltaTable

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE, NO_RULES, FieldRules
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER
from airflow_provider_sfstream.tables.runner.engine import Engine
from tests.support.engines import embedded, engine_of
from tests.support.json_windows import JsonEvent, land_json_window
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.localorg import LocalOrg
from tests.support.marked_bytes import files_with
from tests.support.org_workload import RandomWindows
from tests.support.refreshing import refresh
from tests.support.secret_sweep import SecretSweep
from tests.support.spark import SETTINGS, short_lived_environment
from tests.support.tasks import context_for, set_connection

KEY = "a key of sixteen or more characters"
MARK = "MARKED"
"""Marker in every value that must not be stored."""
RULES = FieldRules.from_arguments(["Place__c.Street", "Secret__c"], ["Person__c"], ["Email__c"], KEY)
PLACE = {"type": "record", "name": "Place", "fields": [{"name": name, "type": "string"} for name in ("Street", "City")]}
VISIT = {
    "type": "record",
    "name": "Visit__e",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "Person__c", "type": ["null", "string"]},
        {"name": "Email__c", "type": ["null", "string"]},
        {"name": "Secret__c", "type": ["null", "string"]},
        {"name": "Place__c", "type": ["null", PLACE]},
    ],
}


def visit(number: int, email: str | None = None) -> LandedEvent:
    record = {
        "CreatedDate": 1_768_000_000_000 + number,
        "Person__c": f"{MARK} {number}",
        "Email__c": email,
        "Secret__c": MARK,
        "Place__c": {"Street": MARK, "City": f"City {number}"},
    }
    return LandedEvent(number, "one", record)


def land(folder: Path, window_id: str, *events: LandedEvent) -> str:
    return land_window(folder / "landing", window_id, list(events), {"one": VISIT})


def arguments_of(rules: FieldRules) -> dict[str, Any]:
    """Return the config arguments for these rules."""
    fields = {"exclude_fields": rules.exclude, "mask_fields": rules.mask, "hash_fields": rules.hash}
    return {**fields, "hash_key": rules.key.decode() or None}


class Log:
    """An event log in a temporary folder."""

    def __init__(self, folder: Path, engine: Callable[[], Engine]) -> None:
        self.output, self._engine = folder / "tables", engine

    def run(self, *manifests: str, rules: FieldRules = RULES) -> EventLogMetrics:
        config = EventLogConfig(manifests=manifests, output_url=self.output.as_uri(), **arguments_of(rules))
        return run_event_log(self._engine(), config)

    def rows(self, table: str = "Visit__e") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.output / table).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: str(row.get("Person__c")))


@pytest.fixture
def log(tmp_path: Path, engine: Any) -> Log:
    return Log(tmp_path, engine)


def test_tables_and_quarantine_contain_no_protected_value(log: Log, tmp_path: Path) -> None:
    damaged = LandedEvent(3, "one", encode(VISIT, visit(3).record)[:-3])  # type: ignore[arg-type]
    unknown = LandedEvent(4, "none", MARK.encode())
    first = land(tmp_path, "w1", visit(1, "ada@example.com"), visit(2), damaged, unknown)
    metrics = log.run(first)
    assert (metrics.rows_written, metrics.quarantined) == (2, 2)
    assert files_with(log.output, MARK) == []
    assert files_with(log.output, "ada@") == []
    assert files_with(log.output, KEY) == []
    assert len(files_with(tmp_path / "landing", MARK)) == 1, "the landing contains the protected values"
    hashed = RULES.text("ada@example.com", "hash")
    rows = log.rows()
    assert [(row["Person__c"], row["Place__c"]) for row in rows] == [
        ("***", {"City": "City 1"}),
        ("***", {"City": "City 2"}),
    ]
    assert {row["Email__c"] for row in rows} == {hashed, None}
    assert "Secret__c" not in rows[0]
    failed_rows = log.rows("_quarantine")
    assert [row["payload"] for row in failed_rows] == [None, None]
    assert {row["replay_id"] for row in failed_rows} == {damaged.replay_id, unknown.replay_id}
    assert all(row["reason"] for row in failed_rows)
    log.run(first, land(tmp_path, "w2", visit(5, "ada@example.com")))
    assert [row["Email__c"] for row in log.rows()].count(hashed) == 2


def test_a_job_without_the_rules_of_its_table_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(tmp_path, lambda: embedded(tmp_path / "engine"))
    log.run(land(tmp_path, "w1", visit(1)))
    second = land(tmp_path, "w2", visit(2))
    before = log.rows()
    for rules, text in (
        (NO_RULES, r"The table Visit__e .* the field has no rule.*Nothing was written"),
        (FieldRules.from_arguments(RULES.exclude, [], ["Email__c"], KEY), r"mask_fields=\['Person__c'\]"),
        (FieldRules.from_arguments(RULES.exclude, RULES.mask, RULES.hash, KEY * 2), "another key"),
        (
            FieldRules.from_arguments([*RULES.exclude, "Place__c.City"], RULES.mask, RULES.hash, KEY),
            r"Visit__e contains unprotected values of Place__c.City: it was created without a rule",
        ),
    ):
        with pytest.raises(ConfigurationError, match=text):
            log.run(second, rules=rules)
    only_undecodable = land(tmp_path, "w3", LandedEvent(3, "none", MARK.encode()))
    with pytest.raises(ConfigurationError, match="Nothing was written"):
        log.run(only_undecodable, rules=NO_RULES)
    assert log.rows() == before
    assert files_with(log.output, MARK) == []
    later = FieldRules.from_arguments([*RULES.exclude, "New__c"], RULES.mask, RULES.hash, KEY)
    log.run(second, rules=later)
    assert "No table of these events has a field New__c:" in caplog.text
    with pytest.raises(ConfigurationError, match=r"exclude_fields=\['New__c'\]"):
        log.run(second)


def test_field_protection_of_events_without_a_schema(log: Log, tmp_path: Path) -> None:
    body = {"Name": MARK, "Phone": MARK, "Parts": {"Inner": MARK, "Other": "kept"}, "Kept": "kept"}
    event = JsonEvent(1, {"event": {"createdDate": "2026-01-10T00:00:00.000Z", "type": "created"}, "sobject": body})
    manifest = land_json_window(tmp_path / "landing", "20260110T000000Z-a", "/topic/Accounts", [event])
    metrics = log.run(manifest, rules=FieldRules.from_arguments(["NAME", "Parts.Inner"], ["phone"], []))
    assert (metrics.rows_written, metrics.quarantined) == (1, 0)
    assert files_with(log.output, MARK) == []
    assert files_with(log.output, "kept")


ACCOUNTS: list[dict[str, Any]] = [
    {"Name": f"Account {n}", "Phone": f"{MARK} {n}", "Website": f"{MARK}.org/{n}", "Fax": MARK, "BillingStreet": MARK}
    for n in range(4)
]


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as org:
        org.admin("POST", "/entities/Account/fields", {"name": "Call__c", "type": "Text", "formula": "Phone"})
        set_connection(monkeypatch, "sf", **org.airflow_connection())
        set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
        yield org


def test_a_replica_and_its_refreshes_contain_no_protected_value(spark: Any, org: LocalOrg, tmp_path: Path) -> None:
    folder, engine = tmp_path / "replica", engine_of("in turn", spark, tmp_path / "engines")
    rules = FieldRules.from_arguments(
        ["Phone", "Call__c", "BillingAddress.Street"], ["Fax"], ["Website", "AnnualRevenue"], KEY
    )
    seen: list[str] = []
    with RandomWindows(org, tmp_path / "lake", 7) as windows:

        def apply(rules: FieldRules = rules) -> None:
            done = len(windows.manifests)
            windows.drain_rest(1_000)
            manifests = tuple(windows.manifests[done:])
            run(engine(), ReplicaConfig(output_url=folder.as_uri(), manifests=manifests, **arguments_of(rules)))

        def rows() -> dict[str, Any]:
            return {row["Id"]: row.asDict() for row in read_replica(spark, folder.as_uri(), "Account").collect()}

        ids = [str(org.rest("POST", "/sobjects/Account", record)["id"]) for record in ACCOUNTS]
        apply()
        made = rows()
        assert {made[each]["Website"] for each in ids} == {rules.text(r["Website"], "hash") for r in ACCOUNTS}
        assert {made[each]["Fax"] for each in ids} == {"***"}
        assert not {"Phone", "BillingStreet", "Call__c"} & made[ids[0]].keys()

        org.admin("POST", "/entities/Account/gaps", {"percent": 100})
        org.rest("PATCH", f"/sobjects/Account/{ids[0]}", {"Website": f"{MARK}.com", "Phone": f"{MARK}!", "Fax": None})
        org.admin("POST", "/entities/Account/gaps", {"percent": 0})
        apply()
        arguments = {"output_url": folder.as_uri(), "salesforce_conn_id": "sf"}
        with pytest.raises(Exception, match="The key for the hash of Website, AnnualRevenue is missing"):
            refresh(spark, **arguments)

        def look() -> None:
            seen.extend(path.read_text() for path in (folder / FOLDER).rglob("*.jsonl"))

        refresh(spark, hash_conn_id="key", scope="all", before_job=look, **arguments)
        assert sum(text.count('"Id"') for text in seen) == len(ACCOUNTS)
        assert not any(MARK in text or "Call__c" in text for text in seen)
        after = rows()
        assert after[ids[0]]["Website"] == rules.text(f"{MARK}.com", "hash")
        assert after[ids[0]]["Fax"] is None
        same = ("Website", "Fax", "Name", "BillingCity")
        assert [[after[each][name] for name in same] for each in ids[1:]] == [
            [made[each][name] for name in same] for each in ids[1:]
        ]
        assert not {"Phone", "BillingStreet", "Call__c"} & after[ids[0]].keys()
        verified = refresh(spark, scope="all", verify=True, hash_conn_id="key", **arguments)["tables"]
        found = verified["Account"]["records"]
        assert found["different"] == found["missing"] == 0
        assert files_with(folder, MARK) == []

        org.rest("PATCH", f"/sobjects/Account/{ids[1]}", {"Phone": MARK})
        with pytest.raises(
            ConfigurationError, match=r"Account of .* exclude_fields=\['Phone'\].*the field has no rule"
        ):
            apply(NO_RULES)
        assert rows() == after


@pytest.mark.extended
def test_the_hash_key_reaches_the_driver_but_no_log_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    for name, value in short_lived_environment().items():
        monkeypatch.setenv(name, value)
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    output = tmp_path / "tables"
    operator = SparkSubmitEventLogOperator(
        task_id="event_log",
        windows=land(tmp_path, "w1", visit(1, "ada@example.com")),
        output_url=str(output),
        conf=dict(SETTINGS),
        hash_fields=["Email__c"],
        hash_conn_id="key",
    )
    sweep = SecretSweep({"key": KEY, "argument": "hash_fields"})
    with structlog.testing.capture_logs() as logged, sweep.command_lines():
        operator.execute(context_for("event_log"))
    (row,) = DeltaTable(output / "Visit__e").to_pyarrow_table().to_pylist()
    assert row["Email__c"] == RULES.text("ada@example.com", "hash")
    sweep.search("the log", json.dumps(logged, default=str).encode())
    sweep.files(output)
    assert {found.partition(":")[0] for found in sweep.found} == {"argument"}, (
        "the sweep has read the driver's command line"
    )
    assert HASH_KEY_VARIABLE not in os.environ
