"""Rows to publish, the IDs of their events, and the counts of results."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_NAMESPACE = uuid.UUID("3f1d3c1e-6c1a-5a57-9d6b-6f3a5e5b7c11")
"""Namespace of the event IDs of this package. Never change it: a retry would not recognize its own events."""


@dataclass(frozen=True)
class Row:
    """A row of the source.

    :param identity: unique among the rows of the run, and the same in each try.
    :param values: values by field name of the event.
    :param key: readable key of the row in the results; ``None`` without one.
    :param problem: reason for which the row cannot be published, if known.
    """

    identity: str
    values: Mapping[str, Any] = field(repr=False)
    key: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class EventIds:
    """The IDs of one run's events on one topic of one org: for each row the same in each try, and in no other run.

    UUIDs of 36 characters, Salesforce's maximum ("PublishStream RPC Method").
    """

    org_id: str
    topic: str
    run_key: str

    def id_of(self, identity: str) -> str:
        """Return the ID of a row's event."""
        run = uuid.uuid5(_NAMESPACE, "\0".join((self.org_id, self.topic, self.run_key)))
        return str(uuid.uuid5(run, identity))


@dataclass
class Summary:
    """Counts of the rows by result: every row is counted once.

    :param published: rows accepted in this try; ``already_published``: in an earlier one.
    :param in_doubt: rows that were not sent again, because it is not known whether Salesforce accepted them.
    :param problems: failed rows by the class of their error.
    """

    published: int = 0
    already_published: int = 0
    failed: int = 0
    in_doubt: int = 0
    problems: Counter[str] = field(default_factory=Counter)
