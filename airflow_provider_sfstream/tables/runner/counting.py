"""Counts that executors add up beside the rows they write."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.accumulators import AccumulatorParam


class CounterParam(AccumulatorParam[Counter[Any]]):  # type: ignore[misc]
    """A Spark accumulator of counters."""

    def zero(self, value: Counter[Any]) -> Counter[Any]:
        return Counter()

    def addInPlace(self, value1: Counter[Any], value2: Counter[Any]) -> Counter[Any]:  # noqa: N802
        value1.update(value2)
        return value1
