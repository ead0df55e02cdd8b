"""Filters in the channel names of PushTopics: ``/topic/InvoiceUpdates?Status__c='Open'&Amount__c>=100``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sfstream_localorg.cometd.replies import BayeuxError
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.fields import COMPOUND_TYPES
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import SYSTEM_COLUMNS, readable
from sfstream_localorg.records.soql import no_parents, parse_conditions
from sfstream_localorg.records.values import from_json

if TYPE_CHECKING:
    from sfstream_localorg.cometd.push_topics import PushTopic
    from sfstream_localorg.cometd.sessions import Condition

_AND = re.compile(r"'(?:\\.|[^'\\])*'|&")
_NO_COLUMN = re.compile(r"No such column '([^']*)'")


def parse_filter(text: str, topic: PushTopic) -> Condition:
    """Parse the condition after the question mark of a channel name: SOQL comparisons joined by ``&``.

    The condition reads an event's ``sobject``. So it can compare fields of the ``SELECT`` only, and only the id of a
    deleted record.

    :raises BayeuxError: 400 if the condition is malformed or names another field.
    """
    entity = topic.query.entity
    try:
        sought, compared = parse_conditions(
            _AND.sub(lambda match: " AND " if match[0] == "&" else match[0], text), entity
        )
    except ApiError as error:
        unknown = _NO_COLUMN.search(error.message)
        raise _missing({unknown[1]}) if unknown else BayeuxError(f"400::{error.message}") from None
    if compared - set(topic.query.columns):
        raise _missing(compared - set(topic.query.columns))
    kinds = {name: kind for name, kind in readable(entity).items() if kind not in COMPOUND_TYPES}

    def condition(data: Mapping[str, Any]) -> bool:
        values = {name: value for name, value in data["sobject"].items() if name in kinds}
        content = {
            name: from_json(name, kinds[name], value) for name, value in values.items() if name not in SYSTEM_COLUMNS
        }
        modified = from_json("SystemModstamp", "DateTime", values.get("SystemModstamp")) or 0
        record = StoredRecord(str(values.get("Id")), entity.name, content, modified)
        return sought.matches(record, no_parents)

    return condition


def _missing(fields: set[str] | frozenset[str]) -> BayeuxError:
    return BayeuxError(f"400::Query fields {{{', '.join(sorted(fields))}}} do not exist on the topic entity")
