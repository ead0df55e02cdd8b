"""Filtering and enrichment of change events on custom channels. Pure.

- Fields of a filter are enriched fields too ("Change Event Filters" of Salesforce's guide to Change Data Capture).
- Update and delete events carry the enriched fields. Their values are those of the record at delivery, not at
  publication; changed fields have the value of the event ("Event Enrichment Considerations").
- An enriched event of several records is delivered as one event per record, all with its replay ID (same section).

Without evidence: a gap event is filtered by the values of its record, and is delivered if it names no record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfstream_localorg.channels.filters import Filter
from sfstream_localorg.records.bitmaps import bitmap_fields
from sfstream_localorg.records.entity import Entity, Record

_ENRICHED = ("UPDATE", "DELETE")
_FULL_RECORD = ("CREATE", "UNDELETE")

Event = Mapping[str, Any]
"""A decoded change event, header included."""


@dataclass(frozen=True)
class Enrichment:
    """Enrichment and filter of one member of a channel.

    :param fields: names of enriched fields.
    :param filter: ``None`` to deliver all events.
    """

    entity: Entity
    fields: tuple[str, ...]
    filter: Filter | None

    def delivered(self, event: Event, schema: Event, record: Callable[[str], Record | None]) -> Iterator[Event]:
        """Yield the events to deliver for one event.

        :param schema: the schema of the event.
        :param record: returns the current values of a record by its id, or the last values of a deleted record.
        """
        header = event["ChangeEventHeader"]
        if not self._names:  # the filter compares header fields only, so no field has to be enriched
            if self._matches({}, header):
                yield event
            return
        for record_id in header["recordIds"]:
            now = record(record_id)
            one = {**event, "ChangeEventHeader": {**header, "recordIds": [record_id]}}
            if now is None:
                yield one
                continue
            changed = self._changed(header, schema)
            values = {**now, **{name: self._value(event, name) for name in changed}}
            if self._matches(values, header):
                yield self._enriched(one, values) if header["changeType"] in _ENRICHED else one

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """Names of the enriched fields, including the fields of the filter."""
        looked_at = self.filter.columns if self.filter else frozenset()
        positions = {self.entity.columns[name].position for name in looked_at}
        named = [field.name for at, field in enumerate(self.entity.fields, 1) if at in positions]
        return tuple(dict.fromkeys((*self.fields, *named)))

    def _matches(self, values: Record, header: Event) -> bool:
        return self.filter is None or self.filter.matches(values, header)

    def _changed(self, header: Event, schema: Event) -> Collection[str]:
        """Return the columns whose values come from the event."""
        if header["changeType"] in _FULL_RECORD:
            return self.entity.columns
        names = set(bitmap_fields(header["changedFields"], schema)) - set(bitmap_fields(header["diffFields"], schema))
        return [name for name in self.entity.columns if self._path(name) in names]

    def _path(self, column: str) -> str:
        """Return the name of a column in ``changedFields``; a part of a compound field is ``Field.Part``."""
        known = self.entity.columns[column]
        field = self.entity.fields[known.position - 1]
        if known.part is None or field.compound is None:
            return field.name
        return f"{field.name}.{field.compound.parts[known.part][0]}"

    def _value(self, event: Event, column: str) -> Any:
        field, _, part = self._path(column).partition(".")
        value = event.get(field)
        if not part:
            return None if isinstance(value, Mapping) else value
        return value.get(part) if isinstance(value, Mapping) else None

    def _enriched(self, event: Event, values: Record) -> Event:
        body = self.entity.body(values)
        return {**event, **{name: body[name] for name in self._names if name in event}}
