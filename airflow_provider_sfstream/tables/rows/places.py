"""Places of landed rows: a number that tells a row of a run from all others, made of its window and its ordinal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]

PLACES = 1 << 40
"""More rows than a window can hold. A place is ``window * PLACES + ordinal``: 64 bits are enough for four million
windows."""


@dataclass(frozen=True, eq=False)
class Places:
    """A set of places, as runs of places that follow each other: ``[starts, ends)``."""

    starts: Numbers
    ends: Numbers

    @classmethod
    def from_numbers(cls, places: Numbers) -> Places:
        """Return a set of places, given in any order, each once."""
        ordered = np.sort(places)
        begins = np.diff(ordered, prepend=-2) != 1
        last = np.append(begins[1:], True)
        return cls(ordered[begins], ordered[last] + 1) if len(ordered) else NO_PLACES

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def numbers(self) -> Numbers:
        """Return the places one by one, in order."""
        return np.concatenate([np.arange(*run) for run in zip(self.starts, self.ends, strict=True)] or [self.starts])

    def include(self, places: Numbers) -> Numbers:
        """Return an array that is true for those of these places that are in the set."""
        if not len(self.starts):
            return np.zeros(len(places), bool)
        run = np.searchsorted(self.starts, places, side="right") - 1
        return (run >= 0) & (places < self.ends[run])


NO_PLACES = Places(np.array([], np.int64), np.array([], np.int64))


def places_of(batch: pa.RecordBatch) -> Numbers:
    """Return the places of landed rows, which have ``window`` and ``ordinal``."""
    window = batch.column("window").to_numpy().astype(np.int64)
    return window * PLACES + batch.column("ordinal").to_numpy()  # type: ignore[no-any-return]
