"""List of dirty rows after each run, compared with the rows, and the table files read to write it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink
from tests.support.change_lake import ChangeLake, change
from tests.support.engines import BOTH_IN_TURN

IDS = [f"a0W{number:012d}AAA" for number in range(60)]
CHANGES = ("CREATE", "UPDATE", "UPDATE", "DELETE", "UNDELETE", "GAP_UPDATE", "GAP_UPDATE")


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> ChangeLake:
    return ChangeLake(spark, tmp_path, engine)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str] | None]:
    """Record the files that a run reads after it has committed a table; ``None`` stands for all files."""
    found: list[Sequence[str] | None] = []
    read = DeltaSink.read

    def reading(sink: DeltaSink, name: str, table: Any, paths: Sequence[str] | None = None) -> Any:
        found.append(paths)
        return read(sink, name, table, paths)

    monkeypatch.setattr(DeltaSink, "read", reading)
    return found


def listed(lake: ChangeLake) -> dict[str, int | None]:
    table = lake.snapshot().tables["Widget__c"]
    folder = Path(lake.output) / (table.dirty_list or "nothing")
    lines = [json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()]
    assert len(lines) == table.dirty + table.computed.changed
    found = {line["Id"]: line.get("sequence") for line in lines}
    assert len(found) == len(lines)
    return found


def dirty(lake: ChangeLake) -> dict[str, int | None]:
    return {record_id: row["_sequence"] for record_id, row in lake.rows().items() if row["_dirty"]}


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_the_list_has_all_dirty_rows_although_only_rewritten_files_are_read(
    lake: ChangeLake, reads: list[Sequence[str] | None], deletes: str
) -> None:
    chance, number = random.Random(deletes), len(IDS)
    options = {"deletes": deletes, "target_file_bytes": 1_500}
    first = [change(n + 1, "CREATE", [id_], "t", Name=chance.randbytes(100).hex()) for n, id_ in enumerate(IDS)]
    lake.run(lake.land(*first), **options)
    for round_ in range(5):
        events = []
        for _ in range(3):
            number += 1
            kind = "GAP_UPDATE" if round_ == 0 else chance.choice(CHANGES)
            values = {} if kind in ("DELETE", "GAP_UPDATE") else {"Name": f"name {number}"}
            events.append(change(number, kind, [chance.choice(IDS)], f"t{number}", **values))
        lake.run(lake.land(*events), **options)
        assert listed(lake) == dirty(lake) != {}
    files = len(lake.log().version().files)
    assert files > 4
    read = [0 if paths is None else len(paths) for paths in reads]
    assert all(0 < count < files for count in read), read
    before = dirty(lake)
    fetched = min(before)
    image = {"Id": fetched, "_sequence": str(before[fetched]), "Name": "as fetched", "_deleted": "false"}
    lake.refresh(image, mode="records", **options)
    assert listed(lake) == dirty(lake) == {id_: sequence for id_, sequence in before.items() if id_ != fetched}


@BOTH_IN_TURN
def test_the_list_has_the_rows_that_an_event_changed(lake: ChangeLake, reads: list[Sequence[str] | None]) -> None:
    one, two, three, four = IDS[:4]
    lake.run(lake.land(*(change(n, "CREATE", [id_], "t", Name="a") for n, id_ in enumerate(IDS[:4], 1))))
    lines = [{"Id": id_, "Sum__c": "1.5"} for id_ in IDS[:4]]
    with lake.refreshing(*lines, mode="computed", computed={"Sum__c": "double"}, on_change=True) as url:
        lake.run(refresh_url=url)
    lake.run(lake.land(change(5, "UPDATE", [one], "t5", Name="b")))
    lake.run(lake.land(change(6, "UPDATE", [two], "t6", Name="c"), change(7, "GAP_UPDATE", [three], "t7")))
    assert counts(lake) == (1, 2)
    assert listed(lake) == {three: 7, one: 5, two: 6}
    lake.run(lake.land(change(8, "UPDATE", [four], "t8", Name="d")))
    assert counts(lake) == (1, 3)
    assert listed(lake) == {three: 7, one: 5, two: 6, four: 8}
    lake.run(lake.land(change(9, "GAP_DELETE", [one], "t9")))
    assert counts(lake) == (2, 2)
    assert None not in reads
    with lake.refreshing(*lines, mode="computed", computed={"Sum__c": "double"}, on_change=True) as url:
        lake.run(lake.land(change(10, "UPDATE", [four], "t10", Name="e")))
        lake.run(refresh_url=url)
    assert counts(lake) == (2, 1), "an event changed one row after the fetch began"
    assert listed(lake) == {three: 7, one: 9, four: 10}


def counts(lake: ChangeLake) -> tuple[int, int]:
    table = lake.snapshot().tables["Widget__c"]
    return table.dirty, table.computed.changed
