"""The one table of what the local org does and how it is known that Salesforce does so: documented, observed, inferred.

The live check looks values up here; its page lists what is inferred.
"""

from __future__ import annotations

from functools import lru_cache

from sfstream_localorg.evidence import managed, pubsub, rest, streaming
from sfstream_localorg.evidence.behaviour import Behaviour, Evidence

__all__ = ["BEHAVIOURS", "Behaviour", "Evidence", "evidence_of"]

BEHAVIOURS: tuple[Behaviour, ...] = (*pubsub.BEHAVIOURS, *managed.BEHAVIOURS, *streaming.BEHAVIOURS, *rest.BEHAVIOURS)


@lru_cache(maxsize=4096)
def evidence_of(path: str) -> Behaviour:
    """Return the behaviour that a value at ``path`` of a live check's answers shows.

    :raises LookupError: if the table has none.
    """
    found = [behaviour for behaviour in BEHAVIOURS if behaviour.covers(path)]
    if not found:
        raise LookupError(f"the table of evidence has nothing of {path}")
    return max(found, key=lambda behaviour: behaviour.precision)
