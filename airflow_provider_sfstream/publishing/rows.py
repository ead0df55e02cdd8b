"""Rows to publish, the IDs of their events, and what became of them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_NAMESPACE = uuid.UUID("3f1d3c1e-6c1a-5a57-9d6b-6f3a5e5b7c11")
"""Of all IDs that this package gives to events. Never to be changed: a retry would not know its own events."""


@dataclass(frozen=True)
class Row:
    """A row of the source.

    :param identity: tells it from all other rows of the run, and is the same in each try.
    :param values: by the names of the event's fields.
    :param key: as people read it in the results, ``None`` without one.
    :param problem: why it cannot be published, if that is known.
    """

    identity: str
    values: Mapping[str, Any] = field(repr=False)
    key: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class EventIds:
    """The IDs of one run's events on one topic of one org: for each row the same in each try, and in no other run.

    UUIDs of 36 characters, the longest that Salesforce takes ("PublishStream RPC Method").
    """

    org_id: str
    topic: str
    run_key: str

    def of(self, identity: str) -> str:
        """Return the ID of a row's event."""
        run = uuid.uuid5(_NAMESPACE, "\0".join((self.org_id, self.topic, self.run_key)))
        return str(uuid.uuid5(run, identity))


@dataclass
class Summary:
    """What became of the rows: every one is counted once.

    :param published: accepted in this try; ``already_published`` in an earlier one.
    :param in_doubt: left out, since it is not known whether Salesforce accepted them.
    :param problems: failed rows by the class of their error.
    """

    published: int = 0
    already_published: int = 0
    failed: int = 0
    in_doubt: int = 0
    problems: Counter[str] = field(default_factory=Counter)
