"""Faults of event schemas. This module decides when a fault applies; the handlers of calls apply it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.streams.endings import CallEnded


@dataclass
class SchemaFault:
    """Fault of ``GetSchema``: return ``text`` in place of a schema, or end the call.

    It applies to ``schema_id`` (``None``: every schema), ``times`` times (``None``: until it is cleared).
    """

    schema_id: str | None
    times: int | None
    ending: CallEnded
    text: str | None = None


@dataclass
class SchemaFaults:
    """All active faults of schemas. ``omitted``: schema ids that events omit, by topic (``None``: every id)."""

    answers: list[SchemaFault] = field(default_factory=list)
    omitted: dict[str, set[str | None]] = field(default_factory=dict)

    def add(self, fault: SchemaFault) -> None:
        """Add a fault of ``GetSchema``.

        :raises ValueError: if the count is not positive.
        """
        if fault.times is not None and fault.times < 1:
            raise ValueError("'times' must be positive")
        self.answers.append(fault)

    def answer(self, schema_id: str) -> str | None:
        """Return the text to send in place of a schema, ``None`` for the schema itself.

        :raises CallEnded: if a fault fails the call.
        """
        fault = next((each for each in self.answers if each.schema_id in (None, schema_id)), None)
        if fault is None:
            return None
        if fault.times is not None:
            fault.times -= 1
            if not fault.times:
                self.answers.remove(fault)
        if fault.text is None:
            raise replace(fault.ending)
        return fault.text

    def omit_id(self, topic: str, schema_id: str | None) -> None:
        """Omit this schema id, or every id for ``None``, from the events of ``topic``."""
        self.omitted.setdefault(topic, set()).add(schema_id)

    def delivered(self, topic: str, frames: list[bytes]) -> list[bytes]:
        """Return serialised ``FetchResponse`` messages of ``topic`` without the omitted schema ids."""
        omitted = self.omitted.get(topic)
        return frames if omitted is None else [_without_id(frame, omitted) for frame in frames]

    def clear(self) -> None:
        """Remove all faults."""
        self.answers.clear()
        self.omitted.clear()

    def as_dict(self) -> dict[str, Any]:
        """Return the active faults as JSON values."""
        omitted = [{"topic": topic, "schema_id": id_} for topic, ids in self.omitted.items() for id_ in ids]
        return {"answers": [asdict(fault) for fault in self.answers], "omitted_ids": omitted}


def _without_id(frame: bytes, omitted: set[str | None]) -> bytes:
    response = pb.FetchResponse.FromString(frame)
    for event in response.events:
        if None in omitted or event.event.schema_id in omitted:
            event.event.schema_id = ""
    return response.SerializeToString()
