"""A job with a smaller bound of memory writes the same rows."""

from __future__ import annotations

import random
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from tests.support.change_lake import GADGET, WIDGET, ChangeLake, change
from tests.support.engines import ENGINES
from tests.support.landing_files import LandedEvent

WIDGETS, GADGETS = ([f"a0{key}{number:012d}AAA" for number in range(60)] for key in "WG")


def windows(lake: ChangeLake) -> list[str]:
    """Land new and changed records of two objects, in events of one record and of many, and broken events."""
    shape, numbers, manifests = random.Random(1), count(1), []
    for type_ in ("CREATE", "UPDATE"):
        events = []
        for number in islice(numbers, 40):
            entity, ids = shape.choice([(WIDGET, WIDGETS), (GADGET, GADGETS)])
            chosen, name = shape.sample(ids, shape.choice([1, 1, 40])), "n" * shape.randrange(200)
            events.append(change(number, type_, chosen, f"t{number}", entity=entity, Name=name))
        manifests.append(lake.land(*events, LandedEvent(next(numbers), "Widget__c", b"\xff")))
    return manifests


def content(folder: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables below a folder."""
    tables = [path.parent for path in Path(folder).glob("*/_delta_log")]
    rows = {table.name: DeltaTable(table).to_pyarrow_table().to_pylist() for table in tables}
    return {name: sorted(of_table, key=lambda row: str(sorted(row.items()))) for name, of_table in rows.items()}


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_smaller_bound_gives_the_same_rows(spark: Any, tmp_path: Path, engine: Any) -> None:
    lake = ChangeLake(spark, tmp_path, engine)
    manifests, written = windows(lake), []
    for options in ({}, {"batch_bytes": 60_000}):
        lake.output = str(tmp_path / f"tables{len(written)}")
        for manifest in manifests:
            lake.run(manifest, history=True, **options)
            run_event_log(lake.engine(), EventLogConfig(output_url=lake.output, manifests=(manifest,), **options))
        written.append(content(lake.output))
    assert written[0] == written[1]
    counts = {name: len(rows) for name, rows in written[0].items()}
    assert (counts["Widget__c"], counts["Gadget__c"], counts["_quarantine"], len(counts)) == (60, 60, 4, 7)
    assert counts["Widget__ChangeEvent"] + counts["Gadget__ChangeEvent"] == 80
