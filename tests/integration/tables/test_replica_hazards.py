"""Former causes of wrong tables after successful runs.

Schema changes, commit times out of order, undecodable events in held windows, replicas that are far behind, and users
who see only a part of the records.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.tables.replica import delta_sink, snapshot_store
from airflow_provider_sfstream.tables.replica import job as replica_job
from airflow_provider_sfstream.tables.replica.reader import read_history
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import START, WIDGET, ChangeLake, change
from tests.support.engines import BOTH_IN_TURN
from tests.support.landing_files import LandedEvent

ONE, TWO = "a0W000000000001AAA", "a0W000000000002AAA"


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> ChangeLake:
    return ChangeLake(spark, tmp_path, engine)


def broken(number: int, schema_id: str = "Widget__c") -> LandedEvent:
    return LandedEvent(number, schema_id, b"\xff\xff\xff")


def test_an_undecodable_event_does_not_end_a_transaction(lake: ChangeLake) -> None:
    events = [
        change(1, "CREATE", [ONE], "t1", Name="one"),
        change(2, "UPDATE", [ONE], "t2", Name="half"),
        broken(3),
        change(4, "CREATE", [TWO], "t2", Name="other"),
    ]
    metrics = lake.run(lake.land(*events, stop_reason="max_events"))
    assert (metrics.held, metrics.quarantined, lake.values("Name")) == (3, 0, {ONE: "one"})
    metrics = lake.run(lake.land(broken(5, "lost schema"), broken(6), stop_reason="max_events"))
    assert (metrics.held, lake.values("Name")) == (5, {ONE: "one"})
    metrics = lake.run(lake.land(change(7, "UPDATE", [TWO], "t3", Name="last"), stop_reason="max_events"))
    assert (metrics.held, lake.values("Name")) == (3, {ONE: "half", TWO: "other"})
    metrics = lake.run(lake.land())
    assert (metrics.held, lake.values("Name")) == (0, {ONE: "half", TWO: "last"})
    assert [row["ordinal"] for row in lake.quarantine()] == [2, 0, 1]


@pytest.mark.extended
@BOTH_IN_TURN
def test_undecodable_events_of_a_held_window_are_quarantined_and_counted_once(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one")))
    lake.refresh({"Id": ONE, "Name": "one", "_refreshed_at": "2026-01-10T00:00:01.000Z"})
    held = [broken(2), broken(3, "lost schema"), change(4, "UPDATE", [ONE], "t2", Name="two"), broken(5)]
    assert lake.run(lake.land(*held, change(6, "UPDATE", [ONE], "t3"), stop_reason="max_events")).quarantined == 2
    first = lake.quarantine()
    assert lake.snapshot().tables["Widget__c"].flag is not None
    lake.refresh({"Id": ONE, "Name": "two", "_refreshed_at": "2026-01-10T00:00:04.000Z"})
    assert lake.snapshot().tables["Widget__c"].flag is None
    rest = lake.land(change(7, "UPDATE", [ONE], "t4", Name="four"), stop_reason="max_events")
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "publish", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.run(rest)
    assert lake.run(rest).quarantined == 1
    assert [(row["ordinal"], row["window_id"].partition(".")[2]) for row in lake.quarantine()] == [
        (0, "replica-0"),
        (1, "replica-0"),
        (3, "replica-3"),
    ]
    assert lake.quarantine()[:2] == first
    flag = lake.snapshot().tables["Widget__c"].flag
    assert flag is not None, "the event at ordinal 3 belongs to this table and was applied only by this run"
    lake.refresh({"Id": ONE, "Name": "three", "_refreshed_at": "2026-01-10T00:00:06.000Z"})
    assert lake.run(lake.land()).quarantined == 0
    assert lake.snapshot().tables["Widget__c"].flag is None
    assert len(lake.quarantine()) == 3


@pytest.mark.parametrize("history", [pytest.param(False, marks=pytest.mark.extended), True])
@BOTH_IN_TURN
def test_changes_around_a_fetch_are_ordered_by_their_commit_times(lake: ChangeLake, history: bool) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="one", Amount__c=1.0)), history=history)
    fetched = {"Name": "fetched", "Amount__c": "2.0", "_refreshed_at": "2026-01-10T00:01:40.000Z"}
    lake.refresh({"Id": ONE, **fetched}, {"Id": TWO, **fetched}, history=history)
    events = [
        change(2, "UPDATE", [ONE], "t2", committed=101, Name="newer"),
        change(3, "UPDATE", [ONE], "t3", committed=99, Amount__c=9.0),
        change(4, "GAP_UPDATE", [TWO], "t4", committed=98),
        change(5, "UPDATE", [TWO], "t5", committed=102, Name="newest"),
        change(6, "UPDATE", [TWO], "t6", committed=97, Name="older"),
    ]
    lake.run(lake.land(*events), history=history)
    assert lake.values("Name") == {ONE: "newer", TWO: "newest"}
    assert lake.values("Amount__c") == {ONE: 2.0, TWO: 2.0}
    assert lake.values("_dirty") == {ONE: False, TWO: False}
    assert lake.values("_sequence") == {ONE: 3, TWO: 6}
    assert {id_: (row["_transaction_key"], row["_commit_time"].second) for id_, row in lake.rows().items()} == {
        ONE: ("t2", 41),
        TWO: ("t5", 42),
    }
    if history:
        versions = read_history(lake.spark, lake.output, "Widget__c").orderBy("Id", "_valid_from").collect()
        spans = [(row["Id"], row["Name"], row["_valid_from"], row["_valid_to"]) for row in versions]
        assert [(id_, name) for id_, name, _, _ in spans] == [
            (ONE, "one"),
            (ONE, "fetched"),
            (ONE, "newer"),
            (TWO, "one"),
            (TWO, "fetched"),
            (TWO, "newest"),
        ]
        for one, other in itertools.pairwise(spans):
            assert one[3] == (other[2] if one[0] == other[0] else None)


@pytest.mark.extended
@BOTH_IN_TURN
def test_merged_files_of_a_history_keep_its_versions(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_sink, "_SMALL_FILES", 2)
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="1")), history=True)
    files = []
    for number in range(2, 7):
        lake.run(lake.land(change(number, "UPDATE", [ONE], f"t{number}", Name=str(number))), keep_snapshots=2)
        files.append(len(lake.log("Widget__c__history").version().files))
    assert files == [1, 2, 1, 2, 1]
    versions = read_history(lake.spark, lake.output, "Widget__c").orderBy("_sequence").collect()
    assert [(row["Name"], row["_is_current"]) for row in versions] == [(str(n), n == 6) for n in range(1, 7)]
    before = read_history(lake.spark, lake.output, "Widget__c", snapshot=lake.snapshot().number - 1)
    assert before.count() == 5
    # Two snapshots with three files are kept. The file that the last run wrote and merged is deleted later.
    assert len(list((Path(lake.output) / "Widget__c__history").glob("*.parquet"))) <= 4


@pytest.mark.extended
def test_a_replica_that_is_far_behind_is_updated_in_steps(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_job, "WINDOWS_AT_ONCE", 4)
    monkeypatch.setattr(snapshot_store, "PAGE", 4)
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="1")))
    manifests = [
        lake.land(change(n, "UPDATE", [ONE], f"t{n // 3}", Name=str(n)), stop_reason="max_events") for n in range(2, 20)
    ]
    metrics = lake.run(manifests[-1])
    assert (metrics.events, metrics.held, lake.snapshot().number) == (18, 2, 6)
    assert lake.values("Name") == {ONE: "17"}
    (state,) = lake.snapshot().streams.values()
    assert (len(state.recent), state.pages) == (7, 3)
    before = lake.snapshot()
    for old in (manifests[0], manifests[7], manifests[-1]):
        assert lake.run(old).windows == []
    assert lake.snapshot() == before


def schema_flag(lake: ChangeLake) -> tuple[str, ...] | None:
    """Return the columns for which the table is flagged because of its schema; None if it has no flag."""
    flag = lake.snapshot().tables["Widget__c"].flag
    assert flag is None or flag.reason == "schema"
    return flag and flag.columns


@BOTH_IN_TURN
def test_added_changed_and_removed_fields_flag_their_columns(lake: ChangeLake) -> None:
    def entity(name: str, *fields: Field) -> Entity:
        changed = dataclasses.replace(WIDGET, fields=fields)
        lake.schemas[name] = changed.schema()
        return changed

    def event(number: int, type_: str, entity_: Entity, schema_id: str, **values: Any) -> LandedEvent:
        made = change(number, type_, [ONE if number < 3 else TWO], f"t{number}", entity=entity_, **values)
        return dataclasses.replace(made, schema_id=schema_id)

    stamp = {"_refreshed_at": "2026-01-10T00:00:01.000Z"}
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="one", Amount__c=1.0)))
    lake.refresh(*({"Id": id_, "Name": "one", "Amount__c": "1.0", **stamp} for id_ in (ONE, TWO)))
    assert schema_flag(lake) is None
    more = entity("more", *WIDGET.fields, Field("Active__c", "Boolean"))
    lake.run(lake.land(event(2, "UPDATE", more, "more", Name="two")))
    assert schema_flag(lake) == ("Active__c",)
    lake.refresh({"Id": ONE, "Active__c": "false"}, {"Id": TWO, "Active__c": "true"}, mode="columns")
    assert (schema_flag(lake), lake.values("Active__c")) == (None, {ONE: False, TWO: True})
    assert lake.values("Name") == {ONE: "two", TWO: "one"}, "the refresh changed no other column"
    text = entity("text", Field("Name", "Text"), Field("Amount__c", "Text"), *more.fields[2:])
    lake.run(lake.land(event(3, "UPDATE", text, "text", Amount__c="3 pieces")))
    assert schema_flag(lake) == ("Amount__c", "Amount__c__string")
    # A column whose field the org no longer has becomes null.
    fetched = [{"Id": id_, "Amount__c__string": "1 piece"} for id_ in (ONE, TWO)]
    lake.refresh(*fetched, mode="columns", columns=("Amount__c", "Amount__c__string"))
    assert (schema_flag(lake), lake.values("Amount__c")) == (None, {ONE: None, TWO: None})
    assert set(lake.values("Amount__c__string").values()) == {"1 piece"}
    few = entity("few", *(field for field in text.fields if field.name != "Place__c"))
    lake.run(lake.land(event(4, "UPDATE", text, "text", Name="four"), event(5, "UPDATE", few, "few", Name="five")))
    assert schema_flag(lake) == ("Place__Latitude__s", "Place__Longitude__s")
    # The field was deleted and created again, so the schema has another field ID.
    active = next(field for field in text.schema()["fields"] if field["name"] == "Active__c")
    lake.schemas["again"] = json.loads(json.dumps(text.schema()).replace(active["doc"], "Data:Boolean:00N000000000009"))
    lake.run(lake.land(event(6, "UPDATE", text, "again", Name="six")))
    assert schema_flag(lake) == ("Active__c", "Place__Latitude__s", "Place__Longitude__s")
    gap = Gap((2).to_bytes(10, "big"), None, START, START, "expired")
    lake.run(lake.land(event(7, "UPDATE", text, "again", Name="seven"), gap=gap))
    flag = lake.snapshot().tables["Widget__c"].flag
    assert flag is not None
    assert (flag.reason, flag.columns) == ("gap", ("Active__c", "Place__Latitude__s", "Place__Longitude__s"))


@pytest.mark.parametrize("deletes", ["soft", pytest.param("hard", marks=pytest.mark.extended)])
def test_a_full_fetch_that_lacks_many_records_is_refused(lake: ChangeLake, deletes: Any) -> None:
    ids = [f"a0W{number:012d}AAA" for number in range(30)]
    lake.run(lake.land(change(1, "CREATE", ids, "t1", Name="one")), deletes=deletes)
    lines = [{"Id": id_, "Name": "one", "_refreshed_at": "2026-01-10T00:00:01.000Z"} for id_ in ids]
    before = lake.snapshot()
    with pytest.raises(ConfigurationError, match=r"no record for 11 of 30 rows .*max_deleted_fraction=0\.2"):
        lake.refresh(*lines[:19], deletes=deletes)
    assert lake.snapshot() == before
    in_bin = [line | {"_deleted": "true"} for line in lines[19:25]]
    lake.refresh(*lines[:19], *in_bin, deletes=deletes)
    states = {id_: row["_deleted"] for id_, row in lake.rows().items()}
    assert [id_ for id_ in ids if not states.get(id_, True)] == ids[:19]
    lake.refresh(*lines[:2], deletes=deletes, max_deleted_fraction=1.0)
    assert [id_ for id_, row in sorted(lake.rows().items()) if not row["_deleted"]] == ids[:2]


def test_a_refresh_uses_the_recorded_deletes_choice_of_the_table(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="one")), deletes="hard", history=True)
    lines = [{"Id": id_, "Name": "one", "_refreshed_at": "2026-01-10T00:00:01.000Z"} for id_ in (ONE, TWO)]
    lines[0]["_deleted"] = "true"
    lake.refresh(*lines)
    assert lake.rows().keys() == {TWO}
    assert lake.snapshot().tables["Widget__c"].deletes == "hard"
    with pytest.raises(ConfigurationError, match=r"tables Widget__c .*deletes='hard'.*deletes='soft'"):
        lake.refresh(*lines, deletes="soft")
    assert lake.snapshot().number == 2


def test_the_history_of_a_row_missing_by_id_ends_at_the_time_of_the_refresh(lake: ChangeLake) -> None:
    """A flag of columns that the user may not read can be months old."""
    gap = change(2, "GAP_UPDATE", [ONE], "t2")
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one"), gap), deletes="hard", history=True)
    assert lake.snapshot().tables["Widget__c"].flag is not None
    began = datetime.now(UTC)
    lake.refresh({"Id": ONE, "_found": "false", "_sequence": "2"}, mode="records")
    assert lake.rows() == {}
    ends = [row["_valid_to"] for row in read_history(lake.spark, lake.output, "Widget__c").collect()]
    assert max(ends).timestamp() >= began.timestamp()


@pytest.mark.extended
def test_a_fetch_by_id_that_lacks_many_records_is_refused(lake: ChangeLake) -> None:
    ids = [f"a0W{number:012d}AAA" for number in range(30)]
    lake.run(lake.land(change(1, "CREATE", ids, "t1", Name="one")))
    lake.run(lake.land(change(2, "GAP_UPDATE", ids[:20], "t2")))
    lines = [{"Id": id_, "_found": "false", "_sequence": "2"} for id_ in ids[:11]]
    found = [{"Id": id_, "Name": "one", "_sequence": "2"} for id_ in ids[11:20]]
    before = lake.snapshot()
    with pytest.raises(ConfigurationError, match=r"no record for 11 of 30 rows .*max_deleted_fraction=0\.2"):
        lake.refresh(*lines, *found, mode="records", columns=["Name"])
    assert lake.snapshot() == before
    lake.refresh(*lines[:10], *found, mode="records", columns=["Name"])
    lake.refresh(*lines[10:], mode="records", columns=["Name"], max_deleted_fraction=1.0)
    assert [id_ for id_, row in sorted(lake.rows().items()) if row["_deleted"]] == ids[:11]


@pytest.mark.extended
def test_rows_changed_during_a_fetch_of_columns_become_dirty(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="one", Amount__c=1.0)))
    with lake.refreshing({"Id": ONE, "Amount__c": "5.0"}, {"Id": TWO, "Amount__c": "5.0"}, mode="columns") as url:
        lake.run(lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"), change(3, "GAP_UPDATE", [TWO], "t3")))
    lake.run(refresh_url=url)
    assert lake.values("Amount__c") == {ONE: 1.0, TWO: 1.0}
    assert lake.values("_dirty_reason") == {ONE: "changed_while_refreshed", TWO: "gap"}
    flag = lake.snapshot().tables["Widget__c"].flag
    assert flag is not None, "the table is new and only one of its columns was fetched, so its flag remains"
