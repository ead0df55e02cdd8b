"""Landings that no drain has written: changed files, and schemas that could crash a job."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import check_files
from airflow_provider_sfstream.tables.runner import on_spark
from tests.support.change_lake import ChangeLake, change
from tests.support.event_log import Lake
from tests.support.hostile_schemas import HOSTILE
from tests.support.landing_files import LandedEvent

SCHEMA = {
    "type": "record",
    "name": "Order__e",
    "fields": [{"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}, {"name": "N__c", "type": "int"}],
}
CREATED = 1_768_006_923_004


def order(number: int, schema_id: str = "good") -> LandedEvent:
    record: Any = {"CreatedDate": CREATED, "N__c": number} if schema_id == "good" else b"\x02" * 1000
    return LandedEvent(number, schema_id, record)


def part_of(manifest: str) -> Path:
    return next(Path(manifest.removeprefix("file://")).parent.glob("*.parquet"))


def forge(part: Path) -> None:
    """Replace the payload of one event without a change of the row count."""
    table = pq.read_table(part)
    payloads = table.column("payload").to_pylist()
    payloads[0] = payloads[1]
    table = table.set_column(table.schema.get_field_index("payload"), "payload", pa.array(payloads, pa.binary()))
    pq.write_table(table, part)


def test_a_changed_file_is_not_written_to_an_event_log(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    first, second = (lake.land(f"w{n}", [order(n), order(n + 1)], {"good": SCHEMA}) for n in (1, 3))
    forge(part_of(second))
    with pytest.raises(ConfigurationError, match=r"part-.*parquet differs from .* Nothing was written"):
        lake.run(first, second)
    assert not lake.output.exists() or not lake.files()
    assert lake.run(first).rows_written == 2
    assert lake.run(first, second, verify_files=False).rows_written == 4, (
        "without verification the job writes the changed file"
    )


def test_a_changed_file_is_not_written_to_a_replica(spark: Any, tmp_path: Path) -> None:
    lake = ChangeLake(spark, tmp_path)
    events = [change(n, "CREATE", [f"a0W00000000000{n}AAA"], f"t{n}", Name=f"n{n}") for n in (1, 2)]
    manifest = lake.land(*events)
    forge(part_of(manifest))
    with pytest.raises(ConfigurationError, match="differs from the manifest of its window"):
        lake.run(manifest)
    assert lake.run(manifest, verify_files=False).events == 2


def test_nothing_is_written_when_the_file_check_ends_after_the_rows_are_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path)
    manifest = lake.land("w1", [order(1), order(2)], {"good": SCHEMA})
    forge(part_of(manifest))
    rows_collected = threading.Event()
    collect = type(spark.range(0)).collect

    def collected(rows: Any) -> Any:
        found = collect(rows)
        rows_collected.set()
        return found

    def late(*arguments: Any) -> None:
        assert rows_collected.wait(60)
        check_files(*arguments)

    monkeypatch.setattr(type(spark.range(0)), "collect", collected)
    monkeypatch.setattr(on_spark, "check_files", late)
    with pytest.raises(ConfigurationError, match="Nothing was written"):
        lake.run(manifest)
    assert not lake.output.exists() or not lake.files()


def test_events_with_hostile_schemas_are_quarantined(spark: Any, tmp_path: Path) -> None:
    """One window contains all hostile schemas and also valid events."""
    lake = Lake(spark, tmp_path)
    hostile = {f"hostile{number}": schema for number, (schema, _) in enumerate(HOSTILE.values())}
    hostile["surrogate"] = {**SCHEMA, "doc": "\ud800"}
    numbers = iter(range(1, 1000))
    events = [order(next(numbers)), *(order(next(numbers), name) for name in hostile), order(next(numbers))]
    metrics = lake.run(lake.land("w1", events, {"good": SCHEMA, **hostile}))
    assert (metrics.rows_written, metrics.quarantined) == (2, len(hostile))
    reasons = {row["schema_id"]: row["reason"] for row in lake.rows("_quarantine")}
    assert reasons.keys() == hostile.keys()
    assert "contains itself" in reasons["hostile0"]


def test_change_events_with_hostile_schemas_flag_their_table(spark: Any, tmp_path: Path) -> None:
    lake = ChangeLake(spark, tmp_path)
    header = lake.schemas["Widget__c"]["fields"][0]
    lake.schemas["hostile"] = {
        "type": "record",
        "name": "Widget__ChangeEvent",
        "fields": [header, {"name": "Parent", "type": ["null", "Widget__ChangeEvent"]}],
    }
    lake.schemas["headless"] = {
        "type": "record",
        "name": "Widget__ChangeEvent",
        "fields": [{"name": "a", "type": "int"}],
    }
    good = change(1, "CREATE", ["a0W000000000001AAA"], "t1", Name="n1")
    bad = [LandedEvent(number, name, b"\x02" * 1000) for number, name in ((2, "hostile"), (3, "headless"))]
    metrics = lake.run(lake.land(good, *bad, change(4, "CREATE", ["a0W000000000002AAA"], "t4", Name="n2")))
    assert (metrics.events, metrics.quarantined) == (4, 2)
    assert set(lake.values("Name").values()) == {"n1", "n2"}
    assert metrics.tables["Widget__c"].flag is not None


@pytest.mark.parametrize("name", ["a` string, `b", "a.b", "a;DROP TABLE x", "a'b", "é"])
def test_an_invalid_field_name_gets_no_column(spark: Any, tmp_path: Path, name: str) -> None:
    lake = ChangeLake(spark, tmp_path)
    widget = json.loads(json.dumps(lake.schemas["Widget__c"]))
    widget["fields"].append({"name": name, "type": ["null", "string"]})
    lake.schemas["crafted"] = widget
    good = change(1, "CREATE", ["a0W000000000001AAA"], "t1", Name="n1")
    assert lake.run(lake.land(good, LandedEvent(2, "crafted", b"\x00"))).quarantined == 1
    assert name not in next(iter(lake.rows().values()))
