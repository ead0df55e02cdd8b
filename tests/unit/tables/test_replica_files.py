"""Number of files that a run writes for each table."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.tables.replica import delta_sink
from tests.support.change_lake import GADGET, WIDGET, ChangeLake, change
from tests.support.engines import embedded


def test_small_table_gets_one_file_beside_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_sink, "_MANY", 100)
    monkeypatch.setattr(delta_sink, "_FIRST_FILES", 4)
    lake = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engines"))
    events = []
    for number in range(1, 421):
        entity = GADGET if number % 14 == 0 else WIDGET
        id_ = f"{entity.key_prefix}{number:012d}AAA"
        events.append(change(number, "CREATE", [id_], f"t{number}", entity=entity, Name=f"name {number}"))
    lake.run(lake.land(*events))
    files = {name: lake.log(name).version().files for name in ("Gadget__c", "Widget__c")}
    assert [file["num_records"] for file in files["Gadget__c"].values()] == [30]
    assert len(files["Widget__c"]) == 390 // 100, "a table of many rows has several files"
    assert sum(file["num_records"] for file in files["Widget__c"].values()) == 390
