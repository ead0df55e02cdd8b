"""Rebuilding the org from the change events of a random workload, with a replica in plain Python.

These tests check the local org, the workload and the comparison, because tests of Spark jobs rely on them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.event_replica import EventReplica
from tests.support.localorg import LocalOrg
from tests.support.org_workload import ENTITIES, TOPIC, OrgWorkload, RandomWindows
from tests.support.replica_comparison import (
    Difference,
    differences,
    dirty_rows,
    org_tables,
    summary,
    without_computed_columns,
)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in (0, 2))])
def test_replica_of_landed_events_of_a_random_workload_equals_the_org(seed: int, tmp_path: Path) -> None:
    with (
        LocalOrg.running(tmp_path / "org") as org,
        OrgWorkload.on(org, seed, diffs=seed > 0) as workload,
        RandomWindows(org, tmp_path / "lake", seed) as windows,
    ):
        workload.run(50)
        windows.drain(4, 60)
        workload.add_fields()
        workload.run(50)
        overflowed = workload.overflow()
        workload.run(60)
        windows.drain_rest(300)
        replica, expected = EventReplica(), without_computed_columns(org_tables(workload))
        assert windows.events == len(org.record(TOPIC))
    for manifest_url in windows.manifests:
        replica.apply(manifest_url)
    assert replica.flagged == {overflowed}
    assert replica.gaps > 5
    assert bool(replica.diffs) == (seed > 0)
    assert dirty_rows(replica.tables) >= replica.gaps // 2

    for one in differences(expected, replica.tables):
        row = replica.tables[one.table].get(one.record_id)
        assert one.table == overflowed or (row and row["_dirty"]), f"no reason for {one}"
    replica.refresh(expected)
    found = differences(expected, replica.tables)
    assert not found, summary(found)
    assert not dirty_rows(replica.tables)
    assert all(len(rows) > 20 and any(row["_deleted"] for row in rows.values()) for rows in expected.values())

    # The comparison must detect differences.
    broken, *_ = replica.tables["Account"]
    replica.tables["Account"][broken] |= {"_deleted": None, "AnnualRevenue": 12, "Colour__c": "none", "Strange__c": 1}
    (lost, *_) = replica.tables.pop("Contact")
    seen = differences(expected, replica.tables)
    assert {one.column for one in seen if one.record_id == broken} >= {"_deleted", "AnnualRevenue", "Strange__c"}
    assert Difference("Contact", lost, "Id", lost, None) in seen
    assert {one.table for one in seen} == {"Account", "Contact"} <= set(ENTITIES)


@pytest.mark.extended
def test_workload_with_the_same_seed_makes_the_same_changes(tmp_path: Path) -> None:
    seen = []
    for name in ("one", "two"):
        with LocalOrg.running(tmp_path / name) as org, OrgWorkload.on(org, 7) as workload:
            workload.run(20)
            fields = [event["fields"] for event in org.record(TOPIC)]
        headers = [one["ChangeEventHeader"] for one in fields]
        seen.append([(h["changeType"], h["recordIds"], h["sequenceNumber"], h["changedFields"]) for h in headers])
    assert seen[0] == seen[1]
    assert len(seen[0]) > 30
