"""Comparison of a table with the records of the org: only differing rows are reported and become dirty."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.change_lake import START, ChangeLake, change

EQUAL, OTHER, GONE, BINNED, MISSING, NEWER, DIRTY, LATER, SEEN = (f"a0W00000000000{n}AAA" for n in range(1, 10))
FIRST_STAMP, LATE_STAMP = START.isoformat(), START.replace(hour=1).isoformat()


def stamped(record_id: str, name: str | None, stamp: str = FIRST_STAMP, **more: str) -> dict[str, str]:
    line = {"Id": record_id, "_refreshed_at": stamp.replace("+00:00", ".000Z"), "_deleted": "false", **more}
    return line if name is None else line | {"Name": name}


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> ChangeLake:
    lake = ChangeLake(spark, tmp_path)
    rows = [EQUAL, OTHER, GONE, BINNED, DIRTY, LATER, SEEN]
    created = [change(n, "CREATE", [record], f"t{n}", Name=f"n{n}", Amount__c=1.5) for n, record in enumerate(rows, 1)]
    more = [change(10, "DELETE", [BINNED], "t10"), change(11, "GAP_UPDATE", [DIRTY], "t11")]
    lake.run(lake.land(*created, *more))
    lake.run(lake.land(change(12, "UPDATE", [EQUAL], "t12", Amount__c=None)))
    return lake


def test_differing_rows_are_counted_and_become_dirty(lake: ChangeLake) -> None:
    records = [
        stamped(EQUAL, "n1"),
        stamped(OTHER, "another", Amount__c="1.5"),
        stamped(MISSING, "new"),
        stamped(NEWER, "newer", LATE_STAMP),
        stamped(DIRTY, "unknown"),
        stamped(LATER, "later", LATE_STAMP),
        stamped(SEEN, "n7", Amount__c="1.5"),
    ]
    before = lake.rows()
    with lake.refreshing(*records, mode="compare", columns=["Name", "Amount__c"]) as url:
        lake.run(lake.land(change(13, "UPDATE", [SEEN], "t13", Name="meanwhile")))
        found = lake.run(refresh_url=url).tables["Widget__c"].reconciliation
    assert found is not None
    assert found["records"] == {
        **{"equal": 1, "different": 1, "missing": 1, "gone": 1},
        **{"changed_since": 3, "dirty": 1},
    }
    assert found["as_of"] == START.replace(second=13).isoformat()
    (wrong,) = found["differing_ranges"]
    assert (wrong["id_prefix"], wrong["missing"]) == ("a0W000000000", 1)
    text = (Path(lake.output) / found["report"]).read_text()
    assert not re.search(r"a0W\w{12}", text + json.dumps(found)), (
        "reports must not contain complete record IDs, since an erasure does not search them"
    )
    report = json.loads(text)
    assert report["ranges"] == [wrong]
    assert (report["table"], report["columns"]) == ("Widget__c", ["Name", "Amount__c"])
    table = lake.snapshot().tables["Widget__c"]
    assert found["uncompared"] == [name for name in table.columns if name not in report["columns"]] != []
    after = lake.rows()
    marked = {record_id: row["_dirty_reason"] for record_id, row in after.items() if row["_dirty"]}
    assert marked == dict.fromkeys((OTHER, GONE, MISSING), "differs") | {DIRTY: "gap"}
    changed = {record_id for record_id, row in after.items() if row != before.get(record_id)}
    assert changed == {OTHER, GONE, MISSING, SEEN}, "the row SEEN is changed by its event"
    assert lake.snapshot().tables["Widget__c"].dirty == 4


def test_equal_tables_have_equal_checksums(lake: ChangeLake) -> None:
    names = {EQUAL: "n1", OTHER: "n2", GONE: "n3", DIRTY: "n5", LATER: "n6", SEEN: "n7"}
    records = [stamped(each, name, **({} if each == EQUAL else {"Amount__c": "1.5"})) for each, name in names.items()]
    version = lake.snapshot().tables["Widget__c"].version
    for line, differs in ((stamped(BINNED, "n4", _deleted="true", Amount__c="1.5"), 0), (stamped(BINNED, "n4"), 1)):
        with lake.refreshing(*records, line, mode="compare", columns=["Name", "Amount__c"]) as url:
            found = lake.run(refresh_url=url).tables["Widget__c"].reconciliation
        assert found is not None
        assert (found["ranges"], len(found["differing_ranges"])) == (1, differs)
        assert found["records"]["equal"] == 7 - 1 - differs
        assert (lake.snapshot().tables["Widget__c"].version == version) is not bool(differs)
