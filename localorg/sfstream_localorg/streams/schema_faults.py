"""What shall go wrong with the schemas of events. Decided here, carried out where calls are served."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sfstream_localorg.pubsub import pubsub_api_pb2 as pb
from sfstream_localorg.streams.endings import CallEnded


@dataclass
class SchemaFault:
    """Answer ``times`` calls for a schema (``None``: until faults are cleared; for every schema, if none is named)
    with ``text`` in its place, or end them."""

    schema_id: str | None
    times: int | None
    ending: CallEnded
    text: str | None = None


@dataclass
class SchemaFaults:
    """All faults of schemas in force. ``nameless``: by topic, the ids that its events do not give (``None``: any)."""

    answers: list[SchemaFault] = field(default_factory=list)
    nameless: dict[str, set[str | None]] = field(default_factory=dict)

    def add(self, fault: SchemaFault) -> None:
        """Answer so from now on.

        :raises ValueError: if the count is not positive.
        """
        if fault.times is not None and fault.times < 1:
            raise ValueError("'times' must be positive")
        self.answers.append(fault)

    def answer(self, schema_id: str) -> str | None:
        """Return the text to answer a call for ``schema_id`` with, ``None`` for the schema itself.

        :raises CallEnded: if the call shall fail.
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
        """Deliver the events of ``topic`` without the id of this schema, or of any."""
        self.nameless.setdefault(topic, set()).add(schema_id)

    def delivered(self, topic: str, frames: list[bytes]) -> list[bytes]:
        """Return serialised ``FetchResponse`` messages as a stream of ``topic`` gives them."""
        nameless = self.nameless.get(topic)
        return frames if nameless is None else [_without_id(frame, nameless) for frame in frames]

    def clear(self) -> None:
        """Let everything work again."""
        self.answers.clear()
        self.nameless.clear()

    def as_dict(self) -> dict[str, Any]:
        """Return the faults in force, JSON-able."""
        omitted = [{"topic": topic, "schema_id": id_} for topic, ids in self.nameless.items() for id_ in ids]
        return {"answers": [asdict(fault) for fault in self.answers], "omitted_ids": omitted}


def _without_id(frame: bytes, nameless: set[str | None]) -> bytes:
    response = pb.FetchResponse.FromString(frame)
    for event in response.events:
        if None in nameless or event.event.schema_id in nameless:
            event.event.schema_id = ""
    return response.SerializeToString()
