"""Erasure of records from a replica that Spark wrote: Spark reads all other records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.salesforce.identifiers import to_18
from tests.support.change_lake import SCHEMAS, ChangeLake, change
from tests.support.landing_files import LandedEvent, encode
from tests.support.marked_bytes import files_with
from tests.support.tasks import context_for

GONE, STAYS = to_18("a0W000000000001"), to_18("a0W000000000002")


def broken(number: int, record_id: str) -> LandedEvent:
    event = change(number, "UPDATE", [record_id], f"t{number}", Name="MARKED" if record_id == GONE else "two")
    assert isinstance(event.record, dict)
    return LandedEvent(number, event.schema_id, encode(SCHEMAS[str(event.schema_id)], event.record)[:-3])


def test_spark_reads_the_other_records_after_an_erasure(spark: Any, tmp_path: Path) -> None:
    lake = ChangeLake(spark, tmp_path)
    created = [change(1, "CREATE", [GONE], "t1", Name="MARKED"), change(2, "CREATE", [STAYS], "t2", Name="two")]
    lake.run(lake.land(*created, broken(3, GONE), broken(4, STAYS)), history=True)
    before = lake.quarantine()
    EraseRecordsOperator(
        task_id="erase",
        entity="Widget__c",
        ids=[GONE],
        landing_url=str(lake.landing),
        event_log_urls=[],
        replica_urls=lake.output,
    ).execute(context_for("erase"))
    assert files_with(tmp_path, "MARKED") == files_with(tmp_path, GONE) == []
    assert lake.rows().keys() == {STAYS}
    mine, theirs = lake.quarantine()
    assert theirs == before[1]
    assert (mine["payload"], mine["received_at"]) == (None, before[0]["received_at"])
    lake.run(lake.land(change(5, "UPDATE", [STAYS], "t5", Name="five")), history=True)
    assert lake.values("Name") == {STAYS: "five"}
