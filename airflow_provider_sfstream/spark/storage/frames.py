"""DataFrames put together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any


def union(frames: Iterable[Any]) -> Any:
    """Return the rows of one or more DataFrames of the same columns as one."""
    return reduce(lambda one, other: one.unionByName(other), frames)
