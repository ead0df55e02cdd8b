"""What a custom channel makes of a change event: filtered, enriched, one event for each record. Pure.

- Fields of a filter are enriched fields too ("Change Event Filters" of Salesforce's guide to Change Data Capture).
- Enriched fields are in update and delete events, filled with what the record has when the event is delivered, not
  when it was published; those that changed have the value of the event ("Event Enrichment Considerations").
- An enriched event of several records is delivered as one event for each of them, all with its replay ID (there).

Not evidenced: a gap event is filtered by what its record has, and is delivered where it names no record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfstream_localorg.channels.filters import Filter
from sfstream_localorg.records.bitmaps import spelled_out
from sfstream_localorg.records.entity import Entity, Record

_ENRICHED = ("UPDATE", "DELETE")
_WHOLE = ("CREATE", "UNDELETE")

Event = Mapping[str, Any]
"""A change event, header included, as its Avro schema has it."""


@dataclass(frozen=True)
class Enrichment:
    """One member of a channel whose events are not delivered as they are.

    :param fields: names of enriched fields.
    :param filter: ``None`` to deliver all.
    """

    entity: Entity
    fields: tuple[str, ...]
    filter: Filter | None

    def delivered(self, event: Event, schema: Event, record: Callable[[str], Record | None]) -> Iterator[Event]:
        """Yield what is delivered of an event.

        :param schema: the event's own.
        :param record: returns what a record has now, or had when it was deleted, by its id.
        """
        header = event["ChangeEventHeader"]
        if not self._names:  # a filter of header fields alone: there is nothing to enrich with
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
        """The fields of the event that are enriched, those of the filter included."""
        looked_at = self.filter.columns if self.filter else frozenset()
        positions = {self.entity.columns[name].position for name in looked_at}
        named = [field.name for at, field in enumerate(self.entity.fields, 1) if at in positions]
        return tuple(dict.fromkeys((*self.fields, *named)))

    def _matches(self, values: Record, header: Event) -> bool:
        return self.filter is None or self.filter.matches(values, header)

    def _changed(self, header: Event, schema: Event) -> Collection[str]:
        """Return the columns whose values are those of the event."""
        if header["changeType"] in _WHOLE:
            return self.entity.columns
        names = set(spelled_out(header["changedFields"], schema)) - set(spelled_out(header["diffFields"], schema))
        return [name for name in self.entity.columns if self._path(name) in names]

    def _path(self, column: str) -> str:
        """Return a column as ``changedFields`` names it: a part of a compound field as ``Field.Part``."""
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
