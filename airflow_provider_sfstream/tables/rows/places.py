"""Places of landed rows: a number, unique in a run, that combines the window and the ordinal of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]

PLACES = 1 << 40
"""More than the maximum rows of a window. A place is ``window * PLACES + ordinal``: 64 bits are enough for four million
windows."""


@dataclass(frozen=True, eq=False)
class Places:
    """Set of places, stored as ranges of consecutive places: ``[starts, ends)``."""

    starts: Numbers
    ends: Numbers

    @classmethod
    def from_numbers(cls, places: Numbers) -> Places:
        """Return a set of unique places, given in any order."""
        ordered = np.sort(places)
        begins = np.diff(ordered, prepend=-2) != 1
        last = np.append(begins[1:], True)
        return cls(ordered[begins], ordered[last] + 1) if len(ordered) else NO_PLACES

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def numbers(self) -> Numbers:
        """Return the individual places, in order."""
        return np.concatenate([np.arange(*run) for run in zip(self.starts, self.ends, strict=True)] or [self.starts])

    def include(self, places: Numbers) -> Numbers:
        """Return a mask of the ``places`` that are in the set."""
        if not len(self.starts):
            return np.zeros(len(places), bool)
        run = np.searchsorted(self.starts, places, side="right") - 1
        return (run >= 0) & (places < self.ends[run])


NO_PLACES = Places(np.array([], np.int64), np.array([], np.int64))


def places_of(batch: pa.RecordBatch) -> Numbers:
    """Return the places of landed rows, which have ``window`` and ``ordinal``."""
    window = batch.column("window").to_numpy().astype(np.int64)
    return window * PLACES + batch.column("ordinal").to_numpy()  # type: ignore[no-any-return]
