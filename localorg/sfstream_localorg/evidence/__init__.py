"""Behaviours of the local org, with the evidence that Salesforce behaves the same: documented, observed, inferred.

The live check looks up values here. Its page lists the inferred behaviours.
"""

from __future__ import annotations

from functools import lru_cache

from sfstream_localorg.evidence import managed, pubsub, rest, streaming
from sfstream_localorg.evidence.behaviour import Behaviour, Evidence

__all__ = ["BEHAVIOURS", "Behaviour", "Evidence", "evidence_of"]

BEHAVIOURS: tuple[Behaviour, ...] = (*pubsub.BEHAVIOURS, *managed.BEHAVIOURS, *streaming.BEHAVIOURS, *rest.BEHAVIOURS)


@lru_cache(maxsize=4096)
def evidence_of(path: str) -> Behaviour:
    """Return the behaviour shown by the value at ``path`` in the answers of a live check.

    :raises LookupError: if the table has no behaviour for this path.
    """
    found = [behaviour for behaviour in BEHAVIOURS if behaviour.covers(path)]
    if not found:
        raise LookupError(f"the table of evidence has nothing of {path}")
    return max(found, key=lambda behaviour: behaviour.precision)
