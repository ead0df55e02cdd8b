"""Between the stream and its storage, for a landing that may not hold some fields: events pass without them."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import Self

from airflow_provider_sfstream.drain.schemas import StreamSchemas
from airflow_provider_sfstream.exceptions import SchemaError, ServiceUnavailableError
from airflow_provider_sfstream.protocol.field_rules import FieldRules, unmet
from airflow_provider_sfstream.protocol.manifest import LeftOut
from airflow_provider_sfstream.protocol.reduced_schemas import ReducedSchema
from airflow_provider_sfstream.reading.source import EventBatch, EventSink

log = logging.getLogger(__name__)


class WithoutFields:
    """Gives a sink the events that it is given, without some fields. An event of which these cannot be told is given
    with an empty payload, and counted: it is one whose payload is damaged, or whose schema Salesforce refuses.

    A schema that cannot be had right now is another matter: the batch is not taken, and the drain reads it again.

    :param topic: for messages.
    :param schemas: those of the stream.
    :param rules: the fields that are left out.
    """

    def __init__(self, topic: str, schemas: StreamSchemas, rules: FieldRules) -> None:
        self._topic, self._schemas, self._rules = topic, schemas, rules
        self._sink: EventSink
        self._reduced: dict[str, ReducedSchema | None] = {}
        self._emptied: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        """The schemas of what was given to the sink, by the schema ids that it was given."""

    def into(self, sink: EventSink) -> Self:
        """Return this, with the sink that events go to."""
        self._sink = sink
        return self

    def append(self, batch: EventBatch) -> None:
        """Give the events of ``batch`` to the sink.

        :raises ServiceUnavailableError: if a schema cannot be had now. Nothing of the batch was given.
        :raises LandingError: of the sink.
        """
        for schema_id in set(batch.schema_ids):
            self._learn(schema_id)
        payloads, schema_ids = [], []
        for schema_id, payload in zip(batch.schema_ids, batch.payloads, strict=True):
            reduced = self._reduced[schema_id]
            schema_ids.append(schema_id if reduced is None else reduced.schema_id)
            payloads.append(self._payload(schema_id, reduced, payload))
        self._sink.append(replace(batch, schema_ids=schema_ids, payloads=payloads))

    def schema(self, schema_id: str) -> str | None:
        """Return the schema of events that the sink was given; ``None`` if it has none."""
        return self.texts.get(schema_id)

    def told(self) -> LeftOut:
        """Return what the manifest says; warn of names that were of no field, and of events that were emptied."""
        known = [each for each in self._reduced.values() if each is not None]
        if missing := unmet(self._rules, [each.coverage for each in known]) if known else []:
            log.warning("%s: no event has a field %s, which the landing may not hold.", self._topic, ", ".join(missing))
        if emptied := self._emptied.total():
            log.warning(
                "%s: %d events landed without their payload: it could not be told where the fields are in it that the "
                "landing may not hold. The tables' jobs quarantine them.",
                self._topic,
                emptied,
            )
        schemas = {each.schema_id: original for original, each in self._reduced.items() if each and not each.is_same}
        return LeftOut(self._rules.exclude, schemas, emptied)

    def _learn(self, schema_id: str) -> None:
        if schema_id in self._reduced:
            return
        text = self._schemas.get(schema_id)
        if text is None and not self._schemas.is_refused(schema_id):
            raise ServiceUnavailableError(
                f"{self._topic}: the schema {schema_id} cannot be had now ({self._schemas.missing.get(schema_id)}). "
                "Without it nobody can tell the fields that the landing may not hold, so nothing of these events was "
                "landed; the position was not moved."
            )
        try:
            self._reduced[schema_id] = reduced = None if text is None else ReducedSchema(schema_id, text, self._rules)
        except SchemaError as error:
            log.warning("%s: the schema %s cannot be reduced: %s", self._topic, schema_id, error)
            reduced = self._reduced[schema_id] = None
        if reduced is not None:
            self.texts[reduced.schema_id] = reduced.schema_json

    def _payload(self, schema_id: str, reduced: ReducedSchema | None, payload: bytes) -> bytes:
        try:
            if reduced is not None:
                return reduced.reduced(payload)
        except ValueError:
            pass
        self._emptied[schema_id] += 1
        return b""
