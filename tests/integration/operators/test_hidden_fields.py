"""Field protection in the operators that run in the worker: no byte of a protected value is in the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.privacy.field_rules import FieldRules
from tests.support.localorg import LocalOrg
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for, set_connection

TOPIC = "/data/AccountChangeEvent"
MARK = "MARKED"
KEY = "a key of sixteen or more characters"
HASHES = FieldRules.from_arguments([], [], ["Website"], KEY)


def record(number: int) -> dict[str, Any]:
    marked = {"Phone": f"{MARK} {number}", "BillingStreet": MARK, "Fax": MARK, "Website": f"{MARK}{number}.org"}
    return {"Name": f"Account {number}", "BillingCity": "Graz", **marked}


def test_tables_contain_no_protected_value_and_all_other_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, "key", conn_type="generic", password=KEY)
    with LocalOrg.running(tmp_path / "org") as org:
        org.knobs(keepalive_seconds=0.3)
        set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
        ids = [str(org.rest("POST", "/sobjects/Account", record(number))["id"]) for number in range(3)]
        changes = {"Phone": f"{MARK}!", "Industry": "Energy", "BillingCity": None}
        org.rest("PATCH", f"/sobjects/Account/{ids[1]}", changes)
        changes = {"BillingStreet": f"{MARK}?", "BillingCity": "Linz", "Fax": None}
        org.rest("PATCH", f"/sobjects/Account/{ids[2]}", changes)
        drain = DrainReplayWindowOperator(
            task_id="drain",
            topic=TOPIC,
            landing_url=str(tmp_path / "landing"),
            replay_store="landing",
            idle_timeout=1.0,
        )
        result = drain.execute(context_for("drain"))
    assert files_with(tmp_path / "landing", MARK), "the landing contains the values, and the search finds them"

    output = str(tmp_path / "tables")
    rules: dict[str, Any] = {
        "exclude_fields": ["Phone", "BillingAddress.Street"],
        "mask_fields": ["Fax"],
        "hash_fields": ["Website"],
        "hash_conn_id": "key",
    }
    EventLogOperator(task_id="log", windows=result, output_url=output, **rules).execute(context_for("log"))
    ReplicaOperator(task_id="replica", windows=result, output_url=output, **rules).execute(context_for("replica"))
    assert files_with(tmp_path / "tables", MARK) == []
    found = {row["Id"]: row for row in DeltaTable(tmp_path / "tables/Account").to_pyarrow_table().to_pylist()}
    names = ("Name", "Industry", "BillingCity", "Fax")
    assert [tuple(found[each][name] for name in names) for each in ids] == [
        ("Account 0", None, "Graz", "***"),
        ("Account 1", "Energy", None, "***"),
        ("Account 2", None, "Linz", None),
    ]
    assert [found[each]["Website"] for each in ids] == [HASHES.text(record(n)["Website"], "hash") for n in range(3)]
    assert not found[ids[0]].keys() & {"Phone", "BillingStreet"}
    hidden = read_snapshot(output, None).tables["Account"].hidden
    assert {column for column, how in hidden.items() if how == "exclude"} == {"phone", "billingstreet"}
    assert len(DeltaTable(tmp_path / "tables/AccountChangeEvent").to_pyarrow_table()) == 5
