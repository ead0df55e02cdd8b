"""Replica job on handmade windows: chain of windows, transactions, undecodable events and interrupted runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError, PositionConflictError
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.tables.replica import job as replica_job
from airflow_provider_sfstream.tables.replica.reader import read_history
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import GADGET, START, ChangeLake, change
from tests.support.engines import BOTH_IN_TURN
from tests.support.landing_files import LandedEvent

ONE, TWO = "a0W000000000001AAA", "a0W000000000002AAA"
OTHER = "a0G000000000001AAA"


def numbered(number: int) -> str:
    return f"a0W{number:012d}AAA"


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> ChangeLake:
    return ChangeLake(spark, tmp_path, engine)


@pytest.mark.usefixtures("compiled")
def test_rows_have_the_position_and_transaction_of_their_last_event(lake: ChangeLake) -> None:
    created = change(
        1, "CREATE", [ONE], "t1", Name="one", Amount__c=1.5, Place__Latitude__s=1.0, Place__Longitude__s=2.0
    )
    lake.run(lake.land(created, change(2, "UPDATE", [ONE], "t2", Amount__c=None)))
    row = lake.rows()[ONE]
    assert (row["Name"], row["Amount__c"], row["Place__Latitude__s"], row["Place__Longitude__s"]) == (
        "one",
        None,
        1.0,
        2.0,
    )
    assert (row["_deleted"], row["_dirty"], row["_sequence"], row["_transaction_key"]) == (False, False, 2, "t2")
    assert bytes(row["_replay_id"]) == (2).to_bytes(8, "big") + b"\0\0"
    assert row["_commit_time"].astimezone(START.tzinfo).timestamp() == START.timestamp() + 2
    table = lake.snapshot().tables["Widget__c"]
    assert table.flag is not None
    assert (table.flag.reason, table.dirty, table.dirty_list) == ("new", 0, None)


@BOTH_IN_TURN
def test_windows_are_applied_once_in_any_order_and_repetition(lake: ChangeLake) -> None:
    first = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    second = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))
    third = lake.land(change(3, "DELETE", [ONE], "t3"))
    assert lake.run(first).windows == ["20260110T000000Z-window0"]
    # The second run failed. The job of the third run applies its window too, so the retry has nothing to do.
    assert lake.run(third).windows == ["20260110T000100Z-window1", "20260110T000200Z-window2"]
    rows, snapshot, files = lake.rows(), lake.snapshot(), lake.files()
    for manifests in ([second], [third], [first, second, third], [third, first]):
        metrics = lake.run(*manifests)
        assert (metrics.windows, metrics.events, metrics.snapshot) == ([], 0, snapshot.number)
    assert (lake.rows(), lake.snapshot(), lake.files()) == (rows, snapshot, files)
    assert rows[ONE]["_deleted"]
    assert rows[ONE]["Name"] == "two"


def test_windows_before_the_first_applied_one_are_not_applied(lake: ChangeLake) -> None:
    first = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    second = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))
    lake.run(second)
    assert lake.rows()[ONE]["_dirty_reason"] == "unknown_record"
    assert lake.run(first).windows == []
    assert lake.run(lake.land(), first).windows == ["20260110T000200Z-window2"]


def test_a_missing_window_between_two_others_fails_the_run(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one")))
    between = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))
    third = lake.land(change(3, "UPDATE", [ONE], "t3", Amount__c=3.0))
    Path(between.removeprefix("file://")).unlink()
    before = lake.snapshot()
    with pytest.raises(ManifestError, match=r"no manifest at .*window1"):
        lake.run(third)
    assert lake.snapshot() == before


@BOTH_IN_TURN
def test_a_transaction_over_two_tables_becomes_visible_completely(lake: ChangeLake) -> None:
    start = [change(1, "CREATE", [ONE], "t1", Name="one"), change(2, "UPDATE", [ONE], "t2", Name="half")]
    metrics = lake.run(lake.land(*start, stop_reason="max_events"))
    assert (metrics.held, lake.values("Name")) == (1, {ONE: "one"})
    more = lake.land(change(3, "CREATE", [TWO], "t2", Name="other"), stop_reason="max_events")
    metrics = lake.run(more)
    assert (metrics.held, lake.values("Name")) == (2, {ONE: "one"})
    rest = [change(4, "CREATE", [OTHER], "t2", entity=GADGET, Name="gadget"), change(5, "DELETE", [TWO], "t3")]
    metrics = lake.run(lake.land(*rest, stop_reason="max_events"))
    assert metrics.held == 1
    assert lake.values("Name") == {ONE: "half", TWO: "other"}
    assert lake.values("Name", "Gadget__c") == {OTHER: "gadget"}
    assert lake.values("_deleted") == {ONE: False, TWO: False}
    # An empty window that has caught up proves that the last transaction is complete.
    assert lake.run(lake.land()).held == 0
    assert lake.values("_deleted") == {ONE: False, TWO: True}


@BOTH_IN_TURN
def test_many_windows_in_one_run_or_in_many_runs_result_in_the_same_rows(
    lake: ChangeLake, spark: Any, tmp_path: Path
) -> None:
    events = [
        change(n, "CREATE" if n < 6 else "UPDATE", [numbered(n % 5)], f"t{n // 3}", Name=str(n)) for n in range(1, 40)
    ]
    events += [
        change(40, "GAP_UPDATE", [numbered(1)], "t20"),
        change(41, "UPDATE", [numbered(1)], "t21", Name="ignored"),
    ]
    cuts = range(0, len(events), 14)  # the windows end inside transactions
    manifests = [lake.land(*events[at : at + 14], stop_reason="max_events") for at in cuts]
    lake.run(*reversed(manifests))
    lake.run(lake.land())
    one_by_one = ChangeLake(spark, tmp_path / "other")
    for at in cuts:
        one_by_one.run(one_by_one.land(*events[at : at + 14], stop_reason="max_events"))
    one_by_one.run(one_by_one.land())
    assert lake.rows() == one_by_one.rows()
    assert lake.rows()[numbered(1)]["_dirty_reason"] == "gap"
    listed = lake.snapshot().tables["Widget__c"]
    folder = Path(lake.output) / (listed.dirty_list or "")
    lines = [json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    dirty = {record_id: row["_sequence"] for record_id, row in lake.rows().items() if row["_dirty"]}
    assert {line["Id"]: line["sequence"] for line in lines} == dirty
    assert listed.dirty == len(dirty)


def test_hard_deletes_remove_rows(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="x")), deletes="hard")
    lake.run(lake.land(change(2, "DELETE", [ONE], "t2")), deletes="hard")
    assert lake.values("Name") == {TWO: "x"}


def test_deletes_that_differ_from_the_recorded_choice_are_refused_before_any_write(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="x")), deletes="hard")
    files = lake.files()
    second = lake.land(change(2, "DELETE", [ONE], "t2"), change(3, "CREATE", [OTHER], "t3", entity=GADGET))
    with pytest.raises(ConfigurationError, match=r"tables Widget__c .*deletes='hard'.*deletes='soft'.*Nothing was"):
        lake.run(second, deletes="soft")
    assert lake.files() == files
    lake.run(second)
    assert lake.values("Name") == {}
    assert {name: table.deletes for name, table in lake.snapshot().tables.items()} == {
        "Widget__c": "hard",
        "Gadget__c": "soft",
    }


def test_undecodable_events_are_quarantined(lake: ChangeLake) -> None:
    events = [
        change(1, "CREATE", [ONE], "t1", Name="one"),
        change(2, "CREATE", [OTHER], "t1", entity=GADGET, Name="gadget"),
        LandedEvent(3, "Widget__c", b"\xff\xff\xff"),
        LandedEvent(4, "Gadget__c", b""),
        LandedEvent(5, "lost schema", b"whatever"),
    ]
    manifest = lake.land(*events)
    metrics = lake.run(manifest)
    assert metrics.quarantined == 3
    rows = lake.quarantine()
    assert [(row["ordinal"], row["schema_id"], bytes(row["payload"])) for row in rows] == [
        (2, "Widget__c", b"\xff\xff\xff"),
        (3, "Gadget__c", b""),
        (4, "lost schema", b"whatever"),
    ]
    assert all(row["reason"] for row in rows)
    assert lake.values("Name") == {ONE: "one"}


def test_an_overflow_and_an_event_for_all_records_flag_the_table(lake: ChangeLake) -> None:
    manifest = lake.land(
        change(1, "CREATE", [ONE], "t1", Name="one"),
        change(2, "CREATE", [OTHER], "t1", entity=GADGET, Name="gadget"),
        change(3, "GAP_OVERFLOW", ["000000000000000AAA"], "t2"),
        change(4, "UPDATE", ["a0G*"], "t3", entity=GADGET),
    )
    lake.run(manifest)
    flags = {name: table.flag for name, table in lake.snapshot().tables.items()}
    # New tables are flagged already; the overflow only moves the flag's sequence.
    assert {name: (flag.reason, flag.sequence) for name, flag in flags.items() if flag} == {
        "Widget__c": ("new", 3),
        "Gadget__c": ("new", 4),
    }
    assert set(lake.rows()) == {ONE}


def test_a_gap_before_a_window_flags_every_table_of_the_stream(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one"), change(2, "CREATE", [OTHER], "t1", entity=GADGET)))
    gap = Gap((2).to_bytes(10, "big"), None, START, START, "expired")
    lake.run(lake.land(change(9, "UPDATE", [ONE], "t9", Amount__c=9.0), gap=gap))
    flags = {name: table.flag for name, table in lake.snapshot().tables.items()}
    assert {name: flag.sequence for name, flag in flags.items() if flag} == {"Widget__c": 3, "Gadget__c": 3}
    assert lake.values("Amount__c") == {ONE: 9.0}


def test_a_position_moved_back_loses_no_event(lake: ChangeLake) -> None:
    events = [change(n, "CREATE", [numbered(n)], f"t{n}", Name=str(n)) for n in range(1, 6)]
    lake.run(lake.land(*events[:3]))
    flag = lake.snapshot().tables["Widget__c"].flag
    again = lake.land(*events[1:], previous_window_id=None, after=None)
    lake.run(again)
    assert lake.values("_sequence") == {numbered(n): at for n, at in zip(range(1, 6), (1, 2, 3, 6, 7), strict=True)}
    assert lake.snapshot().tables["Widget__c"].flag == flag, "no event is missing, so the flag is unchanged"


def test_a_position_moved_forward_flags_the_tables(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one")))
    lake.run(lake.land(change(7, "CREATE", [TWO], "t7", Name="two"), previous_window_id=None, after=b"elsewhere"))
    flag = lake.snapshot().tables["Widget__c"].flag
    assert flag is not None
    assert flag.sequence == 2
    assert lake.values("Name") == {ONE: "one", TWO: "two"}


def test_backfill_windows_are_not_applied(lake: ChangeLake) -> None:
    first = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    backfill = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"), kind="backfill", previous_window_id=None)
    assert lake.run(first, backfill).windows == ["20260110T000000Z-window0"]


def test_a_window_with_the_same_predecessor_as_an_applied_one_is_refused(lake: ChangeLake) -> None:
    first = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    lake.run(first)
    second = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))
    sibling = lake.land(change(3, "UPDATE", [ONE], "t3", Name="three"))
    lake.run(second)
    lake.run(sibling)
    fork = lake.land(change(4, "UPDATE", [ONE], "t4"), previous_window_id="20260110T000100Z-window1")
    with pytest.raises(ManifestError, match="another window that follows it"):
        lake.run(fork)
    assert lake.values("Name") == {ONE: "three"}


def test_files_that_were_changed_after_landing_fail_the_run(lake: ChangeLake) -> None:
    manifest = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    path = Path(manifest.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["files"][0]["rows"] = document["event_count"] = 3
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="changed after landing"):
        lake.run(manifest)
    assert not lake.files()


def test_a_job_that_loses_the_snapshot_to_another_job_names_that_job(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lake.land(change(1, "CREATE", [ONE], "t1", Name="one"))
    publish = SnapshotStore.publish

    def late(store: SnapshotStore, snapshot: Any) -> Any:
        monkeypatch.setattr(SnapshotStore, "publish", publish)
        lake.run(first, job="the other job")
        return publish(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "publish", late)
    with pytest.raises(PositionConflictError, match=r"Snapshot 1 .* was published by the other job while"):
        lake.run(first)
    assert lake.values("Name") == {ONE: "one"}


@BOTH_IN_TURN
def test_changes_of_a_run_killed_before_its_snapshot_are_reverted_by_the_next_run(
    lake: ChangeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="one")))
    before = lake.files()
    second = lake.land(change(2, "UPDATE", [ONE], "t2", Name="two"))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replica_job.SnapshotStore, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.run(second)
    assert lake.values("Name") == {ONE: "one"}
    assert lake.files() > before
    lake.run(second, keep_snapshots=1)
    assert lake.values("Name") == {ONE: "two"}
    assert lake.log().version().number == 3, (
        "the four commits are creation, unpublished change, its restore and the repeated change"
    )
    assert lake.snapshot().tables["Widget__c"].version == 3


def test_the_kept_snapshots_are_readable(lake: ChangeLake) -> None:
    for number in range(1, 4):
        event = change(number, "CREATE" if number == 1 else "UPDATE", [ONE], f"t{number}", Name=str(number))
        lake.run(lake.land(event), keep_snapshots=2)
    assert [lake.rows(snapshot=number)[ONE]["Name"] for number in (2, 3)] == ["2", "3"]
    with pytest.raises(FileNotFoundError):
        lake.rows(snapshot=1)
    assert len([path for path in lake.files() if path.suffix == ".parquet"]) == 2, "only files of kept snapshots remain"
    with pytest.raises(ConfigurationError, match=r"The replica below .* has no table Nothing\. Its tables: Widget__c"):
        lake.rows("Nothing")


@BOTH_IN_TURN
def test_a_history_is_continued_by_runs_without_the_option(lake: ChangeLake) -> None:
    lake.run(lake.land(change(1, "CREATE", [ONE], "t1", Name="before")))
    with pytest.raises(ConfigurationError, match="has no history"):
        read_history(lake.spark, lake.output, "Widget__c")
    events = [change(2, "UPDATE", [ONE], "t2", Name="first"), change(3, "UPDATE", [ONE], "t3", Name="second")]
    lake.run(lake.land(*events), history=True)
    last = lake.land(change(4, "DELETE", [ONE], "t4"))
    lake.run(last)
    lake.run(last)
    versions = read_history(lake.spark, lake.output, "Widget__c").orderBy("_sequence").collect()
    assert [(row["Name"], row["_deleted"], row["_is_current"]) for row in versions] == [
        ("before", False, False),
        ("first", False, False),
        ("second", False, False),
        ("second", True, True),
    ]
    assert [row["_valid_to"] for row in versions] == [*(row["_valid_from"] for row in versions[1:]), None]
