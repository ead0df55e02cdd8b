from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_sfstream.spark.rows.event_batches import by_value


@pytest.mark.parametrize(
    "values", [["a", None, "a", "b", None], ["a", None], [None, "a"], [None], ["a", "a"], ["b", "a"], []]
)
def test_each_row_is_in_the_group_of_its_value_and_in_no_other(values: list[str | None]) -> None:
    batch = pa.record_batch({"key": pa.array(values, pa.string()), "row": range(len(values))})
    groups = {value: group.column("row").to_pylist() for value, group in by_value(batch, "key")}
    assert groups == {key: [row for row, value in enumerate(values) if value == key] for key in set(values)}
